"""LightXML's network against its equations, one document at a time."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("torch")

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods import create
from labelgrove.methods.lightxml.method import TwoEncoders, best_groups
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams
from labelgrove.methods.neural import make_runner
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.heads.candidates import RaggedLabels
from reference import lightxml as reference
from support.nn_problems import (
    light_problem,
    random_labels,
    random_states,
    random_tree,
    randomise,
    same_gradients,
)
from support.run_logs import computed
from support.small_models import planted, stored, tiny_training

pytestmark = pytest.mark.slow
LABELS, GROUPS, WIDTH, DOCUMENTS = 40, 9, 6, 5

FORMS = [
    pytest.param({"reduction": "mean"}, id="code"),
    pytest.param({"bottleneck_sigmoid": True, "truth": "joined"}, id="paper"),
    pytest.param({"truth": "joined"}, id="joined"),
    pytest.param({}, id="sum"),
    pytest.param({"groups_kept": 1}, id="more true groups than kept"),
    pytest.param({"truth": "joined", "groups_kept": 1}, id="one group and the truth"),
    pytest.param({"max_candidates": 6}, id="limited"),
    pytest.param({"max_candidates": 2, "truth": "joined"}, id="limit below the positives"),
    pytest.param({"groups_kept": 100}, id="all groups"),
    pytest.param({"reduction": "mean", "max_candidates": 6}, id="mean and limited"),
]


def weights_of(net):
    """The network's weights under the reference's names, labels by their columns."""
    names = ("groups.weight", "groups.bias", "bottleneck.weight", "bottleneck.bias")
    by_name = dict(net.named_parameters())
    return {name: by_name[name] for name in names} | {
        "labels": net.table.weight[net.index.leaf_positions]
    }


@pytest.mark.parametrize("switches", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_and_gradients_are_those_of_the_equations(switches, seed):
    net, groups, rows, states = light_problem(seed, **switches)
    loss, stats = net.loss(states, RaggedLabels.from_rows(rows))
    weights = weights_of(net)
    expected = sum(
        reference.document_loss(
            [state[d] for state in states],
            rows[d],
            groups,
            weights,
            groups_kept=net.params.groups_kept,
            truth=net.params.truth,
            reduction=net.params.reduction,
            bottleneck_sigmoid=net.params.bottleneck_sigmoid,
            most=net.params.max_candidates,
        )
        for d in range(DOCUMENTS)
    ) / len(rows)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert same_gradients(loss, expected, [*states, *net.parameters()])
    assert float(stats["loss.groups"] + stats["loss.labels"]) == pytest.approx(loss.item())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("tree", [None, LabelTree([np.zeros(LABELS)], np.arange(LABELS))])
def test_full_head(reduction, tree):
    rng = np.random.default_rng(0)
    params = LightXmlParams(layers=2, dropout=0.0, reduction=reduction)
    net = LightXmlNet(WIDTH, LABELS, tree, params)
    randomise(net, rng)
    rows, states = random_labels(rng, 4, LABELS, 5), random_states(rng, 2, 4, WIDTH)
    loss, _ = net.loss(states, RaggedLabels.from_rows(rows))
    weights = dict(net.named_parameters())
    expected = sum(
        reference.full_document_loss([s[d] for s in states], rows[d], weights, reduction=reduction)
        for d in range(4)
    ) / len(rows)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert same_gradients(loss, expected, [*states, *net.parameters()])
    top = net.predict(states, 3)
    logits = torch.cat(states, 1) @ net.full.weight.T + net.full.bias
    assert torch.equal(top.columns, logits.topk(3).indices)
    assert torch.allclose(top.scores, logits.sigmoid().topk(3).values)
    count = sum(map(len, rows))
    assert net.shortlist_recall(states, RaggedLabels.from_rows(rows)).tolist() == [[count, count]]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_full_head_in_chunks_is_the_same_head(reduction):
    rng = np.random.default_rng(0)
    options = {"layers": 2, "dropout": 0.0, "reduction": reduction}
    plain, full = (
        LightXmlNet(WIDTH, LABELS, None, LightXmlParams(full=f, chunk=7, **options))
        for f in (False, True)
    )
    randomise(plain, rng)
    full.load_state_dict(plain.state_dict())
    rows, states = random_labels(rng, 4, LABELS, 5), random_states(rng, 2, 4, WIDTH)
    positives = RaggedLabels.from_rows(rows)
    losses = [net.loss(states, positives)[0] for net in (plain, full)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    for one, other in zip(*(torch.autograd.grad(loss, states) for loss in losses), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    allowed = rng.random(LABELS) < 0.5
    for within in ({}, {"allowed": allowed}):
        tops = [
            net.predict(states, 30, **{k: net.allowing(v) for k, v in within.items()})
            for net in (plain, full)
        ]
        assert torch.equal(tops[0].columns, tops[1].columns)
        assert torch.allclose(tops[0].scores, tops[1].scores)
    for one, other in zip(plain.output_layer(), full.output_layer(), strict=True):
        assert np.array_equal(one, other)
    assert plain.text_width == full.text_width == 2 * WIDTH


@pytest.mark.parametrize("kept", [1, 3])
@pytest.mark.parametrize("score", ["level", "weighted"])
@pytest.mark.parametrize("sigmoid", [False, True])
def test_prediction_is_that_of_the_equations(sigmoid, score, kept):
    switches = {"bottleneck_sigmoid": sigmoid, "score": score, "groups_kept": kept}
    net, groups, _, states = light_problem(5, dropout=0.5, **switches)
    net.train()  # prediction must not drop anything even so
    top = net.predict(states, 7)
    for d in range(DOCUMENTS):
        expected = reference.predict(
            [state[d] for state in states],
            groups,
            weights_of(net),
            7,
            groups_kept=kept,
            bottleneck_sigmoid=sigmoid,
            score=score,
        )
        real = top.columns[d] >= 0
        assert top.columns[d][real].tolist() == [label for label, _ in expected]
        assert top.scores[d][real].tolist() == pytest.approx([s for _, s in expected], abs=1e-5)


def test_candidates_follow_the_group_scores():
    net, groups, _, states = light_problem(6)
    with torch.no_grad():
        net.groups.weight.zero_()
        net.groups.bias.zero_()
        net.groups.bias[[2, 4, 7]] = 5.0
    allowed = {label for g in (2, 4, 7) for label in groups[g]}
    predicted = {c for c in net.predict(states, LABELS).columns.flatten().tolist() if c >= 0}
    assert predicted == allowed
    positives = RaggedLabels.from_rows([[groups[2][0]]] * DOCUMENTS)
    assert net.shortlist_recall(states, positives).tolist() == [[DOCUMENTS, DOCUMENTS]]
    positives = RaggedLabels.from_rows([[groups[0][0]]] * DOCUMENTS)
    assert net.shortlist_recall(states, positives).tolist() == [[0, DOCUMENTS]]
    _, stats = net.loss(states, positives)
    assert float(stats["recall"]) == 0.0  # of the groups' own choice, whatever training forces in


def test_the_output_layer_gives_the_predicted_scores():
    net, _, _, states = light_problem(11, groups_kept=GROUPS, score="level")
    columns, scores = net.predict(states, LABELS)
    weights, biases = net.output_layer()
    logits = net.text(states).detach().numpy() @ weights.T + biases
    np.testing.assert_allclose(torch.tensor(logits).sigmoid().gather(1, columns), scores, rtol=1e-4)


def test_dropout_is_for_training_only():
    net, _, rows, states = light_problem(9, dropout=0.5)
    positives = RaggedLabels.from_rows(rows)
    net.eval()
    assert net.loss(states, positives)[0].item() == net.loss(states, positives)[0].item()
    net.train()
    assert net.loss(states, positives)[0].item() != net.loss(states, positives)[0].item()


def test_wrong_shapes_are_refused():
    tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    net = LightXmlNet(4, 3, tree, LightXmlParams(layers=2))
    with pytest.raises(ConfigError, match="read the states of 2 layers, got 1"):
        net.predict([torch.ones(1, 4)], 1)
    pytest.raises(ConfigError, LightXmlNet, 4, 7, tree).match("the tree has 3 labels")


@pytest.mark.parametrize("sigmoid", [False, True])
def test_labels_behind_a_bottleneck_begin_at_their_odds(sigmoid):
    rng = np.random.default_rng(0)
    tree = random_tree(rng, [4, 12])
    labels = sparse.csr_array((rng.random((200, 12)) < np.linspace(0.02, 0.5, 12)).astype(float))
    params = LightXmlParams(layers=1, bottleneck=5, groups_kept=2, bottleneck_sigmoid=sigmoid)
    net = LightXmlNet(6, 12, tree, params)
    net.table.weight.data.zero_()
    net.start_from(labels)
    text = torch.randn(3, 6)
    ids = torch.arange(12).repeat(3, 1)
    logits = net._label_logits(text, ids, torch.ones_like(ids, dtype=torch.bool))
    counts = np.diff(labels.tocsc().indptr)[tree.leaf_labels]
    scored = np.maximum(100, counts)  # two of four groups are kept
    share = (counts + 0.5) / (scored + 2)
    np.testing.assert_allclose(logits.detach()[1], np.log(share / (1 - share)), rtol=1e-4)


TEXTS, TRUTH = planted(80)


def model(negatives: str, **heads: Any) -> Any:
    settings = deepcopy(tiny_training())  # other tests share it
    settings["training"]["max_steps"] = 40
    settings["heads"] = {"one_head_up_to": 0, "negatives": negatives, "groups_kept": 2} | heads
    settings["tree"] = {"max_leaf_size": 3, "branching": 2}
    return create("lightxml", settings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = RunFolder(tmp_path_factory.mktemp("run") / "run")
    models = {kind: model(kind).fit(TEXTS, TRUTH, run=run) for kind in ("static", "static-two")}
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
        right = [best[0] in true for best, true in zip(names, TRUTH, strict=True)]
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
