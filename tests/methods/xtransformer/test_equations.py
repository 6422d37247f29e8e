"""X-Transformer's clusters, rankers and scores against their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit

from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import pifa
from labelgrove.methods.xtransformer import matching, ranking
from labelgrove.ranking.solver import RankerParams
from reference import xtransformer as reference
from support.nn_problems import random_tree

pytestmark = pytest.mark.slow
DOCUMENTS, LABELS, CLUSTERS, TERMS, WIDTH, KEPT = 60, 14, 4, 12, 5, 2


def problem(seed: int) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Terms, labels, a tree, each label's cluster, the matcher's margins, text vectors."""
    rng = np.random.default_rng(seed)
    terms = rng.random((DOCUMENTS, TERMS)) * (rng.random((DOCUMENTS, TERMS)) < 0.4)
    labels = (rng.random((DOCUMENTS, LABELS)) < 0.15).astype(float)
    labels[:, 0] = 0  # a label without documents
    tree = random_tree(rng, [CLUSTERS, LABELS])
    cluster_of = tree.parents[1][tree.leaf_positions]
    margins = rng.normal(size=(DOCUMENTS, CLUSTERS)).astype(np.float32)
    vectors = rng.normal(size=(DOCUMENTS, WIDTH)).astype(np.float32)
    return terms, labels, tree, cluster_of, margins, vectors


def best_of(margins: Any, vectors: Any) -> matching.Matched:
    """What a matcher with these margins would report."""
    order = np.argsort(-margins, axis=1, kind="stable").astype(np.int32)
    return matching.Matched(order, np.take_along_axis(margins, order, 1), vectors)


EXACT = {"eps": 1e-6, "max_iterations": 5000, "threshold": 0.0, "storage": "float32"}


@pytest.mark.parametrize("labels", [1, 2, 3, 99, 100, 101, 3956, 13330, 30938, 501070, 2812281])
def test_the_number_of_clusters_is_that_of_the_public_code(labels: int) -> None:
    wanted = reference.cluster_count(labels)
    assert matching.cluster_count(labels) == min(wanted, 2 ** int(np.log2(labels)))


@pytest.mark.parametrize("labels", [1, 2, 5, 11, 64])
@pytest.mark.parametrize("clusters", [1, 2, 4])
def test_clusters_are_as_many_as_asked_for_and_nearly_equal(labels: int, clusters: int) -> None:
    params = matching.IndexingParams(clusters=clusters)
    vectors = np.random.default_rng(0).normal(size=(labels, 3))
    if clusters > labels:
        pytest.raises(ConfigError, matching.cluster_tree, vectors, params).match("only")
        return
    tree = matching.cluster_tree(vectors, params)
    assert tree.widths == (clusters, labels)
    assert np.ptp(np.diff(tree.children(1))) <= 1


def test_clusters_are_a_power_of_two() -> None:
    pytest.raises(ConfigError, matching.cluster_count, 100, 6).match("power of two")


@pytest.mark.parametrize("kind", ["weighted", "plain"])
def test_label_vectors_are_those_of_the_equations(kind: str) -> None:
    x, y = problem(0)[:2]
    found = pifa(x, y, row_weights=kind == "weighted").dense
    assert np.allclose(found, reference.label_vectors(x, y, kind), atol=1e-5)


