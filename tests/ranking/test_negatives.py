import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.data.features import as_features
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import Propensity
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import (
    Frequencies,
    NodeMiner,
    costs,
    instance_lists,
    nodes_to_mine,
    relevance,
    row_shares,
    shortlisted,
    targets,
)
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from reference.beam import dense_weights
from reference.metrics import propensity_costs
from reference.ranker import level_matrices, literal_shares, train
from support.threads import on_threads

EXACT = {"eps": 1e-5, "max_iterations": 20_000, "threshold": 0.0}
TREE = LabelTree([[0, 0, 0], [0, 0, 1, 1, 1, 2]], [3, 0, 5, 1, 4, 2])


def problem(seed, documents=24, columns=8):
    rng = np.random.default_rng(seed)
    x = rng.random((documents, columns)) * (rng.random((documents, columns)) < 0.4)
    y = (rng.random((documents, 6)) < 0.25) * rng.integers(1, 4, (documents, 6)) / 2
    y[0] = 1
    return x.astype(np.float32), y


def predicted(x, ranker, beam):
    """Documents x nodes of the first level, 1 for the ``beam`` best."""
    first = Ranker(TREE.coarsen(1), ranker.levels[:1], features=x.shape[1], bias=1.0)
    found = np.zeros((len(x), 3))
    np.put_along_axis(found, first.search(x, k=beam)[0], 1, axis=1)
    return found


@given(
    seed=st.integers(0, 200),
    negatives=st.sampled_from(["tfn", "man", "tfn+man"]),
    relevance=st.sampled_from(["none", "induce"]),
    norm=st.sampled_from(["none", "l1"]),
    label_weights=st.sampled_from(["ignore", "cost", "propensity"]),
    loss=st.sampled_from(["squared_hinge", "logistic"]),
    mined_weight=st.sampled_from([1.0, 0.5]),
)
@example(3, "tfn+man", "none", "l1", "propensity", "squared_hinge", 0.5)
@example(4, "tfn", "induce", "l1", "propensity", "logistic", 1.0)
@settings(max_examples=8)
def test_training_agrees_with_the_literal_version(
    seed, negatives, relevance, norm, label_weights, loss, mined_weight
):
    x, y = problem(seed)
    rng = np.random.default_rng(seed)
    sample_weight = rng.integers(1, 4, len(x)) / 2
    constants = {"a": 0.6, "b": 2.6}
    settings = {f"propensity_{name}": value for name, value in constants.items()}
    params = RankerParams(
        loss=loss,
        **(settings if label_weights == "propensity" else {}),
        positive_weight=1.5,
        negatives=negatives,
        mined_nodes=None,
        mined_weight=mined_weight,
        relevance=relevance,
        relevance_norm=norm,
        label_weights=label_weights,
        **EXACT,
    )
    ranker = train_ranker(
        as_csr(x), y, TREE, params, sample_weight=sample_weight, search=SearchParams(beam=1)
    )

    values = y if label_weights == "cost" else (y > 0).astype(float)
    costs = level_matrices(values, TREE, "sum" if relevance == "induce" else "max")
    if relevance == "induce" and norm == "l1":
        costs = [literal_shares(level) for level in costs]
    if label_weights == "propensity":
        costs[1] = costs[1] * np.array(propensity_costs(y, **constants))[TREE.leaf_labels]
    bearers, mined = costs[0] > 0, predicted(x, ranker, 1)
    mined = np.where(bearers, mined, mined_weight * mined)
    chosen = {"tfn": bearers, "man": mined, "tfn+man": np.maximum(bearers, mined)}[negatives]
    expected = train(
        x,
        TREE,
        costs,
        [np.ones((len(x), 1)), chosen],
        C=1.0,
        positive_weight=1.5,
        sample_weight=sample_weight,
        loss=loss,
    )
    for number, level in enumerate(ranker.levels):
        found = dense_weights(level, TREE.children(number), x.shape[1])
        np.testing.assert_allclose(found, expected[number][:, :-1], atol=5e-3)
        np.testing.assert_allclose(level.bias, expected[number][:, -1], atol=5e-3)


def planted(labels=60, documents=300):
    rng = np.random.default_rng(0)
    y = sparse.csr_array((rng.random((documents, labels)) < 2 / labels).astype(np.float32))
    noise = rng.random((documents, labels)) < 0.02
    return sparse.csr_array((y.toarray() + noise).astype("f4")), y


@pytest.mark.parametrize("levels", ["last", "all"])
def test_mining_does_not_depend_on_threads(levels):
    x, y = planted()
    tree = build_tree(y.T, TreeParams(branching=2, max_leaf_size=4))
    params = RankerParams(negatives="tfn+man", mined_levels=levels, mined_nodes=3)
    one, three = (on_threads(t, train_ranker, x, y, tree, params).state() for t in (1, 3))
    assert all(np.array_equal(array, three.arrays[name]) for name, array in one.arrays.items())
    plain = train_ranker(x, y, tree, RankerParams(negatives="tfn"))
    same = [
        np.array_equal(a.values, Ranker.from_state(one).levels[t].values)
        for t, a in enumerate(plain.levels)
    ]
    assert same == [True] + [levels == "last"] * (len(same) - 2) + [False]


