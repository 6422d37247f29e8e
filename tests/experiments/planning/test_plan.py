"""Plans: sizes are right, times follow from samples and work, and every step of auto has a name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Auto, Corpus, Linear
from labelgrove.data.features import Features
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import ConfigError
from labelgrove.experiments.planning import timing
from labelgrove.experiments.planning.plan import Estimate, plan_training
from labelgrove.experiments.planning.timing import linear_work, sampled, two_samples
from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.methods import create
from labelgrove.methods.cost_estimate import expected_widths
from labelgrove.ranking.solver import RankerParams

pytestmark = pytest.mark.slow
RATES = {"tfidf": 1e-6, "tree": 2e-6, "ranker": 3e-6}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return shop_corpus(6000, labels=800, seed=1)


@pytest.fixture
def known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates in place of measured ones: 33 terms per document, 10 s for a matcher."""
    monkeypatch.setattr(timing, "linear_rates", lambda *_: (RATES, 33.0))
    monkeypatch.setattr(timing, "two_samples", lambda *_: 10.0)


def work_of(corpus: Corpus) -> dict[str, float]:
    shape = expected_widths(TreeParams(), len(corpus.index))
    return linear_work(corpus, shape, RankerParams(), terms=33.0)


def middle(span: Estimate) -> float:
    return float((span.low * span.high) ** 0.5)


def test_a_plan_has_the_sizes_of_the_corpus(corpus: Corpus) -> None:
    plan = plan_training(Linear(), corpus, calibrate=False)
    counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
    assert (plan.documents, plan.labels) == (6000, len(corpus.index))
    assert plan.rare_labels == sum(counts < 5)
    assert plan.unused_labels == sum(counts == 0)
    assert plan.labels_per_document == pytest.approx(corpus.labels.nnz / 6000, abs=1e-4)
    assert plan.seconds is None
    assert plan.memory_bytes == Linear().estimate_memory(corpus)


@pytest.mark.usefixtures("known_rates")
@pytest.mark.parametrize("trees", [1, 3])
def test_times_are_rates_times_work(corpus: Corpus, trees: int) -> None:
    plan = plan_training(Linear(n_trees=trees), corpus)
    suffixes = ["", "-1", "-2"][:trees]
    names = ["tfidf", *(f"{stage}{s}" for s in suffixes for stage in ("tree", "ranker"))]
    assert list(plan.stages) == names
    for name, span in plan.stages.items():
        stage = name.partition("-")[0]
        assert middle(span) == pytest.approx(RATES[stage] * work_of(corpus)[stage])
        assert span.high / span.low == pytest.approx(timing.MARGIN**2)


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


def test_more_documents_and_mined_nodes_are_more_work(corpus: Corpus) -> None:
    half = corpus.take(np.arange(3000))
    shape = expected_widths(TreeParams(), len(corpus.index))
    whole, part = (linear_work(c, shape, RankerParams(), terms=30.0) for c in (corpus, half))
    assert part["ranker"] == pytest.approx(whole["ranker"] / 2**1.1, rel=0.05)
    assert part["tfidf"] == whole["tfidf"] / 2
    alone = linear_work(corpus, shape, RankerParams(negatives="tfn"), terms=30.0)
    assert alone["ranker"] < whole["ranker"]
    labels, size = corpus.labels.nnz / len(corpus), 30.0 + corpus.width
    trained = 2 + min(labels, 2) * 4 + min(labels, 8) * 3  # nodes that a document is learnt for
    levels = linear_work(corpus, (2, 8, 24), RankerParams(negatives="tfn"), terms=30.0)
    assert levels["ranker"] == pytest.approx(len(corpus) ** timing.RANKER_GROWTH * trained * size)


def test_samples_keep_only_labels_that_occur(corpus: Corpus) -> None:
    sample = sampled(corpus, 50, seed=3, vectors=8)
    assert (len(sample), sample.width) == (50, 8)
    assert np.bincount(sample.labels.indices, minlength=len(sample.index)).min() >= 1
    assert list(sampled(corpus, 50, seed=3).texts or []) == list(sample.texts or [])