def test_labels_are_clustered_by_the_chosen_vectors() -> None:
    x, y = problem(3)[:2]
    trees = {}
    for kind in ("weighted", "plain"):
        params = matching.IndexingParams(clusters=CLUSTERS, pifa=kind)
        trees[kind] = matching.cluster_labels(x, sparse.csr_array(y), params, 0)
        vectors = reference.label_vectors(x, y, kind).astype(np.float32)
        assert trees[kind] == matching.cluster_tree(vectors, params)
    assert trees["weighted"] != trees["plain"]


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
@pytest.mark.parametrize("features", ["tfidf", "neural", "both"])
@pytest.mark.parametrize("scale", ["joint", "blocks"])
def test_rankers_are_those_of_the_equations(negatives: Any, features: Any, scale: Any) -> None:
    terms, labels, tree, cluster_of, margins, vectors = problem(1)
    params = ranking.RankingParams(features=features, scale=scale, clusters_kept=KEPT)
    rows = ranking.ranker_features(sparse.csr_array(terms), vectors, params)
    literal = reference.ranker_features(terms, vectors, which=features, scale=scale)
    assert np.allclose(rows.to_csr().toarray(), literal, atol=1e-6)
    settings = RankerParams(**EXACT, negatives=negatives)
    ranker = ranking.train_cluster_ranker(
        rows, sparse.csr_array(labels), tree, best_of(margins, vectors), params, settings
    )
    seen = reference.seen_clusters(labels, cluster_of, margins, negatives=negatives, b=KEPT)
    weights = reference.ranker_weights(literal, labels, cluster_of, seen)
    # Dense weights are kept in half precision: three digits.
    close = 2e-4 if features == "tfidf" else 5e-3
    everywhere = ranking.ClusterRanker(
        ranker, ranking.RankingParams(features=features, scale=scale)
    )
    found = everywhere.best_labels(sparse.csr_array(terms), best_of(margins, vectors), LABELS)
    columns, scores, counts = found
    assert (counts == LABELS).all()
    expected = literal @ weights[:, :-1].T + weights[:, -1]
    assert np.allclose(scores, np.take_along_axis(expected, columns, 1), atol=close)


def test_as_many_clusters_as_labels() -> None:
    terms, labels, _, _, _, vectors = problem(5)
    rng = np.random.default_rng(5)
    tree = random_tree(rng, [LABELS, LABELS])
    cluster_of = tree.parents[1][tree.leaf_positions]
    margins = rng.normal(size=(DOCUMENTS, LABELS)).astype(np.float32)
    params = ranking.RankingParams(features="tfidf", clusters_kept=4)
    rows = ranking.ranker_features(sparse.csr_array(terms), vectors, params)
    matched = best_of(margins, vectors)
    ranker = ranking.train_cluster_ranker(
        rows, sparse.csr_array(labels), tree, matched, params, RankerParams(**EXACT)
    )
    seen = reference.seen_clusters(labels, cluster_of, margins, negatives="tfn+man", b=4)
    literal = reference.ranker_features(terms, vectors, which="tfidf", scale="joint")
    weights = reference.ranker_weights(literal, labels, cluster_of, seen)
    expected = literal @ weights[:, :-1].T + weights[:, -1]
    found = ranking.ClusterRanker(ranker, params).best_labels(
        sparse.csr_array(terms), matched, LABELS
    )
    assert np.allclose(found[1], np.take_along_axis(expected, found[0], 1), atol=2e-4)


@pytest.mark.parametrize("combine", ["ranker", "learnt"])
def test_scores_are_those_of_the_equations(combine: Any) -> None:
    terms, labels, tree, cluster_of, margins, vectors = problem(2)
    params = ranking.RankingParams(combine=combine, clusters_kept=KEPT)
    features = ranking.ranker_features(sparse.csr_array(terms), vectors, params)
    matched = best_of(margins, vectors)
    ranker = ranking.train_cluster_ranker(
        features, sparse.csr_array(labels), tree, matched, params, RankerParams(**EXACT)
    )
    learnt = ranking.LearntScore(0.7, 1.3, -0.4) if combine == "learnt" else None
    scorer = ranking.ClusterRanker(ranker, params, learnt)
    columns, scores, counts = scorer.best_labels(sparse.csr_array(terms), matched, 3)
    literal = reference.ranker_features(terms, vectors, which="both", scale="joint")
    seen = reference.seen_clusters(labels, cluster_of, margins, negatives="tfn+man", b=KEPT)
    weights = reference.ranker_weights(literal, labels, cluster_of, seen)
    kept = scorer.clusters_for(3)
    for document in range(DOCUMENTS):
        everything = reference.predict(
            margins[document],
            literal[document],
            weights,
            cluster_of,
            LABELS,
            b=kept,
            learnt=learnt and (0.7, 1.3, -0.4),
        )
        expected = dict(everything)
        assert counts[document] == 3
        assert set(columns[document]) <= set(expected)  # nothing outside the best clusters
        best = [score for _, score in everything[:3]]
        assert scores[document] == pytest.approx(best, abs=5e-3)
        own = [expected[column] for column in columns[document]]
        assert scores[document] == pytest.approx(own, abs=5e-3)


