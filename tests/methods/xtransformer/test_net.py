"""X-Transformer's matcher, clusters, rankers and scores against their equations."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from typing import Any

import torch
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.errors import ConfigError
from labelgrove.labels.features import pifa
from labelgrove.methods.xtransformer import matching, ranking
from labelgrove.methods.xtransformer.matching import MatcherNet, MatcherParams
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.ranking.negatives import targets
from labelgrove.ranking.solver import RankerParams
from reference import xtransformer as reference
from support import nn_problems as problems
from support.nn_problems import random_tree

pytestmark = pytest.mark.slow
LABELS, CLUSTERS, WIDTH, DOCUMENTS = 40, 9, 6, 5


def ragged(matrix):
    return RaggedLabels.from_arrays(matrix.indptr, matrix.indices)


def problem(seed, **switches):
    """A net, the labels of some documents, each label's cluster, the true clusters."""
    rng = np.random.default_rng(seed)
    tree = problems.random_tree(rng, [CLUSTERS, LABELS])
    net = MatcherNet(WIDTH, CLUSTERS, MatcherParams(**{"dropout": 0.0} | switches))
    problems.randomise(net, rng)
    rows = problems.random_labels(rng, DOCUMENTS, LABELS, 12)
    labels = np.zeros((DOCUMENTS, LABELS))
    for document, row in enumerate(rows):
        labels[document, row] = 1
    cluster_of = tree.parents[1][tree.leaf_positions]
    true = ragged(targets(as_csr(labels), tree)[0])
    return net, labels, cluster_of, true, problems.random_states(rng, 1, DOCUMENTS, WIDTH)


@pytest.mark.parametrize("seed", range(5))
def test_loss_and_gradients_are_those_of_the_paper(seed):
    net, labels, cluster_of, true, states = problem(seed)
    loss, stats = net.loss(states, true)
    needed = reference.cluster_targets(labels, cluster_of, CLUSTERS)
    assert (labels @ np.eye(CLUSTERS)[cluster_of]).max() > 1  # counts would give another loss
    expected = reference.matcher_loss(states[0], needed, net.clusters.weight, net.clusters.bias)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-4)
    assert float(stats["loss"]) == pytest.approx(loss.item())
    learnt = [*states, *net.parameters()]
    for one, other in zip(
        torch.autograd.grad(loss, learnt), torch.autograd.grad(expected, learnt), strict=True
    ):
        assert torch.allclose(one, other, atol=1e-4)


def test_prediction_gives_the_best_margins_and_drops_nothing():
    net, _, _, _, states = problem(7, dropout=0.5)
    net.train()
    top = net.predict(states, 4)
    margins = (states[0] @ net.clusters.weight.T + net.clusters.bias).detach().numpy()
    for document in range(DOCUMENTS):
        best = reference.best_clusters(margins[document], 4)
        assert top.columns[document].tolist() == best
        assert top.scores[document].tolist() == pytest.approx(margins[document, best], abs=1e-5)
    assert net.predict(states, 99).columns.shape == (DOCUMENTS, CLUSTERS)
    assert torch.equal(net.text(states), states[0])
    assert net.text_width == WIDTH


def test_the_output_layer_and_masks_agree_with_prediction():
    net, _, _, true, states = problem(8)
    columns, margins = net.predict(states, CLUSTERS)
    weights, biases = net.output_layer()
    expected = states[0].detach().numpy() @ weights.T + biases
    np.testing.assert_allclose(np.take_along_axis(expected, columns.numpy(), 1), margins, 1e-4)
    allowed = np.arange(CLUSTERS) % 2 == 1
    few = net.predict(states, CLUSTERS, allowed=net.allowing(allowed)).columns
    for row, every in zip(few.tolist(), columns.tolist(), strict=True):
        assert [c for c in row if c >= 0] == [c for c in every if c % 2]
    count = len(true.indices)
    assert net.shortlist_recall(states, true).tolist() == [[count, count]]


@pytest.mark.parametrize("loss", ["squared_hinge", "bce"])
def test_biases_begin_where_frequencies_alone_would_put_them(loss):
    rng = np.random.default_rng(0)
    labels = sparse.csr_array((rng.random((400, 3)) < [0.05, 0.5, 0.9]).astype(np.float32))
    net = MatcherNet(2, 3, MatcherParams(loss=loss, dropout=0.0))
    net.start_from(labels)
    states, true = [torch.zeros(400, 2)], ragged(labels)
    net.loss(states, true)[0].backward()
    assert net.clusters.bias.grad.abs().max() < 1e-2
    assert (net.clusters.bias != 0).any()
    plain = MatcherNet(2, 3, MatcherParams(loss=loss, priors=False))
    plain.start_from(labels)
    assert (plain.clusters.bias == 0).all()


def test_one_layer_is_read():
    with pytest.raises(ConfigError, match="one layer"):
        MatcherNet(2, 3).predict([torch.ones(1, 2)] * 2, k=1)


MANY, LABEL_COUNT, FEW_CLUSTERS, TERMS, VECTOR_WIDTH, KEPT = 60, 14, 4, 12, 5, 2


