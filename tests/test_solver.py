import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import LinearSVC

from labelgrove.arrays import as_csr
from labelgrove.errors import DataError
from labelgrove.solver import ChunkedWeights, RankerParams, RowLists, _blocks, solve_level
from reference.beam import dense_weights
from reference.solver import primal_objective, solve

EXACT = {"eps": 1e-5, "max_iterations": 20_000, "threshold": 0.0}


def one_cluster(x, y, params, **options):
    rows = x.shape[0]
    everyone = RowLists(np.array([0, rows]), np.arange(rows, dtype=np.int32), np.ones(rows, "f4"))
    children = np.array([0, y.shape[1]], np.int64)
    level = solve_level(
        as_csr(x),
        instances=everyone,
        positives=RowLists.from_csr(as_csr(y)),
        children=children,
        params=params,
        **options,
    )
    return level, dense_weights(level, children, x.shape[1])


def random_problem(seed, rows=40, columns=12, labels=3):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    y = (rng.random((rows, labels)) < 0.3).astype(float)
    y[0] = 1
    y[1] = 0
    return x.astype(np.float32), y


@pytest.mark.parametrize("C", [0.3, 1.0, 5.0])
def test_squared_hinge_is_liblinears_optimum(C):
    x, y = random_problem(1)
    level, weights = one_cluster(x, y, RankerParams(C=C, **EXACT))
    for label in range(y.shape[1]):
        peer = LinearSVC(
            C=C, loss="squared_hinge", dual=True, tol=1e-8, intercept_scaling=1, max_iter=100_000
        ).fit(x, y[:, label])
        np.testing.assert_allclose(weights[label], peer.coef_[0], atol=2e-3)
        assert level.bias[label] == pytest.approx(peer.intercept_[0], abs=2e-3)


@given(
    seed=st.integers(0, 1000),
    loss=st.sampled_from(["squared_hinge", "logistic"]),
    positive_weight=st.sampled_from([0.5, 1.0, 3.0]),
    bias=st.sampled_from([0.0, 1.0, 2.0]),
)
@settings(max_examples=12, deadline=None)
def test_smooth_losses_reach_the_optimum(seed, loss, positive_weight, bias):
    x, y = random_problem(seed)
    params = RankerParams(loss=loss, positive_weight=positive_weight, bias=bias, **EXACT)
    level, weights = one_cluster(x, y, params)
    rows = np.hstack([x, np.full((len(x), 1), bias)]).astype(np.float64)
    for label in range(y.shape[1]):
        signs = 2 * y[:, label] - 1
        costs = np.where(signs > 0, positive_weight, 1.0)
        expected = solve(rows, signs, costs, loss)
        np.testing.assert_allclose(weights[label], expected[:-1], atol=5e-3)
        assert level.bias[label] == pytest.approx(expected[-1], abs=5e-3)


def test_hinge_reaches_the_objective_of_liblinear():
    x, y = random_problem(2)
    params = RankerParams(loss="hinge", **EXACT)
    level, weights = one_cluster(x, y, params)
    rows = np.hstack([x, np.ones((len(x), 1))])
    for label in range(y.shape[1]):
        peer = LinearSVC(loss="hinge", dual=True, tol=1e-6, max_iter=200_000).fit(x, y[:, label])
        signs, costs = 2 * y[:, label] - 1, np.ones(len(x))
        ours = np.append(weights[label], level.bias[label])
        theirs = np.append(peer.coef_[0], peer.intercept_[0])
        assert primal_objective(ours, rows, signs, costs, "hinge") == pytest.approx(
            primal_objective(theirs, rows, signs, costs, "hinge"), rel=1e-3
        )


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
@pytest.mark.parametrize("labels", [1, 4, 5, 8, 9, 16, 17, 37])
def test_blocks_of_any_width_reach_each_labels_own_optimum(loss, labels):
    x, y = random_problem(3, rows=60, labels=labels)
    params = RankerParams(loss=loss, **EXACT)
    together, weights = one_cluster(x, y, params)
    for label in range(labels):
        alone, alone_weights = one_cluster(x, y[:, [label]], params)
        np.testing.assert_allclose(weights[label], alone_weights[0], atol=3e-3)
        assert together.bias[label] == pytest.approx(alone.bias[0], abs=3e-3)


def test_an_instance_without_features_and_bias_does_no_harm():
    x, y = random_problem(7)
    x[5] = 0
    for loss in ("hinge", "squared_hinge"):
        _, weights = one_cluster(x, y, RankerParams(loss=loss, bias=0.0))
        assert np.isfinite(weights).all()


