"""Plans of methods with an encoder: real updates are timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


from labelgrove import Corpus
from labelgrove.errors import ConfigError, LabelgroveError
from labelgrove.experiments.planning import timing
from labelgrove.experiments.planning.plan import plan_training
from labelgrove.methods import create
from support.tiny_encoders import make_encoder

pytestmark = pytest.mark.slow
WORDS = ["red", "blue", "shoe", "hat"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny", "bert", words=WORDS)


def corpus(n: int) -> Corpus:
    texts = [" ".join(WORDS[(i + j) % 4] for j in range(1 + i % 6)) for i in range(n)]
    return Corpus.from_lists(texts, [[WORDS[i % 4], WORDS[i % 3]] for i in range(n)])


def settings(encoder: Path, **training: Any) -> dict[str, Any]:
    table = {"batch_size": 16, "epochs": 2} | training
    return {
        "encoder": {"encoder": str(encoder), "max_tokens": 6},
        "training": table,
        "device": "cpu",
        "n_jobs": 1,
    }


@pytest.mark.parametrize("method", ["lightxml", "cascadexml", "xtransformer", "xrtransformer"])
def test_neural_plans_tell_tokens_and_time(encoder: Path, method: str) -> None:
    plan = plan_training(create(method, settings(encoder)), corpus(400))
    assert plan.notes == ()
    assert plan.device == "cpu"
    assert plan.tokens_per_document is not None
    assert 3 < plan.tokens_per_document <= 6
    assert plan.cut_documents is not None
    assert 0.1 < plan.cut_documents < 0.9
    assert plan.stages["network"].high > 0 and "compiling" not in plan.stages


def costs(**changes: Any) -> timing.EncoderCosts:
    known = {"text": 1e-3, "token": 2e-3, "update": 0.5, "tokens": 5.0, "cut": 0.0}
    return timing.EncoderCosts(**{"device": "cpu", **known, **changes})


def test_times_are_tokens_by_costs(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "encoder_costs", lambda *_, **__: costs())
    model = create("lightxml", settings(encoder, epochs=2))
    plan = plan_training(model, corpus(1000))
    work = model.cost_estimate(1000, 4).encoder
    assert work.learns and work.reads
    passes, updates = 1000 * 5.0 * 2e-3, 63
    seconds = work.learns * (passes + updates * 0.5) + work.reads * passes / 3 + 0.5
    assert plan.stages["network"].low == pytest.approx(seconds / timing.MARGIN)
    assert plan.stages["network"].high == pytest.approx(seconds * timing.MARGIN)
    assert plan.stages["tokens"].high == pytest.approx(1.0 * timing.MARGIN)


def test_auto_on_a_gpu_names_the_stages_of_its_network(
    encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "encoder_costs", lambda *_, **__: costs(device="cuda"))
    monkeypatch.setattr("labelgrove.methods.auto.method._has_gpu", lambda device: True)
    given = {"encoder": {"encoder": str(encoder), "max_tokens": 6}, "device": "cpu"}
    plan = plan_training(create("auto", given), corpus(1000))
    assert list(plan.stages) == [
        "auto 1: linear",
        *(f"auto 2: cascadexml: {stage}" for stage in ("tfidf", "tokens", "network", "tree")),
        "auto 2: cascadexml: ranker",
        "auto 3: join cascadexml",
        "auto 4: join matcher",  # which is trained while the network is
        "auto 5: linear again, on all documents",
    ]


COSTS: list[tuple[str, dict[str, Any]]] = [
    *(("lightxml", {"rerank": {"enabled": enabled}}) for enabled in (True, False)),
    *(("lightxml", {"heads": {"negatives": kind}}) for kind in ("static", "static-two")),
    ("lightxml", {"heads": {"negatives": "static-two", "one_head_up_to": 0}}),
    ("cascadexml", {"training": {"max_steps": 10}, "rerank": {"enabled": False}}),
    # XR-Transformer's own list of updates counts, not the epochs beside it.
    ("xrtransformer", {"heads": {"steps": [1000, 1000, 400]}}),
    *(("linear-vectors", {"vectors": {"kind": kind}}) for kind in ("pretrained", "fine-tuned")),
    *((method, {}) for method in ("xtransformer", "dual")),
]


def test_methods_cost_and_search_what_they_did(encoder: Path, pinned: Any) -> None:
    """How often an encoder learns from and reads all documents, and what is worth tuning."""
    found = []
    for method, own in COSTS:
        for held_out in (0.0, 0.2):
            usual = settings(encoder, epochs=5, evaluations_per_epoch=1.0)
            model = create(method, usual | own | {"held_out": held_out})
            work = model.cost_estimate(14_146, 30_938).encoder
            found.append([method, own, held_out, work.learns, work.reads, [*model.search_space()]])
    pinned("costs", found)


def test_trees_are_told_as_they_will_be(encoder: Path) -> None:
    clusters = create("xtransformer", settings(encoder) | {"indexing": {"clusters": 2}})
    assert plan_training(clusters, corpus(20), calibrate=False).tree == (2, 4)
    clusters.set_params(indexing__clusters=8)
    with pytest.raises(ConfigError, match="8 clusters, but only 4 labels"):
        plan_training(clusters, corpus(20))
    several = create("parabel-pretrained", {"encoder": {"encoder": str(encoder)}})
    assert plan_training(several, corpus(20), calibrate=False).trees == 3


def test_an_encoder_that_is_missing_leaves_a_plan_without_times(tmp_path: Path) -> None:
    model = create("lightxml", settings(tmp_path / "nowhere"))
    with pytest.raises(LabelgroveError):
        plan_training(model, corpus(20))  # its memory cannot be told either
