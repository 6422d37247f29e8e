import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.svm import LinearSVC

from labelgrove import _native
from labelgrove.core.arrays import as_csr
from labelgrove.core.scratch import ColumnLists
from labelgrove.data.features import Features, as_features
from labelgrove.errors import DataError
from labelgrove.ranking.solver import LevelTask, RankerParams, row_lists, solve_level
from reference.solver import level_weights, primal_objective, solve
from support.threads import on_threads

pytestmark = pytest.mark.kernel

EXACT = {"eps": 1e-5, "max_iterations": 20_000, "threshold": 0.0}


def solve_lists(features, *, on_block=None, **task):
    return solve_level(as_features(features), LevelTask(**task), on_block=on_block)


def one_cluster(x, y, params, *, dense=0, **options):
    """One parent with all documents; the last ``dense`` columns are the dense block."""
    rows, terms = x.shape[0], x.shape[1] - dense
    everyone = row_lists(as_csr(np.ones((rows, 1))))
    children = np.array([0, y.shape[1]], np.int64)
    blocks = Features(as_csr(x[:, :terms]), x[:, terms:])
    level = solve_lists(
        blocks if dense else as_csr(x),
        instances=everyone,
        positives=row_lists(as_csr(y)),
        children=children,
        params=params,
        **options,
    )
    return level, level_weights(level, children, terms, dense)


def random_problem(seed, rows=40, columns=12, labels=3):
    rng = np.random.default_rng(seed)
    x = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    y = (rng.random((rows, labels)) < 0.3).astype(float)
    y[0] = 1
    y[1] = 0
    return x.astype(np.float32), y


# (columns, how many of them are dense): many columns are solved by a Gram matrix if some are dense.
SHAPES = [(12, 0), (12, 12), (12, 5), (90, 0), (90, 90), (90, 40)]


def test_the_shapes_cover_both_routes():
    routes = [_native.gram_pays(40, 1, 0.4 * (columns - dense), dense) for columns, dense in SHAPES]
    assert routes == [False] * 4 + [True] * 2


@pytest.mark.parametrize("seed", range(3))
def test_coarse_stopping_ends_close_to_the_optimum(seed):
    # Most instances are far from every positive, so they rest from the first sweep on.
    x, y = random_problem(seed, rows=1500, columns=200, labels=20)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y[60:] = 0
    objectives = {}
    for eps in (0.6, 1e-4):
        params = RankerParams(eps=eps, max_iterations=1000, threshold=0.0)
        level, weights = one_cluster(x, y, params)
        rows = np.hstack([x, np.ones((len(x), 1))])
        objectives[eps] = [
            primal_objective(
                np.append(weights[label], level.bias[label]),
                rows,
                np.where(y[:, label] > 0, 1.0, -1.0),
                np.ones(len(x)),
                "squared_hinge",
            )
            for label in range(y.shape[1])
        ]
    ratios = np.divide(objectives[0.6], objectives[1e-4])
    assert ratios.min() > 0.999 and ratios.mean() < 1.02 and ratios.max() < 1.1


@given(
    seed=st.integers(0, 1000),
    loss=st.sampled_from(["squared_hinge", "logistic"]),
    positive_weight=st.sampled_from([0.5, 1.0, 3.0]),
    bias=st.sampled_from([0.0, 1.0, 2.0]),
    shape=st.sampled_from(SHAPES),
)
@settings(max_examples=24)
def test_smooth_losses_reach_the_optimum(seed, loss, positive_weight, bias, shape):
    x, y = random_problem(seed, columns=shape[0])
    params = RankerParams(loss=loss, positive_weight=positive_weight, bias=bias, **EXACT)
    level, weights = one_cluster(x, y, params, dense=shape[1])
    rows = np.hstack([x, np.full((len(x), 1), bias)]).astype(np.float64)
    for label in range(y.shape[1]):
        signs = 2 * y[:, label] - 1
        costs = np.where(signs > 0, positive_weight, 1.0)
        expected = solve(rows, signs, costs, loss)
        np.testing.assert_allclose(weights[label], expected[:-1], atol=5e-3)
        assert level.bias[label] == pytest.approx(expected[-1], abs=5e-3)


