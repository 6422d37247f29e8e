"""Plans: sizes are right, and times follow from rates and work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, Linear
from labelgrove.data.features import Features
from labelgrove.datasets import shop_corpus
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.methods import create
from labelgrove.model.outline import expected_widths
from labelgrove.planning import plan as planning
from labelgrove.planning.linear import Estimate, Rates, Work, linear_work, sampled
from labelgrove.planning.plan import Plan, plan_training
from labelgrove.ranking.solver import RankerParams


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return shop_corpus(6000, labels=800, seed=1)


def test_a_plan_has_the_sizes_of_the_corpus(corpus: Corpus) -> None:
    plan = plan_training(Linear(), corpus, calibrate=False)
    counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
    assert (plan.documents, plan.labels) == (6000, len(corpus.index))
    assert plan.rare_labels == sum(counts < 5)
    assert plan.unused_labels == sum(counts == 0)
    assert plan.labels_per_document == pytest.approx(corpus.labels.nnz / 6000, abs=1e-4)
    assert plan.seconds is None
    assert plan.memory_bytes == Linear().estimate_memory(corpus)


@pytest.mark.parametrize("method", ["linear", "parabel"])
def test_times_are_rates_times_work(
    corpus: Corpus, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, cpu = Work(tfidf=1e-6, tree=2e-6, ranker=3e-6), Work(tfidf=2e-6, tree=3e-6, ranker=5e-6)
    rates = Rates(wall, cpu, terms_per_document=33.0, documents=600)
    monkeypatch.setattr(planning, "linear_rates", lambda *_, **__: rates)
    model = create(method)
    plan = plan_training(model, corpus)
    trees = 3 if method == "parabel" else 1
    shape = expected_widths(model.tree, len(corpus.index))
    work = linear_work(corpus, shape, model.ranker, terms=33.0, trees=trees)
    # Ten times the sample's documents make a unit of the ranker's work dearer by 10^0.1.
    seconds = {"tfidf": work.tfidf, "tree": 2 * work.tree, "ranker": 3 * work.ranker * 10**0.1}
    margins = {"tfidf": 1.6, "tree": 2.0, "ranker": 1.7}
    assert set(plan.stages) == set(seconds)
    for name, middle in seconds.items():
        assert plan.stages[name].low == pytest.approx(1e-6 * middle / margins[name])
        assert plan.stages[name].high == pytest.approx(1e-6 * middle * margins[name])
    dearest = 2 * work.tfidf * 1.6 + 3 * work.tree * 2.0 + 5 * work.ranker * 10**0.1 * 1.7
    assert plan.cpu_seconds is not None
    assert plan.cpu_seconds.high == pytest.approx(1e-6 * dearest)


def test_rates_are_measured_on_a_sample(corpus: Corpus) -> None:
    plan = plan_training(create("linear", {"n_jobs": 1}), corpus)
    assert all(0 < span.low < span.high for span in plan.stages.values())
    assert plan.calibration_seconds > 0
    assert plan.terms_per_document == pytest.approx(33, abs=5)


def test_the_memory_estimate_is_not_below_what_is_needed(corpus: Corpus) -> None:
    from labelgrove.core.memory import peak_rss

    plan = plan_training(Linear(), corpus, calibrate=False)
    before = peak_rss() or 0
    model = Linear().fit(corpus)
    weights = sum(level.values.nbytes for level in model.rankers()[0].levels)
    assert plan.memory_bytes > weights
    assert (peak_rss() or 0) - before < plan.memory_bytes


@pytest.mark.parametrize("labels", [1, 2, 7, 100, 101, 1000, 5000])
@pytest.mark.parametrize("branching", [2, 16])
def test_expected_trees_are_those_that_grow(labels: int, branching: int) -> None:
    params = TreeParams(branching=branching, max_leaf_size=20, kmeans_iterations=1)
    features = np.random.default_rng(0).random((labels, 3), np.float32)
    assert expected_widths(params, labels) == build_tree(features, params).widths


def test_more_documents_labels_and_trees_are_more_work(corpus: Corpus) -> None:
    half = corpus.take(np.arange(3000))
    shape = expected_widths(TreeParams(), len(corpus.index))
    options: Any = {"terms": 30.0}
    whole, part = (linear_work(c, shape, RankerParams(), **options) for c in (corpus, half))
    assert part.ranker == pytest.approx(whole.ranker / 2, rel=0.05)
    assert part.tfidf < whole.tfidf
    thrice = linear_work(corpus, shape, RankerParams(), trees=3, **options)
    assert thrice.ranker == pytest.approx(3 * whole.ranker)
    alone = linear_work(corpus, shape, RankerParams(negatives="tfn"), **options)
    assert alone.ranker < whole.ranker


def test_samples_keep_only_labels_that_occur(corpus: Corpus) -> None:
    sample = sampled(corpus, 50, seed=3)
    assert len(sample) == 50
    assert np.bincount(sample.labels.indices, minlength=len(sample.index)).min() >= 1
    assert list(sampled(corpus, 50, seed=3).texts or []) == list(sample.texts or [])


def test_tiny_and_odd_corpora_have_plans() -> None:
    one = Corpus.from_lists(["red"], [["a"]])
    assert plan_training(Linear(), one).seconds is not None
    features = Corpus(
        None, one.labels, one.index, features=Features(sparse=sparse.eye_array(1, format="csr"))
    )
    plan = plan_training(Linear(), features)
    assert plan.seconds is not None
    assert plan.terms_per_document == 1


def test_ensembles_sum_their_members(corpus: Corpus) -> None:
    members = [{"method": "linear"}, {"method": "parabel", "n_trees": 1}]
    plan = plan_training(create("ensemble", {"members": members}), corpus)
    assert list(plan.stages) == ["member 1 (linear)", "member 2 (linear)"]
    assert plan.seconds is not None
    assert plan.seconds.high > 0


def test_lines_and_json() -> None:
    plan = Plan(
        "linear", 10, 4, 1.5, 2, 1, tree=(2, 4), stages={"ranker": Estimate(70, 200)}, notes=("x",)
    )
    text = "\n".join(plan.lines())
    assert "2 labels with fewer than 5 documents (50%), 1 without any" in text
    assert "70 s to 3 min (ranker 70 s to 3 min)" in text
    assert plan.to_json()["seconds"] == [70, 200]
    assert str(Estimate(0.1, 0.9)) == "under 1 s"


def test_one_head_needs_no_tree_and_what_training_refuses_has_no_plan() -> None:
    pytest.importorskip("torch")
    from test_contract import planted, tiny_training

    corpus = Corpus.from_lists(*planted(40))
    for enabled in (False, True):
        model = create("lightxml", tiny_training() | {"rerank": {"enabled": enabled}})
        assert bool(plan_training(model, corpus, calibrate=False).tree) == enabled
    model.encoder.max_tokens = 10_000
    with pytest.raises(ConfigError, match=r"encoder\.max_tokens"):
        plan_training(model, corpus)


def test_estimates_are_ranges_that_add_up() -> None:
    assert Estimate.around(10.0, 2.0) == Estimate(5.0, 20.0)
    assert Estimate(1.0, 2.0) + Estimate(3.0, 5.0) == Estimate(4.0, 7.0)
