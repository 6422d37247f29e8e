"""XR-Transformer's shortlists and starts against their equations."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import sparse  # noqa: E402

from labelgrove.core.arrays import as_csr  # noqa: E402
from labelgrove.data.features import Features  # noqa: E402
from labelgrove.methods.xrtransformer import vectors as reading  # noqa: E402
from labelgrove.methods.xrtransformer.net import XrParams, level_tree  # noqa: E402
from labelgrove.ranking.negatives import relevance  # noqa: E402
from labelgrove.ranking.solver import RankerParams  # noqa: E402
from labelgrove.ranking.weights import dense_weights  # noqa: E402
from reference import xrtransformer as reference  # noqa: E402
from reference.solver import primal_objective  # noqa: E402
from support.nn_problems import random_labels, random_tree  # noqa: E402

pytestmark = pytest.mark.slow
WIDTHS, WIDTH, DOCUMENTS = [4, 11, 45], 6, 40


def problem(seed=0):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, WIDTHS)
    labels = np.zeros((DOCUMENTS, WIDTHS[-1]), np.float32)
    for document, columns in enumerate(random_labels(rng, DOCUMENTS, WIDTHS[-1], 6)):
        labels[document, columns] = 1
    vectors = rng.normal(size=(DOCUMENTS, WIDTH)).astype(np.float32)
    return rng, tree, relevance(as_csr(labels), tree), vectors


@pytest.mark.parametrize("at_once", [1, 50, 1 << 20])
def test_the_descent_is_that_of_the_equations(at_once, monkeypatch):
    monkeypatch.setattr(reading, "CANDIDATES", at_once)
    rng, tree, _, vectors = problem()
    above, expected = reading.below_root(DOCUMENTS), [{0: 1.0} for _ in range(DOCUMENTS)]
    for level, keep in enumerate((3, 4, 5)):
        # Margins below 1 and not far from 0: no two scores are equal.
        weights = rng.normal(size=(WIDTHS[level], WIDTH), scale=0.2).astype(np.float32)
        bias = rng.normal(size=WIDTHS[level], scale=0.2).astype(np.float32) - 0.5
        margins = reading.head_margins(vectors, weights, bias, tree.children(level))
        above = reading.best_nodes(margins, above, tree.children(level), keep)
        for d in range(DOCUMENTS):
            own = (weights @ vectors[d] + bias).tolist()
            expected[d] = reference.best_nodes(own, expected[d], tree.parents[level], keep)
            row = slice(above.indptr[d], above.indptr[d + 1])
            assert above.indices[row].tolist() == sorted(expected[d])
            found = dict(zip(above.indices[row].tolist(), above.data[row].tolist(), strict=True))
            for node, score in expected[d].items():
                assert found[node] == pytest.approx(np.log(score), rel=1e-3, abs=1e-4)
    assert above.has_canonical_format


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
def test_shortlists_of_training_are_true_nodes_and_predicted_ones(negatives):
    rng, _, counts, _ = problem(1)
    predicted = sparse.random_array(
        (DOCUMENTS, WIDTHS[1]), density=0.3, rng=rng, format="csr", dtype=np.float32
    )
    predicted.data[:] = -rng.random(predicted.nnz)
    predicted.data[::3] = 0.0  # a certain node has the log score 0
    chosen = reading.chosen_nodes(counts[1], predicted, negatives)
    for d in range(DOCUMENTS):
        expected = reference.shortlist(
            counts[1][[d]].indices.tolist(), predicted[[d]].indices.tolist(), negatives
        )
        assert sorted(chosen[[d]].indices.tolist()) == sorted(expected)
    assert (chosen.data == 1).all()


@pytest.mark.parametrize(
    ("weighted", "scaled", "alpha"),
    [
        (False, False, None),
        (True, False, None),
        (True, True, None),
        (False, False, 0.25),
        (False, True, 2.0),
    ],
)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_bootstrapped_head_is_the_best_linear_model_of_the_vectors(
    level, weighted, scaled, alpha
):
    rng, tree, counts, vectors = problem(2)
    seen, above = np.ones((DOCUMENTS, 1)), None
    if level:
        predicted = sparse.csr_array(rng.random((DOCUMENTS, WIDTHS[level - 1])) < 0.4)
        above = reading.chosen_nodes(counts[level - 1], predicted.astype(np.float32), "tfn+man")
        seen = above.toarray()
    parents = tree.parents[level]
    texts = vectors / (reading.mean_length(vectors) if scaled else 2.0)
    kind = "cost-linear" if alpha else "weighted-linear" if weighted else "linear"
    weights, bias = reading.bootstrapped(
        (30.0 if scaled else 1.0) * texts,
        counts[level],
        level_tree(tree, level),
        XrParams(bootstrap=kind, bootstrap_C=2.0, bootstrap_scaled=scaled, alpha=alpha or 1.0),
        above=above,
        eps=1e-3,
        seed=0,
    )
    weights = weights * (30.0 if scaled else 1.0)  # as if the texts had been of length 1
    dense = counts[level].toarray()
    costs_of = {"C": 2.0, "weighted": weighted, "alpha": alpha}
    best, best_bias = reference.bootstrapped(texts, dense, seen, parents, **costs_of)
    shares = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    rows = np.hstack([texts, np.ones((DOCUMENTS, 1))]).astype(np.float64)
    for node, parent in enumerate(parents):
        positive = dense[:, node] > 0
        if not positive.any():
            continue
        part = positive | (seen[:, parent] > 0)
        if positive[part].all():
            continue  # nothing to tell apart: the solver says yes without looking
        costs = np.where(positive, 2.0 * (dense[:, node] if weighted else 1.0), 2.0)[part]
        if alpha is not None:
            costs = 2.0 * np.where(positive, shares[:, node], alpha)[part]
        signs = np.where(positive, 1.0, -1.0)[part]
        ours, theirs = (
            primal_objective(np.append(w, b), rows[part], signs, costs, "squared_hinge")
            for w, b in ((weights[node], bias[node]), (best[node], best_bias[node]))
        )
        assert ours <= 1.002 * theirs + 0.01


def test_a_linear_model_gives_the_margins_of_its_weights():
    _, tree, counts, vectors = problem(3)
    terms = sparse.csr_array(np.eye(DOCUMENTS, dtype=np.float32))
    features = Features(terms, vectors)
    above = reading.chosen_nodes(counts[0], counts[0], "tfn")
    params = RankerParams(threshold=0.0, storage="float32", relevance="induce")
    options = {"weighted": False, "above": above, "seed": 0}
    ranker = reading.train_level(features, counts[1], level_tree(tree, 1), params, **options)
    pattern = reading.candidates(above, tree.children(1))
    first = reading.linear_margins(features, ranker)(slice(0, DOCUMENTS), pattern)
    assert len(first) == pattern.nnz
    halves = [
        reading.linear_margins(features, ranker)(rows, pattern[rows])
        for rows in (slice(0, 9), slice(9, DOCUMENTS))
    ]
    assert np.array_equal(np.concatenate(halves), first)


def test_relevance_costs_of_a_level_are_shares_of_the_labels_below():
    """The costs come from counts, not from whether a node is borne at all."""
    _, tree, counts, vectors = problem(4)
    params = RankerParams(threshold=0.0, storage="float32", relevance="induce", eps=1e-3)
    options = {"weighted": False, "above": None, "seed": 0}
    ranker = reading.train_level(
        Features(dense=vectors), counts[0], level_tree(tree, 0), params, **options
    )
    weights = dense_weights(ranker.levels[0], tree.children(0), WIDTH)
    dense = counts[0].toarray()
    shares = dense / np.maximum(dense.sum(1, keepdims=True), 1)
    best, best_bias = reference.bootstrapped(
        vectors, shares, np.ones((DOCUMENTS, 1)), tree.parents[0], C=1.0, weighted=True
    )
    assert np.allclose(weights, best, atol=5e-3)
    assert np.allclose(ranker.levels[0].bias, best_bias, atol=5e-3)


def test_found_share_counts_labels():
    counts = sparse.csr_array([[2.0, 1.0], [0.0, 3.0]])
    nothing = sparse.csr_array((2, 2), dtype=np.float32)
    first = sparse.csr_array(
        (np.zeros(2, np.float32), np.array([0, 0]), np.array([0, 1, 2])), shape=(2, 2)
    )
    assert reading.found_share(nothing, counts) == 0.0
    assert reading.found_share(first, counts) == pytest.approx(
        1 / 3
    )  # scores of 0 (log of 1) count