@pytest.mark.parametrize(("columns", "dense"), SHAPES)
def test_hinge_reaches_the_objective_of_liblinear(columns, dense):
    x, y = random_problem(2, columns=columns)
    params = RankerParams(loss="hinge", **EXACT)
    level, weights = one_cluster(x, y, params, dense=dense)
    rows = np.hstack([x, np.ones((len(x), 1))])
    for label in range(y.shape[1]):
        peer = LinearSVC(loss="hinge", dual=True, tol=1e-6, max_iter=200_000).fit(x, y[:, label])
        signs, costs = 2 * y[:, label] - 1, np.ones(len(x))
        ours = np.append(weights[label], level.bias[label])
        theirs = np.append(peer.coef_[0], peer.intercept_[0])
        assert primal_objective(ours, rows, signs, costs, "hinge") == pytest.approx(
            primal_objective(theirs, rows, signs, costs, "hinge"), rel=3e-3
        )


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
@pytest.mark.parametrize("labels", [1, 4, 5, 8, 9, 16, 17, 37])
def test_blocks_of_any_width_reach_each_labels_own_optimum(loss, labels):
    x, y = random_problem(3, rows=60, labels=labels)
    params = RankerParams(loss=loss, **EXACT)
    together, weights = one_cluster(x, y, params)
    for label in range(labels):
        alone, alone_weights = one_cluster(x, y[:, [label]], params)
        np.testing.assert_allclose(weights[label], alone_weights[0], atol=3e-3)
        assert together.bias[label] == pytest.approx(alone.bias[0], abs=3e-3)


def test_small_weights_are_dropped_and_empty_instances_do_no_harm():
    x, y = random_problem(7)
    x[5] = 0
    for loss in ("hinge", "squared_hinge"):
        _, weights = one_cluster(x, y, RankerParams(loss=loss, bias=0.0))
        assert np.isfinite(weights).all()
    x, y = random_problem(4)
    _, full = one_cluster(x, y, RankerParams(threshold=0.0))
    _, cut = one_cluster(x, y, RankerParams(threshold=0.5))
    assert np.array_equal(cut, np.where(np.abs(full) >= 0.5, full, 0))
    assert 0 < (cut != 0).sum() < (full != 0).sum()


def test_labels_without_positives_and_with_weights():
    x, y = random_problem(5)
    y[:, 1] = 0
    level, weights = one_cluster(x, y, RankerParams(bias=2.0))
    assert not weights[1].any()
    assert level.bias[1] * 2.0 == -1.0
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
        "instances": row_lists(above),
        "positives": row_lists(as_csr(y)),
        "children": children,
    }


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
@pytest.mark.parametrize(("columns", "dense"), [(12, 0), (12, 5), (300, 150)])
def test_bits_do_not_depend_on_threads_that_share_a_cluster(loss, columns, dense):
    x, y = random_problem(8, rows=100, columns=columns, labels=53)
    one, _ = on_threads(1, one_cluster, x, y, RankerParams(loss=loss), dense=dense)
    three, _ = on_threads(3, one_cluster, x, y, RankerParams(loss=loss), dense=dense)
    for name, array in one.arrays().items():
        assert np.array_equal(array, three.arrays()[name]), name


def test_bad_lists_and_too_wide_clusters_are_refused():
    x, level = several_clusters(2)
    with pytest.raises(DataError, match="one list per parent"):
        solve_lists(x, **(level | {"children": np.array([0, 12])}), params=RankerParams())
    wild = ColumnLists(level["positives"].indptr, level["positives"].rows + 150, np.ones(999, "f4"))
    with pytest.raises(DataError, match="outside"):
        solve_lists(x, **(level | {"positives": wild}), params=RankerParams())
    nobody = ColumnLists(np.zeros(4, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="missing from its cluster"):
        solve_lists(x, **(level | {"instances": nobody}), params=RankerParams())

    lists = ColumnLists(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32))
    wide = ColumnLists(np.zeros(70_001, np.int64), lists.rows, lists.values)
    with pytest.raises(DataError, match="max_leaf_size"):
        solve_lists(
            as_csr(np.eye(2)),
            instances=lists,
            positives=wide,
            children=np.array([0, 70_000]),
            params=RankerParams(),
        )


def test_half_precision_documents_are_read_as_what_they_are():
    x, y = random_problem(9)
    halves = x.astype(np.float16)
    lists = {
        "instances": row_lists(as_csr(np.ones((40, 1)))),
        "positives": row_lists(as_csr(y)),
        "children": np.array([0, 3]),
        "params": RankerParams(),
    }
    one, two = (solve_lists(m, **lists) for m in (halves, halves.astype(np.float32)))
    assert np.array_equal(one.dense, two.dense)
    assert one.dense.any()