def test_short_documents_are_mined_less_by_default():
    x, y = planted()  # about three terms per document
    tree = build_tree(y.T, TreeParams(branching=2, max_leaf_size=4))
    by_default, few, many = (
        train_ranker(x, y, tree, RankerParams(mined_nodes=nodes)).levels[-1].values
        for nodes in ("auto", nodes_to_mine("auto", 3.0, beam=10), 8)
    )
    assert np.array_equal(by_default, few)
    assert not np.array_equal(by_default, many)
    assert [nodes_to_mine("auto", terms, beam=10) for terms in (17.0, 39.9, 40.0)] == [3, 3, 8]
    assert nodes_to_mine(5, 17.0, beam=10) == 5
    assert nodes_to_mine(None, 17.0, beam=10) == 10


def test_predicted_nodes_are_the_beam_of_prediction():
    x, y = planted()
    tree = build_tree(y.T, TreeParams(branching=2, max_leaf_size=4))
    ranker = train_ranker(x, y, tree)
    search = SearchParams(beam=3, last_level="noop")
    found = NodeMiner(as_features(x), tree, ranker.levels[:2], bias=1.0, params=search)(
        slice(0, 300)
    )
    assert found.shape == (300, tree.widths[1])
    assert np.diff(found.indptr).tolist() == [3] * 300


def test_sample_weights():
    x, y = problem(1)
    twice = np.concatenate([np.arange(24), np.arange(10)])
    weights = np.where(np.arange(24) < 10, 2.0, 1.0)
    params = RankerParams(**EXACT)
    heavy = train_ranker(x, y, TREE, params, sample_weight=weights)
    doubled = train_ranker(x[twice], y[twice], TREE, params)
    for a, b in zip(heavy.levels, doubled.levels, strict=True):
        np.testing.assert_allclose(a.bias, b.bias, atol=2e-3)
    without = train_ranker(x, y, TREE, sample_weight=(np.arange(24) < 20).astype(float))
    fewer = train_ranker(x[:20], y[:20], TREE)
    for name, array in fewer.state().arrays.items():
        assert np.array_equal(array, without.state().arrays[name]), name


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"one number per document \(24\)"),
        (np.where(np.arange(24) == 3, np.nan, 1.0), "finite"),
        (-np.ones(24), "not negative"),
        (np.zeros(24), "no document is left"),
    ],
)
def test_bad_sample_weights(weights, message):
    x, y = problem(0)
    pytest.raises(DataError, train_ranker, x, y, TREE, sample_weight=weights).match(message)


def test_positives_are_always_instances():
    bearers, chosen = as_csr([[1, 0], [0, 1]]), as_csr([[0, 1], [0, 1]])
    lists = instance_lists(bearers, [chosen], weights=np.array([2, 1], np.float32))
    assert lists.rows.tolist() == [0, 0, 1]
    assert lists.values.tolist() == [0, 2, 1]


def test_shortlists_of_clusters_and_of_labels():
    tree = LabelTree([[0, 0], [0, 0, 1]], [2, 1, 0])
    clusters, leaves = shortlisted([[1, 0, 0]], tree, 1)
    assert clusters.toarray().tolist() == [[0, 1]] and leaves.toarray().tolist() == [[0, 0, 1]]
    clusters, leaves = shortlisted([[0.5, 0]], tree, 1)
    assert clusters.toarray().tolist() == [[0.5, 0]] and leaves is None
    with pytest.raises(DataError, match="1 documents x 2 clusters or x 3 labels, got 1 x 4"):
        shortlisted([[1, 0, 0, 0]], tree, 1)
    everyone, leaves = shortlisted([[1, 0]], LabelTree([[0, 0]], [1, 0]), 1)
    assert everyone.toarray().tolist() == [[1]] and leaves.toarray().tolist() == [[0, 1]]


def random_labels(seed, documents=12, labels=9):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 5, (documents, labels)) / 4
    return weights * (rng.random((documents, labels)) < rng.choice([0.0, 0.1, 0.4]))


@given(seed=st.integers(0, 500))
@settings(max_examples=20)
def test_relevance_and_targets_are_what_the_definition_says(seed):
    labels = random_labels(seed)
    tree = build_tree(np.eye(9), TreeParams(branching=2, max_leaf_size=2), seed=seed)
    expected = level_matrices(labels, tree, "sum")
    found = relevance(as_csr(labels), tree)
    borne = targets(as_csr(labels), tree)
    for level, r, y in zip(expected, found, borne, strict=True):
        np.testing.assert_allclose(r.toarray(), level, rtol=1e-6)
        np.testing.assert_allclose(row_shares(r).toarray(), literal_shares(level), rtol=1e-6)
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
