"""Static negatives: two trainings one after the other, with one encoder in the end or with two."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove.disk.run_folder import RunFolder  # noqa: E402
from labelgrove.errors import ConfigError, UnsupportedError  # noqa: E402
from labelgrove.methods import create  # noqa: E402
from labelgrove.methods.lightxml.static import TwoEncoders, best_groups  # noqa: E402
from labelgrove.methods.neural import make_runner  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from support.nn_problems import light_problem  # noqa: E402
from support.run_logs import computed  # noqa: E402
from support.small_models import planted, stored, tiny_training  # noqa: E402

pytestmark = pytest.mark.slow
TEXTS, LABELS = planted(80)


def model(negatives: str, **heads: Any) -> Any:
    settings = deepcopy(tiny_training())  # other tests share it
    settings["training"]["max_steps"] = 40
    settings["heads"] = {"one_head_up_to": 0, "negatives": negatives, "groups_kept": 2} | heads
    settings["tree"] = {"max_leaf_size": 3, "branching": 2}
    return create("lightxml", settings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = RunFolder(tmp_path_factory.mktemp("run") / "run")
    models = {kind: model(kind).fit(TEXTS, LABELS, run=run) for kind in ("static", "static-two")}
    return models | {"made": computed(run.path)}


def encoder_weights(network: Any) -> list[Any]:
    return [value.cpu().numpy() for value in network.encoder.state_dict().values()]


def same(first: list[Any], second: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_both_kinds_learn_and_share_their_trainings(trained: dict[str, Any]) -> None:
    networks = [name for name in trained["made"] if name.startswith("network")]
    assert networks == ["network-groups", "network-labels", "network"]
    steps = {kind: trained[kind].history_["steps"] for kind in ("static", "static-two")}
    assert steps == {"static": 120, "static-two": 80}
    for kind in ("static", "static-two"):
        names = trained[kind].predict(TEXTS, k=1).names()
        right = [best[0] in true for best, true in zip(names, LABELS, strict=True)]
        assert np.mean(right) > 0.9


def test_one_keeps_the_encoder_of_the_labels_and_the_other_both(trained: dict[str, Any]) -> None:
    one, two = trained["static"].network_, trained["static-two"].network_
    assert not isinstance(one, TwoEncoders) and isinstance(two, TwoEncoders)
    assert same(encoder_weights(one), encoder_weights(two))
    assert not same(encoder_weights(two), encoder_weights(two.recall))
    groups = [net.heads.groups.weight.detach().numpy() for net in (one, two)]
    assert not np.allclose(groups[0], groups[1])
    tables = [net.heads.table.weight.detach().numpy() for net in (one, two)]
    assert np.array_equal(tables[0], tables[1])


@pytest.mark.parametrize("kind", ["static", "static-two"])
def test_a_stored_model_predicts_the_same(
    trained: dict[str, Any], tmp_path: Path, kind: str
) -> None:
    again = stored(trained[kind], tmp_path / "model")
    before, after = (m.predict(TEXTS[:20], k=4) for m in (trained[kind], again))
    assert np.array_equal(before.columns, after.columns)
    assert np.array_equal(before.scores, after.scores)


def test_two_encoders_are_explained_but_not_exported(trained: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="two encoders cannot be exported"):
        trained["static-two"].exported_parts()
    assert trained["static-two"].explain(TEXTS[0]).reasons
    assert trained["static"].exported_parts().parts


def test_candidates_are_the_groups_that_the_first_network_finds(trained: dict[str, Any]) -> None:
    network = trained["static"].network_
    tokens = tokenize(TEXTS[:9], network.encoder, 24)
    found = best_groups(network, SimpleNamespace(tokens=tokens), "fp32")
    assert np.diff(found.indptr).tolist() == [2] * 9
    logits: dict[int, Any] = {}

    def use(batch: Any, states: list[Any]) -> None:
        rows = network.heads.groups(torch.cat(states, 1)).numpy()
        logits.update(zip(batch.rows.tolist(), rows, strict=True))

    make_runner(network, "fp32").each(tokens, use)
    for row in range(9):
        best = np.argsort(-logits[row], kind="stable")[:2]
        assert found.indices[found.indptr[row] : found.indptr[row + 1]].tolist() == sorted(best)


@pytest.mark.parametrize("truth", ["forced", "joined"])
def test_the_parts_of_the_loss_are_those_of_dynamic_training(truth: str) -> None:
    net, groups, rows, states = light_problem(3, truth=truth)
    positives = RaggedLabels.from_rows(rows)
    _, statistics = net.loss(states, positives)
    logits = net.groups(torch.cat(states, 1))
    above = []
    for labels, scores in zip(rows, logits.tolist(), strict=True):
        true = {g for g, members in enumerate(groups) if set(members) & set(labels)}
        forced = true if truth == "forced" else set()
        order = sorted(range(len(groups)), key=lambda g: (g not in forced, -scores[g]))
        above.append(sorted(order[:3]))
    value = net.label_loss(states, positives, RaggedLabels.from_rows(above))
    assert value.item() == pytest.approx(float(statistics["loss.labels"]), rel=1e-5)
    of_groups = net.group_loss(states, positives)
    assert of_groups.item() == pytest.approx(float(statistics["loss.groups"]), rel=1e-6)
    with pytest.raises(ConfigError, match="states of 3 layers, got 6"):
        net.group_loss([*states, *states], positives)


def test_the_plan_counts_every_training() -> None:
    work = {kind: model(kind).cost_estimate(1000, 11).encoder for kind in ("dynamic", "static-two")}
    assert work["static-two"].learns == 2 * work["dynamic"].learns > 0
    assert work["static-two"].reads == work["dynamic"].reads + 1
    one_head = model("static", one_head_up_to=100).cost_estimate(1000, 11).encoder
    assert one_head == model("dynamic", one_head_up_to=100).cost_estimate(1000, 11).encoder