@pytest.mark.parametrize(("columns", "dense"), [(12, 5), (90, 40)])
def test_dense_features_may_be_regularised_by_themselves(columns, dense):
    x, y = random_problem(10, columns=columns)
    params = RankerParams(C=0.5, dense_C=2.0, **EXACT)
    level, weights = one_cluster(x, y, params, dense=dense)
    scales = np.repeat([1.0, 2.0, 1.0], [columns - dense, dense, 1])
    rows = np.hstack([x, np.ones((len(x), 1))]) * scales
    for label in range(y.shape[1]):
        expected = scales * solve(rows, 2 * y[:, label] - 1, np.full(len(x), 0.5), "squared_hinge")
        np.testing.assert_allclose(weights[label], expected[:-1], atol=3e-3)
        assert level.bias[label] == pytest.approx(expected[-1], abs=3e-3)


def test_each_block_is_cut_by_its_own_limits():
    x, y = random_problem(11)
    _, full = one_cluster(x, y, RankerParams(threshold=0.0), dense=6)
    _, cut = one_cluster(x, y, RankerParams(threshold=0.3, dense_threshold=0.2), dense=6)
    limits = np.repeat([0.3, 0.2], 6)
    assert np.array_equal(cut, np.where(np.abs(full) >= limits, full, 0))
    params = RankerParams(threshold=0.0, max_nonzeros=2, dense_max_nonzeros=3)
    _, few = one_cluster(x, y, params, dense=6)
    for part, most in ((slice(0, 6), 2), (slice(6, 12), 3)):
        least = np.sort(np.abs(full[:, part]), axis=1)[:, [-most]]
        assert np.array_equal(
            few[:, part], np.where(np.abs(full[:, part]) >= least, full[:, part], 0)
        )


def given_weights(seed, labels, columns, dense):
    rng = np.random.default_rng(seed)
    weights, bias = rng.standard_normal((labels, columns)), rng.standard_normal(labels)
    blocks = Features(as_csr(weights[:, : columns - dense]), weights[:, columns - dense :])
    return np.hstack([weights, bias[:, None]]), (blocks.parts(), bias.astype(np.float32))


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
@pytest.mark.parametrize(("columns", "dense"), SHAPES)
def test_weights_may_be_regularised_towards_given_ones(loss, columns, dense):
    x, y = random_problem(14, columns=columns)
    x[:, 0] = 0  # a feature that only the given weights have
    y[:, 2] = 0  # given weights are kept where nothing is learnt but that all are negative
    centre, parts = given_weights(14, 3, columns, dense)
    params = RankerParams(loss=loss, bias=2.0, **EXACT)
    level, weights = one_cluster(x, y, params, dense=dense, centre=parts)
    rows = np.hstack([x, np.full((len(x), 1), 2.0)]).astype(np.float64)
    rng = np.random.default_rng(0)
    for label in range(3):
        signs, costs = 2 * y[:, label] - 1, np.ones(len(x))
        found = np.append(weights[label], level.bias[label])
        assert found[0] == pytest.approx(centre[label, 0], abs=2e-3)
        if loss != "hinge":
            np.testing.assert_allclose(
                found, solve(rows, signs, costs, loss, centre[label]), atol=6e-3
            )
        best = primal_objective(found, rows, signs, costs, loss, centre[label])
        for size in (0.1, 0.5):
            other = found + size * rng.standard_normal(len(found)) / np.sqrt(len(found))
            assert primal_objective(other, rows, signs, costs, loss, centre[label]) > best - 1e-3


@given(seed=st.integers(0, 100), loss=st.sampled_from(["squared_hinge", "logistic", "hinge"]))
@settings(max_examples=12)
def test_labels_may_have_negatives_of_their_own(seed, loss):
    rng = np.random.default_rng(seed)
    columns, dense = SHAPES[seed % len(SHAPES)]
    x, y = random_problem(seed, columns=columns, labels=5)
    seen = (rng.random(y.shape) < 0.5) * rng.integers(1, 4, y.shape) / 2
    params = RankerParams(loss=loss, **EXACT)
    level, weights = one_cluster(x, y, params, dense=dense, negatives=row_lists(as_csr(seen)))
    for label in range(5):
        part = (y[:, label] > 0) | (seen[:, label] > 0)
        rows = np.hstack([x, np.ones((len(x), 1))])[part].astype(np.float64)
        signs = 2 * y[part, label] - 1
        costs = np.where(signs > 0, 1.0, seen[part, label])
        found = np.append(weights[label], level.bias[label])
        if loss == "hinge":
            peer = LinearSVC(loss="hinge", dual=True, tol=1e-6, max_iter=200_000)
            peer.fit(x[part], signs, sample_weight=costs)
            theirs = np.append(peer.coef_[0], peer.intercept_[0])
            assert primal_objective(found, rows, signs, costs, loss) == pytest.approx(
                primal_objective(theirs, rows, signs, costs, loss), rel=2e-3, abs=1e-3
            )
        else:
            np.testing.assert_allclose(found, solve(rows, signs, costs, loss), atol=5e-3)