def test_the_learnt_score_is_a_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    g, h = rng.normal(size=500), 3 * rng.normal(size=500) - 2
    true = rng.random(500) < 1 / (1 + np.exp(-(0.5 * g + 1.5 * h + 1)))
    found = ranking.LearntScore.fit(g.astype(np.float32), h.astype(np.float32), true)

    def loss(weights: Any) -> float:
        margin = (weights[0] * g + weights[1] * h + weights[2]) * np.where(true, 1, -1)
        return float(np.logaddexp(0, -margin).sum())

    best = minimize(loss, np.zeros(3), method="BFGS").x
    assert [found.cluster, found.label, found.constant] == pytest.approx(best, abs=1e-2)


def test_a_learnt_score_is_measured_on_the_other_half() -> None:
    terms, labels, tree, _, margins, vectors = problem(2)
    params = ranking.RankingParams(combine="learnt", clusters_kept=KEPT)
    rows, y, matched = sparse.csr_array(terms), sparse.csr_array(labels), best_of(margins, vectors)
    features = ranking.ranker_features(rows, vectors, params)
    ranker = ranking.train_cluster_ranker(features, y, tree, matched, params, RankerParams(**EXACT))
    scorer = ranking.ClusterRanker(ranker, params)
    found = scorer.unseen(rows, matched, y, 3)
    assert found is not None and scorer.learnt is None
    halves = [np.arange(DOCUMENTS) % 2 == n for n in (0, 1)]
    fits = []
    for own, other in (halves, halves[::-1]):
        scorer.learn(rows[other], matched.take(other), y[other])
        fits.append(scorer.learnt)
        expected = scorer.best_labels(rows[own], matched.take(own), 3)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours[own], theirs)
    assert fits[0] != fits[1]
    y.data[:] = 0
    y.eliminate_zeros()
    assert scorer.unseen(rows, matched, y, 3) is None
    with pytest.raises(DataError, match="no held-out document"):
        scorer.learn(rows, matched, y)


@pytest.mark.parametrize("separable", ["by both margins", "all true"])
def test_a_small_ridge_keeps_the_learnt_score_of_separable_pairs_finite(separable: str) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    rows[:, 2] = 1.0
    true = rows[:, 0] + rows[:, 1] > 0 if separable == "by both margins" else np.ones(500, bool)
    fitted = ranking.LearntScore.fit(rows[:, 0], rows[:, 1], true)
    weights = np.array([fitted.cluster, fitted.label, fitted.constant])
    slope = rows.T @ (expit(rows @ weights) - true) + [1e-3, 1e-3, 1e-6] * weights
    assert np.abs(slope).max() < 1e-6


def test_recall_counts_labels_whose_cluster_is_looked_at() -> None:
    terms, labels, tree, cluster_of, margins, vectors = problem(3)
    params = ranking.RankingParams(clusters_kept=KEPT)
    matched = best_of(margins, vectors)
    features = ranking.ranker_features(sparse.csr_array(terms), vectors, params)
    y = sparse.csr_array(labels)
    ranker = ranking.train_cluster_ranker(features, y, tree, matched, params, RankerParams())
    seen = reference.seen_clusters(labels, cluster_of, margins, negatives="man", b=KEPT)
    pairs = [(d, c) for d, c in zip(*np.nonzero(labels), strict=True)]
    expected = np.mean([seen[d, cluster_of[c]] for d, c in pairs])
    assert ranking.ClusterRanker(ranker, params).recall(matched, y) == pytest.approx(expected)


def test_more_mined_clusters_than_are_remembered_are_refused() -> None:
    terms, labels, tree, _, margins, vectors = problem(4)
    matched = best_of(margins, vectors)
    few = matching.Matched(matched.clusters[:, :2], matched.margins[:, :2], vectors)
    features, y = sparse.csr_array(terms), sparse.csr_array(labels)
    params = ranking.RankingParams(features="tfidf")
    rows = ranking.ranker_features(features, vectors, params)
    with pytest.raises(ConfigError, match="mined_nodes: at most 2"):
        ranking.train_cluster_ranker(rows, y, tree, few, params, RankerParams(mined_nodes=3))