def test_two_samples_are_a_line_into_the_distance(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, model = [0.0], create("neighbours")
    monkeypatch.setattr(
        "labelgrove.experiments.planning.timing.time.perf_counter", lambda: clock[0]
    )

    def fit(self: Any, documents: Corpus) -> None:
        clock[0] += 1.0 + 0.01 * len(documents)

    monkeypatch.setattr(type(model), "fit", fit)
    assert two_samples(model, corpus) == pytest.approx(1.0 + 0.01 * 6000)


def test_tiny_and_odd_corpora_have_plans() -> None:
    one = Corpus.from_lists(["red"], [["a"]])
    assert plan_training(Linear(), one).seconds is not None
    assert plan_training(create("matcher"), one).seconds is not None
    features = Corpus(
        None, one.labels, one.index, features=Features(sparse=sparse.eye_array(1, format="csr"))
    )
    plan = plan_training(Linear(), features)
    assert plan.seconds is not None
    assert plan.terms_per_document == 1


@pytest.mark.usefixtures("known_rates")
def test_members_of_an_ensemble_share_what_is_the_same(corpus: Corpus) -> None:
    members = [{"method": "linear"}, {"method": "linear", "n_trees": 2}]
    plan = plan_training(create("ensemble", {"members": members, "rule": "learnt"}), corpus)
    assert list(plan.stages) == ["member 1 (linear)", "member 2 (linear)", "merge"]
    first, second, merge = map(middle, plan.stages.values())
    seconds = {name: 0.95 * RATES[name] * units for name, units in work_of(corpus).items()}
    assert first == pytest.approx(sum(seconds.values()))
    assert second == pytest.approx(seconds["tree"] + seconds["ranker"])  # one tree is there
    assert merge == pytest.approx(timing.MERGE * 300 * 2)


@pytest.mark.usefixtures("known_rates")
def test_every_step_of_auto_has_a_name(corpus: Corpus) -> None:
    plan = plan_training(Auto(), corpus)
    assert list(plan.stages) == [
        "auto 1: linear",
        "auto 2: 3 trees",
        "auto 3: matcher",
        "auto 4: join matcher",
        "auto 5: linear again, on all documents",
    ]
    spans = list(plan.stages.values())
    one = sum(RATES[name] * units for name, units in work_of(corpus).items())
    tfidf = RATES["tfidf"] * work_of(corpus)["tfidf"]
    assert middle(spans[0]) == pytest.approx(0.95 * one)
    assert middle(spans[1]) == pytest.approx(0.95 * 2 * (one - tfidf))  # the first tree is there
    assert spans[4].low == pytest.approx(one / timing.MARGIN)  # one tree may be kept, or three
    assert spans[4].high == pytest.approx((3 * one - 2 * tfidf) * timing.MARGIN)
    assert middle(spans[2]) == pytest.approx(9.5)


def test_no_time_is_better_than_a_wrong_one(corpus: Corpus) -> None:
    few = corpus.take(np.arange(60))
    assert list(plan_training(Auto(), few).stages) == ["auto 1: linear"]  # nothing is compared
    plan = plan_training(Auto(budget="1m"), corpus)
    assert plan.seconds is None
    assert plan.notes == ("no time is estimated: auto adds models while the budget lasts",)
    tree = build_tree(np.eye(len(corpus.index), 4, dtype=np.float32), TreeParams())
    plan = plan_training(Auto(), corpus, label_tree=tree)
    assert plan.seconds is None
    assert plan.notes == ("no time is estimated: auto leaves out steps if a label tree is given",)


def test_one_head_needs_no_tree_and_what_training_refuses_has_no_plan() -> None:
    pytest.importorskip("torch")
    from support.small_models import planted, tiny_training

    corpus = Corpus.from_lists(*planted(40))
    for enabled in (False, True):
        model = create("lightxml", tiny_training() | {"rerank": {"enabled": enabled}})
        assert bool(plan_training(model, corpus, calibrate=False).tree) == enabled
    model.encoder.max_tokens = 10_000
    pytest.raises(ConfigError, plan_training, model, corpus).match(r"encoder\.max_tokens")