def test_small_weights_are_dropped_and_only_those():
    x, y = random_problem(4)
    _, full = one_cluster(x, y, RankerParams(threshold=0.0))
    _, cut = one_cluster(x, y, RankerParams(threshold=0.5))
    assert np.array_equal(cut, np.where(np.abs(full) >= 0.5, full, 0))
    assert 0 < (cut != 0).sum() < (full != 0).sum()


def test_a_label_without_positives_is_a_certain_negative():
    x, y = random_problem(5)
    y[:, 1] = 0
    level, weights = one_cluster(x, y, RankerParams(bias=2.0))
    assert not weights[1].any()
    assert level.bias[1] * 2.0 == -1.0


def test_costs_of_positives_scale_with_their_weights():
    x, y = random_problem(6)
    level, weights = one_cluster(x, 3 * y, RankerParams(**EXACT))
    expected_level, expected = one_cluster(x, y, RankerParams(positive_weight=3.0, **EXACT))
    np.testing.assert_allclose(weights, expected, atol=1e-4)
    np.testing.assert_allclose(level.bias, expected_level.bias, atol=1e-4)


def several_clusters(seed):
    rng = np.random.default_rng(seed)
    x = sparse.random_array((150, 40), density=0.2, rng=rng, dtype=np.float32).tocsr()
    y = sparse.csr_array(rng.random((150, 12)) < 0.1)
    children = np.array([0, 5, 9, 12], np.int64)
    groups = sparse.csr_array(np.repeat(np.eye(3), np.diff(children), axis=0))
    above = as_csr(y @ groups)
    return x, {
        "instances": RowLists.from_csr(above),
        "positives": RowLists.from_csr(as_csr(y)),
        "children": children,
    }


def test_bits_do_not_depend_on_threads_or_blocks():
    x, level = several_clusters(0)
    one = solve_level(x, **level, params=RankerParams(), threads=1)
    four = solve_level(x, **level, params=RankerParams(), threads=4)
    for name, array in one.arrays().items():
        assert np.array_equal(array, four.arrays()[name]), name


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_bits_do_not_depend_on_threads_that_share_a_cluster(loss):
    x, y = random_problem(8, rows=100, labels=53)
    one, _ = one_cluster(x, y, RankerParams(loss=loss), threads=1)
    three, _ = one_cluster(x, y, RankerParams(loss=loss), threads=3)
    for name, array in one.arrays().items():
        assert np.array_equal(array, three.arrays()[name]), name


def test_joined_parts_equal_the_whole():
    x, level = several_clusters(1)
    whole = solve_level(x, **level, params=RankerParams())
    rows, entries = whole.chunk_rows, whole.chunk_entries
    parts = [
        ChunkedWeights(
            rows[a : b + 1] - rows[a],
            entries[a : b + 1] - entries[a],
            whole.features[rows[a] : rows[b]],
            whole.row_start[rows[a] + a : rows[b] + b],
            whole.children[entries[a] : entries[b]],
            whole.values[entries[a] : entries[b]],
            whole.bias[level["children"][a] : level["children"][b]],
        )
        for a, b in ((0, 1), (1, 3))
    ]
    joined = ChunkedWeights.concat(parts)
    for name, array in whole.arrays().items():
        assert np.array_equal(array, joined.arrays()[name]), name


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400))
def test_blocks_cover_all_parents_once(work):
    blocks = _blocks(np.array(work, np.int64))
    assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
    assert blocks[-1][1] == len(work)


def test_bad_lists_are_refused():
    x, level = several_clusters(2)
    with pytest.raises(DataError, match="one list per parent"):
        solve_level(x, **(level | {"children": np.array([0, 12])}), params=RankerParams())
    wild = RowLists(level["positives"].indptr, level["positives"].rows + 150, np.ones(999, "f4"))
    with pytest.raises(DataError, match="outside"):
        solve_level(x, **(level | {"positives": wild}), params=RankerParams())
    nobody = RowLists(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="missing from its cluster"):
        solve_level(x, **(level | {"instances": nobody}), params=RankerParams())


def test_too_wide_a_cluster_is_refused():
    lists = RowLists(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    wide = RowLists(np.zeros(70_001, np.int64), lists.rows, lists.weights)
    with pytest.raises(DataError, match="max_leaf_size"):
        solve_level(
            as_csr(np.eye(2)),
            instances=lists,
            positives=wide,
            children=np.array([0, 70_000]),
            params=RankerParams(),
        )
