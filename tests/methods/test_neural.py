"""What the neural methods share: held-out documents, the linear baseline, resuming, reranking."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import labelgrove
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError
from labelgrove.methods import create
from labelgrove.methods.cascadexml.method import CascadeHeads
from labelgrove.methods.lightxml.method import LightXmlHeads
from labelgrove.methods.neural import make_runner
from labelgrove.nn.batches import Batches
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.heads.rows import row_tables
from labelgrove.nn.network import MakeHeads
from support import small_models
from support.run_logs import computed, interrupted, resumed
from support.small_models import Messages, hidden_words, planted, same, stored, tiny_training

pytestmark = pytest.mark.slow
METHODS = ("lightxml", "cascadexml")
HEADS: dict[str, dict[str, Any]] = {
    "lightxml": {"dropout": 0.0},
    "cascadexml": {"dropout": 0.0, "mix_dropout": 0.0, "clusters": [2, 4], "kept": 2},
}


def new(method: str, **settings: Any) -> Any:
    return create(method, tiny_training() | {"heads": HEADS[method], **settings})


def brief(method: str, **settings: Any) -> Any:
    """A model for tests where what it learns plays no part."""
    return new(method, training=tiny_training()["training"] | {"max_steps": 2}, **settings)


def test_an_encoder_that_was_elsewhere_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    network = brief("lightxml").fit(*planted(20)).network_
    moves: list[torch.device] = []
    monkeypatch.setattr(network, "to", moves.append)
    make_runner(network, "fp32")
    assert moves == []
    network.encoder.to("meta")  # stands for a GPU; the network's own buffers stay
    make_runner(network, "fp32")
    assert moves == [torch.device("cpu")]


def test_lightxml_reads_the_last_layers() -> None:
    model = brief("lightxml", heads={"layers": 2}).fit(*planted(20))
    assert model.network_.layers == (-2, -1)  # of three


def test_a_coarse_level_of_cascadexml_reaches_no_layer_above_its_own() -> None:
    model = brief("cascadexml", encoder=tiny_training()["encoder"] | {"pooling": "first"})
    network = model.fit(*planted(60)).network_
    assert network.layers == (1, 2, 3, 3)  # 2 and 4 clusters, then labels: a sixth of 3 apart
    tokens = tokenize(planted(4)[0], network.encoder, 16)
    (batch,) = Batches(tokens, 4, pad_id=network.encoder.pad_id).epoch(0)
    network.heads.weights = [1.0, 0.0, 0.0]
    network.heads.loss(network.states(batch), RaggedLabels.from_rows([[0]] * 4))[0].backward()
    reached = [
        any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in layer.parameters())
        for layer in network.encoder.model.encoder.layer
    ]
    assert reached == [True, True, False]


def test_a_full_head_learns_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelgrove.methods.lightxml.method.process_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"heads\.full: a full head learns in one process"):
        brief("lightxml", heads={"full": True}).fit(*planted(20))


def test_lists_for_other_levels_are_refused_before_the_work() -> None:
    said: list[str] = []
    model = new("cascadexml", heads={"clusters": [2, 4], "kept": [2, 2, 2]})
    with pytest.raises(ConfigError, match="must have 2 values, got 3: 11 labels get 2 levels"):
        model.fit(*planted(60), callbacks=[lambda event: said.append(event.stage)])
    assert said == []


def messages(model: Any, documents: int) -> list[str]:
    said = Messages()
    model.fit(*planted(documents), callbacks=[said])
    return said


def test_cascadexml_says_what_few_labels_do_not_need() -> None:
    said = messages(brief("cascadexml", heads={"clusters": [16], "kept": 2}), 40)
    assert "heads.clusters, heads.kept: no effect; 11 labels get no clusters" in said
    assert not any("effect" in text for text in messages(brief("cascadexml"), 40))


def test_it_is_said_that_too_few_documents_are_held_out() -> None:
    said = messages(brief("lightxml", held_out=0.05), 40)
    assert any("5% of 40 documents are too few" in text for text in said)
    assert not any("too few" in t for t in messages(brief("lightxml", held_out=0.0), 40))


def test_more_layers_than_there_are_are_told_of() -> None:
    said = messages(brief("lightxml", heads={"layers": 9}), 40)
    assert "heads.layers: the encoder has 3 layers, and all of them are read" in said


@pytest.mark.parametrize(
    ("heads", "sentence"),
    [
        ({"groups_kept": 5, "score": "weighted"}, "heads.groups_kept, heads.score: no effect"),
        ({"one_head_up_to": 1, "groups_kept": 5}, ""),
        (
            {"full": True, "one_head_up_to": 1, "groups_kept": 5},
            r"without groups (heads.full=true)",
        ),
    ],
)
def test_lightxml_says_which_settings_its_form_does_not_read(
    heads: dict[str, Any], sentence: str
) -> None:
    found = [t for t in messages(brief("lightxml", heads=heads), 40) if "no effect" in t]
    assert len(found) == bool(sentence) and all(sentence in text for text in found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": "0.1"}, "held_out: must be a number"),
        (
            {"rerank": {"enabled": True}, "ranker": {"mined_nodes": 3}},
            r"ranker\.mined_nodes: has no effect",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_before_training(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        new("lightxml", **settings).fit(*planted(20))


def test_stages_are_used_again_where_nothing_they_depend_on_changed(tmp_path: Path) -> None:
    def stages(**settings: Any) -> set[str]:
        with RunFolder(tmp_path / "run") as run:
            brief("lightxml", **settings).fit(*planted(60), run=run)
        return set(computed(tmp_path / "run", last_run=True))

    assert "network" in stages(rerank={"enabled": False})
    assert stages() == {"linear", "tree", "rerank"}
    assert stages(rerank={"share": 0.5}) == set()
    assert stages(rerank={"shortlist": 5}) == {"rerank"}
    # With another seed, tokens and tf-idf are the same.
    assert stages(random_state=1, rerank={"enabled": False}) == {"network"}


ALL_METHODS = [*METHODS, "xtransformer", "xrtransformer"]


@pytest.mark.parametrize(
    "kind",
    ["lightxml", "cascadexml in three levels", "xrtransformer in three levels", "xtransformer"],
)
def test_every_network_learns_from_names(kind: str) -> None:
    texts, labels = planted(60)
    plain, named = (small_models.shortened(small_models.new(kind), 10) for _ in range(2))
    named.label_texts = "names"
    for model in (plain, named):
        model.fit(texts, labels)
    assert named.facts_.documents == plain.facts_.documents == 60
    one, other = (model.predict(texts[:20], k=3).scores for model in (plain, named))
    assert one.shape == other.shape and (one != other).any()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_fit_reports_itself_beside_the_linear_method(method: str, tmp_path: Path) -> None:
    texts, labels = planted(120)
    training = tiny_training()["training"] | {"max_steps": 2}
    settings = {"training": training, "held_out": 0.1}
    model = small_models.new(method, **settings).fit(texts, labels)
    assert set(model.report_) == {method, "linear", "shortlist_recall", "held_out"}
    loaded = stored(model, tmp_path / "model")
    assert (loaded.report_, loaded.history_) == (model.report_, model.history_)
    without = small_models.new(method, **settings, baseline=False).fit(texts, labels)
    assert without.report_["linear"] == {}


def test_where_cores_are_idle_the_linear_method_is_trained_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, labels = planted(120)
    before = new("cascadexml", held_out=0.1).fit(texts, labels)
    monkeypatch.setattr("labelgrove.methods.preparation.has_idle_cores", lambda: True)
    model = new("cascadexml", held_out=0.1).fit(texts, labels)
    assert model.report_ == before.report_
    assert same(model.predict(texts, k=5), before.predict(texts, k=5))
    assert model.timings_["linear-baseline"].runs == 1

    def interrupt(event: Any) -> None:
        if event.stage == "tokens":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new("cascadexml", held_out=0.1).fit(texts, labels, callbacks=[interrupt])
    assert not [t for t in threading.enumerate() if "run" in t.name]


@pytest.mark.parametrize("method", [*METHODS, "xtransformer"])
def test_an_interrupted_fit_goes_on_and_ends_with_the_same_bits(
    method: str, tmp_path: Path
) -> None:
    documents = planted(80)
    loop = {"max_steps": 20, "checkpoint_minutes": 0.0, "log_every": 1}
    make = partial(small_models.new, method, training=tiny_training()["training"] | loop)
    interrupted(make, documents, tmp_path / "run", lambda e: e.values.get("step", 0) >= 12)
    model, steps = resumed(make, documents, tmp_path / "run")
    assert steps[0][1] >= 12
    texts = documents[0]
    assert same(make().fit(*documents).predict(texts, k=3), model.predict(texts, k=3))


@pytest.mark.parametrize("method", METHODS)
def test_reranking_reads_words_that_the_encoder_does_not_see(method: str, tmp_path: Path) -> None:
    """The encoder reads four tokens; the label's word comes after them."""
    texts, labels = hidden_words()
    encoder = tiny_training()["encoder"] | {"max_tokens": 4}
    heads = {"lightxml": HEADS["lightxml"], "cascadexml": {"dropout": 0.0, "mix_dropout": 0.0}}
    settings = {"encoder": encoder, "heads": heads[method]}
    alone = {"rerank": {"enabled": False}}
    blind = create(method, tiny_training() | settings | alone).fit(texts[:120], labels[:120])
    rerank = {"enabled": True, "shortlist": 4}
    model = create(method, tiny_training() | settings | {"rerank": rerank})
    model.fit(texts[:120], labels[:120])
    assert blind.score(texts[120:], labels[120:]) < 0.6
    assert model.score(texts[120:], labels[120:]) > 0.9
    again = stored(model, tmp_path / "model").predict(texts[120:], k=2)
    assert np.array_equal(again.columns, model.predict(texts[120:], k=2).columns)


@pytest.mark.parametrize("method", METHODS)
def test_a_large_label_table_is_trained_by_rows_on_its_own_device(
    method: str, tmp_path: Path
) -> None:
    heads = {"lightxml": {"one_head_up_to": 1, "bottleneck": 6}, "cascadexml": HEADS["cascadexml"]}
    tree = {"max_leaf_size": 3, "branching": 2}
    model = brief(method, heads=heads[method] | {"row_table_from": 3}, tree=tree).fit(*planted(40))
    assert [len(table) for table in row_tables(model.network_).values()] == [11]
    make_heads: MakeHeads = CascadeHeads(model.tree_, model.heads)
    if method == "lightxml":
        make_heads = LightXmlHeads(11, model.tree_, model.heads)
    for device, wanted in ((torch.device("meta"), "meta"), (None, "cpu")):  # loaded: anywhere
        made, _ = make_heads(model.network_.encoder, device)
        assert [t.weight.device.type for t in row_tables(made).values()] == [wanted]
    model.save(tmp_path / "model")
    texts = planted(40)[0]
    assert same(labelgrove.load(tmp_path / "model").predict(texts), model.predict(texts))
