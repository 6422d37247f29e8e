"""XR-Transformer as a whole: what its encoder learns, its switches, what it keeps and reuses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")


from labelgrove.disk.bundle import read_bundle
from labelgrove.errors import ConfigError
from labelgrove.methods import create
from support.run_logs import computed, fitted_in, interrupted, resumed
from support.small_models import FEW_STEPS, planted, same, stored, tiny_training

pytestmark = pytest.mark.slow
DOCUMENTS = TEXTS, LABELS = planted(80)
LEAVES = {"branching": 2, "max_leaf_size": 3, "top_width": None}
# tf-idf of one word that is everywhere: all that is learnt comes from the encoder.
BLIND = {"tfidf": {"max_features": 1}}


def new(heads: dict[str, Any] | None = None, **settings: Any) -> Any:
    published = {"bootstrap_first": False, "standardise": False}
    levels = {"dropout": 0.0, "kept": 2} | published | (heads or {})
    own = {"heads": levels, "tree": LEAVES, "refined": LEAVES, "training": FEW_STEPS}
    return create("xrtransformer", tiny_training() | own | settings)


def pairs(n: int) -> tuple[list[str], list[list[str]]]:
    """One label for each colour of each thing: thirty, of which every word names several."""
    texts, labels = planted(n)
    return texts, [[" ".join(row)] for row in labels]


def fitted_blindly(heads: dict[str, Any], **training: Any) -> Any:
    leaves = {"branching": 4, "max_leaf_size": 4, "top_width": None}
    loop = tiny_training()["training"] | training
    settings = {"training": loop, "tree": leaves, "refined": leaves, "ranker": {"C": 3.0}}
    return new({"kept": 4} | heads, **BLIND, **settings).fit(*pairs(200))


@pytest.mark.parametrize(
    "heads",
    [
        pytest.param({}, id="code"),
        pytest.param({"relevance": "l1", "alpha": 0.5, "reduction": "sum", "l2": 0.1}, id="paper"),
        pytest.param({"bootstrap": "cost-linear", "alpha": 0.5}, id="the paper's bootstrap"),
        pytest.param({"bootstrap": "linear", "bootstrap_first": True}, id="first level, too"),
        pytest.param({"row_table_from": 3, "negatives": "tfn"}, id="row by row"),
        pytest.param({"negatives": "man", "loss": "bce"}, id="bce"),
        # A head that begins without knowing anything needs more updates.
        pytest.param({"bootstrap": "none", "steps": [60, 100, 300]}, id="no bootstrap"),
    ],
)
def test_the_encoder_learns_a_planted_problem_without_the_help_of_tfidf(
    heads: dict[str, Any],
) -> None:
    model = fitted_blindly(heads, max_steps=sum(heads.get("steps", [180])))
    assert model.rankers()[0].features == 1
    assert model.tree_.widths == (2, 8, 30)
    assert model.score(*pairs(200)) > 0.98


def test_an_untrained_encoder_does_not_solve_it() -> None:
    """The test above tests something: the ranker alone cannot do it."""
    model = fitted_blindly({}, max_steps=3, lr=1e-9, head_lr=1e-9)
    assert model.score(*pairs(200)) < 0.9


def test_a_bootstrapped_head_begins_where_a_linear_model_ends() -> None:
    losses = {}
    for bootstrap in ("none", "linear", "weighted-linear"):
        model = fitted_blindly({"bootstrap": bootstrap, "steps": [40, 1, 1]}, log_every=1)
        second = [record for record in model.history_["history"] if record["level"] == 2]
        losses[bootstrap] = second[0]["loss"]
    assert losses["linear"] < 0.3 * losses["none"]
    assert losses["weighted-linear"] < 0.3 * losses["none"]


def test_levels_that_are_too_wide_are_not_fine_tuned() -> None:
    model = new({"max_clusters": 10, "steps": [3, 4]}).fit(*DOCUMENTS)
    assert model.tree_.widths == (2, 4, 11)
    assert [level["steps"] for level in model.history_["levels"]] == [3, 4]
    assert model.history_["steps"] == 7
    with pytest.raises(ConfigError, match="first level has 2 nodes already"):
        new({"max_clusters": 1}).fit(*DOCUMENTS)
    with pytest.raises(ConfigError, match=r"heads\.kept: must have 2 values, one per level, got 1"):
        new({"kept": [3]}).fit(*DOCUMENTS)


def test_the_ranker_descends_a_tree_of_its_own_unless_told_otherwise() -> None:
    own = new(refined={"branching": 2, "max_leaf_size": 6}).fit(*DOCUMENTS)
    assert own.tree_.widths == (2, 4, 11)
    assert own.rankers()[0].tree.widths == (2, 11)
    kept = new(refine=False).fit(*DOCUMENTS)
    assert kept.rankers()[0].tree == kept.tree_


def test_a_refined_tree_may_be_grown_from_label_texts() -> None:
    model = new(refined=LEAVES | {"label_features": "pifa+text"}).fit(*DOCUMENTS)
    assert model.score(TEXTS, LABELS) > 0.9


def test_a_run_with_another_ranker_trains_only_the_ranker(tmp_path: Path) -> None:
    training = {"training": FEW_STEPS | {"max_steps": 8}, "held_out": 0.1}
    folder = tmp_path / "run"
    first = fitted_in(folder, new(**training), DOCUMENTS)
    every = {"tfidf", "linear", "linear-baseline", "tokens", "held-out-tokens", "tree"}
    every |= {f"{stage}-{n}" for stage in ("network", "vectors") for n in (1, 2, 3)}
    every |= {"matcher-1", "matcher-2", "bootstrap-2", "bootstrap-3", "refined-tree", "ranker"}
    assert len(computed(folder, last_run=True)) == len(every)
    assert set(computed(folder, last_run=True)) == every
    again = fitted_in(folder, new(**training), DOCUMENTS)
    assert computed(folder, last_run=True) == []
    assert same(first.predict(TEXTS, k=4), again.predict(TEXTS, k=4))
    fitted_in(folder, new(**training, ranker={"C": 3.0}), DOCUMENTS)
    assert computed(folder, last_run=True) == ["ranker"]
    fitted_in(folder, new(**training, refined=LEAVES | {"kmeans_iterations": 2}), DOCUMENTS)
    assert computed(folder, last_run=True) == ["refined-tree", "ranker"]
    fitted_in(folder, new({"kept": [2, 3]}, **training), DOCUMENTS)
    below = ["matcher-2", "bootstrap-3", "network-3", "vectors-3", "refined-tree", "ranker"]
    assert computed(folder, last_run=True) == below
    for heads in ({"bootstrap": "none"}, {"bootstrap": "none", "bootstrap_C": 2.0}):
        fitted_in(folder, new(heads, **training), DOCUMENTS)
    assert computed(folder, last_run=True) == []  # C is not asked for


@pytest.mark.parametrize("level", [1, 2, 3])
def test_an_interrupted_fit_goes_on_and_ends_with_the_same_bits(level: int, tmp_path: Path) -> None:
    documents, stage, folder = planted(80), f"training level {level}", tmp_path / "run"
    training = FEW_STEPS | {"checkpoint_minutes": 0.0, "log_every": 1}
    make = partial(new, training=training, held_out=0.1)
    interrupted(
        make, documents, folder, lambda e: e.stage == stage and e.values.get("step", 0) >= 4
    )
    model, steps = resumed(make, documents, folder)
    assert steps[0] == (stage, 4)
    again = computed(folder, last_run=True)
    assert f"network-{level}" in again
    assert not {f"network-{level - 1}", f"bootstrap-{level}"} & set(again)
    whole = make().fit(*documents)
    assert same(whole.predict(documents[0], k=3), model.predict(documents[0], k=3))
    assert whole.report_ == model.report_


def test_text_vectors_may_be_standardised(tmp_path: Path) -> None:
    model = fitted_in(
        tmp_path / "run", new({"standardise": True, "bootstrap_first": True}), DOCUMENTS
    )
    assert "standard" in computed(tmp_path / "run", last_run=True)
    first = next((tmp_path / "run" / "stages" / "vectors-0").iterdir())
    vectors = read_bundle(first, kind="stage").parts["result"].arrays["train"]
    assert np.allclose(vectors.mean(0), 0, atol=1e-3)
    assert vectors.std(0).max() < 1.1
    loaded = stored(model, tmp_path / "model")
    assert same(loaded.predict(TEXTS, k=3), model.predict(TEXTS, k=3))
    plain = new({"bootstrap_first": True}).fit(*DOCUMENTS)
    assert plain.standard_ is None
    assert not same(plain.predict(TEXTS, k=3), model.predict(TEXTS, k=3))


def test_the_ranker_may_do_without_tfidf(tmp_path: Path) -> None:
    both = fitted_in(tmp_path / "run", new(held_out=0.1), DOCUMENTS)
    assert both.report_["xrtransformer"]["P@1"] > 0.8
    assert len(both.report_["shortlist_recall"]) == 2
    assert {r["level"] for r in both.history_["history"] if "score" in r} == {1, 2, 3}
    model = fitted_in(tmp_path / "run", new(held_out=0.1, ranker_input="vectors"), DOCUMENTS)
    assert computed(tmp_path / "run", last_run=True) == ["refined-tree", "ranker"]
    assert (model.rankers()[0].features, model.rankers()[0].width) == (0, both.rankers()[0].width)
    assert model.predict(TEXTS[:3], k=2).counts.tolist() == [2, 2, 2]
    with pytest.raises(ConfigError, match="ranker_input: must be one of 'both', 'vectors'"):
        new(ranker_input="terms").fit(*DOCUMENTS)


def test_scores_are_margins_unless_the_search_multiplies() -> None:
    assert new().fit(*DOCUMENTS).predict(TEXTS, k=3).score_kind == "margin"
    model = new(search={"post_processor": "l4-hinge", "last_level": "same"}).fit(*DOCUMENTS)
    found = model.predict(TEXTS, k=3)
    assert found.score_kind == "product"
    assert (found.scores <= 1).all()
