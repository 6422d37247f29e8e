import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import Propensity
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.ranking.relevance import Frequencies, costs, relevance, targets
from labelgrove.ranking.solver import RankerParams
from reference.metrics import propensity_costs
from reference.ranker import level_matrices, row_normalised


def random_labels(seed, documents=12, labels=9):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 5, (documents, labels)) / 4
    return weights * (rng.random((documents, labels)) < rng.choice([0.0, 0.1, 0.4]))


@given(seed=st.integers(0, 500), norm=st.sampled_from(["none", "l1", "l2", "max"]))
@settings(max_examples=40)
def test_relevance_and_targets_are_what_the_definition_says(seed, norm):
    labels = random_labels(seed)
    tree = build_tree(np.eye(9), TreeParams(branching=2, max_leaf_size=2), seed=seed)
    expected = [row_normalised(level, norm) for level in level_matrices(labels, tree, "sum")]
    found = relevance(as_csr(labels), tree, norm=norm)
    borne = targets(as_csr(labels), tree)
    for level, r, y in zip(expected, found, borne, strict=True):
        np.testing.assert_allclose(r.toarray(), level, rtol=1e-6)
        assert np.array_equal(y.toarray(), (level > 0).astype(float))
        assert r.has_canonical_format


def test_costs():
    tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    labels = as_csr([[0.5, 0.25, 0.0], [0.0, 1.0, 0.75]])

    def dense(**options):
        levels = costs(labels, tree, RankerParams(**options))
        return [level.toarray().tolist() for level in levels]

    ones = [[1, 1, 0], [0, 1, 1]]
    assert dense() == [[[1, 0], [1, 1]], ones]
    assert dense(label_weights="cost") == [[[0.5, 0], [1, 0.75]], labels.toarray().tolist()]
    assert dense(relevance="induce") == [[[1, 0], [0.5, 0.5]], [[0.5, 0.5, 0], [0, 0.5, 0.5]]]
    assert dense(relevance="induce", relevance_norm="none") == [[[2, 0], [1, 1]], ones]
    assert dense(relevance="last-level") == [[[1, 0], [1, 1]], [[0.5, 0.5, 0], [0, 0.5, 0.5]]]


@given(seed=st.integers(0, 500))
@settings(max_examples=40)
def test_rare_labels_cost_more_on_the_last_level_alone(seed):
    labels = random_labels(seed)
    labels[0, 0] = 1.0
    tree = build_tree(np.eye(9), TreeParams(branching=2, max_leaf_size=2), seed=seed)
    params = RankerParams(label_weights="propensity", propensity_a=0.6, propensity_b=2.6)
    *above, last = costs(as_csr(labels), tree, params)
    for level, plain in zip(above, targets(as_csr(labels), tree), strict=False):
        assert np.array_equal(level.toarray(), plain.toarray())
    expected = (labels > 0) * propensity_costs(labels, 0.6, 2.6)
    np.testing.assert_allclose(last.toarray(), expected[:, tree.leaf_labels], rtol=1e-5)
    assert last.data.mean() == pytest.approx(1.0, rel=1e-5)


def test_frequencies_of_documents_that_are_gone_count():
    tree = LabelTree([[0, 0]], [1, 0])
    labels, params = as_csr([[1.0, 1.0]]), RankerParams(label_weights="propensity")
    (few,) = costs(labels, tree, params)
    (many,) = costs(labels, tree, params, Frequencies(np.array([900, 2]), 1000))
    assert few.data.tolist() == [1.0, 1.0]
    expected = Propensity().costs([900, 2], 1000)[[1, 0]]
    np.testing.assert_allclose(many.toarray()[0], expected, rtol=1e-6)


def test_weights_must_be_positive_and_fit():
    tree = LabelTree([[0, 0]], [0, 1])
    stored_zero = sparse.csr_array(([0.0, 1.0], [0, 1], [0, 2]), shape=(1, 2))
    for wrong in (as_csr([[-1.0, 0.0]]), stored_zero):
        pytest.raises(DataError, relevance, wrong, tree).match("greater than 0")
    pytest.raises(DataError, targets, as_csr(np.eye(3)), tree).match("3 columns but the tree has 2")