def cluster_problem(seed: int, clusters: int = FEW_CLUSTERS) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Terms, labels, a tree, each label's cluster, the matcher's margins, text vectors."""
    rng = np.random.default_rng(seed)
    terms = rng.random((MANY, TERMS)) * (rng.random((MANY, TERMS)) < 0.4)
    labels = (rng.random((MANY, LABEL_COUNT)) < 0.15).astype(float)
    labels[:, 0] = 0  # a label without documents
    tree = random_tree(rng, [clusters, LABEL_COUNT])
    cluster_of = tree.parents[1][tree.leaf_positions]
    margins = rng.normal(size=(MANY, clusters)).astype(np.float32)
    vectors = rng.normal(size=(MANY, VECTOR_WIDTH)).astype(np.float32)
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
    x, y = cluster_problem(0)[:2]
    found = pifa(x, y, row_weights=kind == "weighted").dense
    assert np.allclose(found, reference.label_vectors(x, y, kind), atol=1e-5)


def test_labels_are_clustered_by_the_chosen_vectors() -> None:
    x, y = cluster_problem(3)[:2]
    trees = {}
    for kind in ("weighted", "plain"):
        params = matching.IndexingParams(clusters=FEW_CLUSTERS, pifa=kind)
        trees[kind] = matching.cluster_labels(x, sparse.csr_array(y), params, 0)
        vectors = reference.label_vectors(x, y, kind).astype(np.float32)
        assert trees[kind] == matching.cluster_tree(vectors, params)
    assert trees["weighted"] != trees["plain"]


@pytest.mark.parametrize(
    ("negatives", "clusters"),
    [
        *(("tfn", FEW_CLUSTERS), ("man", FEW_CLUSTERS), ("tfn+man", FEW_CLUSTERS)),
        ("tfn+man", LABEL_COUNT),
    ],
)
@pytest.mark.parametrize("features", ["tfidf", "neural", "both"])
@pytest.mark.parametrize("scale", ["joint", "blocks"])
def test_rankers_are_those_of_the_equations(
    negatives: Any, features: Any, scale: Any, clusters: int
) -> None:
    terms, labels, tree, cluster_of, margins, vectors = cluster_problem(1, clusters)
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
    found = everywhere.best_labels(sparse.csr_array(terms), best_of(margins, vectors), LABEL_COUNT)
    columns, scores, counts = found
    assert (counts == LABEL_COUNT).all()
    expected = literal @ weights[:, :-1].T + weights[:, -1]
    assert np.allclose(scores, np.take_along_axis(expected, columns, 1), atol=close)


@pytest.mark.parametrize("learnt", [None, (0.7, 1.3, -0.4)])  # as earlier releases could fit it
def test_scores_are_those_of_the_equations(learnt: Any) -> None:
    terms, labels, tree, cluster_of, margins, vectors = cluster_problem(2)
    params = ranking.RankingParams(clusters_kept=KEPT)
    features = ranking.ranker_features(sparse.csr_array(terms), vectors, params)
    matched = best_of(margins, vectors)
    ranker = ranking.train_cluster_ranker(
        features, sparse.csr_array(labels), tree, matched, params, RankerParams(**EXACT)
    )
    names = "cluster", "label", "constant"
    scorer = ranking.ClusterRanker(ranker, params, learnt and dict(zip(names, learnt, strict=True)))
    assert scorer.score_kind == ("probability" if learnt else "margin")
    columns, scores, counts = scorer.best_labels(sparse.csr_array(terms), matched, 3)
    literal = reference.ranker_features(terms, vectors, which="both", scale="joint")
    seen = reference.seen_clusters(labels, cluster_of, margins, negatives="tfn+man", b=KEPT)
    weights = reference.ranker_weights(literal, labels, cluster_of, seen)
    kept = scorer.clusters_for(3)
    for document in range(MANY):
        everything = reference.predict(
            margins[document],
            literal[document],
            weights,
            cluster_of,
            LABEL_COUNT,
            b=kept,
            learnt=learnt,
        )
        expected = dict(everything)
        assert counts[document] == 3
        assert set(columns[document]) <= set(expected)  # nothing outside the best clusters
        best = [score for _, score in everything[:3]]
        assert scores[document] == pytest.approx(best, abs=5e-3)
        own = [expected[column] for column in columns[document]]
        assert scores[document] == pytest.approx(own, abs=5e-3)


def test_recall_counts_labels_whose_cluster_is_looked_at() -> None:
    terms, labels, tree, cluster_of, margins, vectors = cluster_problem(3)
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
    terms, labels, tree, _, margins, vectors = cluster_problem(4)
    matched = best_of(margins, vectors)
    few = matching.Matched(matched.clusters[:, :2], matched.margins[:, :2], vectors)
    features, y = sparse.csr_array(terms), sparse.csr_array(labels)
    params = ranking.RankingParams(features="tfidf")
    rows = ranking.ranker_features(features, vectors, params)
    with pytest.raises(ConfigError, match="mined_nodes: at most 2"):
        ranking.train_cluster_ranker(rows, y, tree, few, params, RankerParams(mined_nodes=3))
