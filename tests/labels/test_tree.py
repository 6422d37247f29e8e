from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import _native
from labelgrove.core.arrays import as_csr
from labelgrove.data.blocks import Blocks
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.tree import (
    LabelTree,
    TreeParams,
    build_tree,
    children_of,
    halves,
    nodes_needed,
)
from reference.kmeans import balanced_kmeans
from reference.kway import kway_levels
from support.blocks import KINDS, as_blocks
from support.threads import on_threads

pytestmark = pytest.mark.kernel


def random_points(rows, columns=30, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    return l2_normalised(sparse.random_array((rows, columns), density=density, rng=rng))


@pytest.mark.parametrize(
    ("labels", "leaf", "branching", "top", "widths"),
    [
        (3956, 16, 16, None, (16, 256, 3956)),
        (3956, 16, 8, None, (4, 32, 256, 3956)),
        (670_091, 32, 16, 128, (128, 2048, 32768, 670_091)),
        (670_091, 100, 32, None, (8, 256, 8192, 670_091)),
        (100, 100, 16, None, (100,)),
        (101, 100, 16, None, (2, 101)),
        (7, 1, 3, None, (2, 4, 7)),  # never more clusters than labels
        (1, 100, 16, None, (1,)),
    ],
)
def test_shape(labels, leaf, branching, top, widths):
    params = TreeParams(branching=branching, max_leaf_size=leaf, top_width=top, kmeans_iterations=1)
    tree = build_tree(sparse.csr_array((labels, 3)), params)
    assert tree.widths == widths
    sizes = np.diff(tree.children(len(widths) - 1))
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_kmeans_agrees_with_the_literal_version(seed, kind):
    points = random_points(83, seed=seed)
    parts = as_blocks(points, kind).parts()
    found = _native.balanced_kmeans(parts, depth=3, max_iterations=20, seed=seed, threads=1)
    expected = balanced_kmeans(points.to_csr().toarray().astype(np.float64), 3, 20, seed)
    assert found.tolist() == expected


@given(
    rows=st.integers(2, 40),
    columns=st.integers(1, 70),
    tree=st.sampled_from(["balanced", "kway"]),
    half=st.booleans(),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=40)
def test_dense_columns_count_as_sparse_ones_do(rows, columns, tree, half, seed):
    """Of numbers that add up without rounding, the order of additions does not matter."""
    rng = np.random.default_rng(seed)
    params = TreeParams(kind=tree, branching=2, max_leaf_size=3, kmeans_iterations=1)
    if tree == "balanced":
        points = rng.choice([0, 0, 0.5, 1, -1, 2], (rows, columns)).astype(np.float32)
    else:  # its first centres are scaled, so there may be only one number per row
        points = np.eye(columns, dtype=np.float32)[rng.integers(0, columns, rows)]
        points *= rng.choice([0.5, 1, 2], (rows, 1)).astype(np.float32)
        params.kmeans_iterations = 20
    trees = []
    for kind in KINDS:
        blocks = as_blocks(points, kind)
        if half and blocks.dense is not None:
            blocks = Features(blocks.sparse, blocks.dense.astype(np.float16))
        trees.append(build_tree(blocks, params, seed=seed))
    assert trees[0] == trees[1] == trees[2]


@given(
    rows=st.integers(1, 60),
    density=st.sampled_from([0.0, 0.05, 0.5]),
    leaf=st.integers(1, 20),
    branching=st.one_of(st.integers(2, 5), st.integers(6, 80)),
    depth=st.integers(1, 4),
    tree=st.sampled_from(["balanced", "kway"]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=120)
def test_trees_are_valid_and_do_not_depend_on_threads(
    rows, density, leaf, branching, depth, tree, kind, seed
):
    points = as_blocks(random_points(rows, density=density), kind)
    params = TreeParams(kind=tree, branching=branching, max_leaf_size=leaf, max_depth=depth)
    one = on_threads(1, build_tree, points, params, seed=seed)
    assert one == on_threads(3, build_tree, points, params, seed=seed)
    assert sorted(one.leaf_labels.tolist()) == list(range(rows))
    levels = len(one.parents)
    if tree == "balanced":
        assert np.diff(one.children(levels - 1)).max() <= max(leaf, 2)
        return
    assert levels <= depth
    assert all(np.diff(one.children(level)).max() <= branching for level in range(levels - 1))
    if levels > 1:
        assert all(labels == sorted(labels) for labels in clusters(one, levels - 2))


@pytest.mark.parametrize("threads", [2, 8, 16])
def test_large_trees_do_not_depend_on_threads(threads):
    """So large that a split has work for several threads, and some layers fewer nodes than them."""
    points = as_csr(sparse.random_array((4000, 300), density=0.2, rng=0))
    params = TreeParams(max_leaf_size=60)
    one = on_threads(1, build_tree, points, params)
    assert one == on_threads(threads, build_tree, points, params)


def test_seed_matters_and_is_checked():
    points = random_points(64)
    params = TreeParams(max_leaf_size=8)
    assert build_tree(points, params, seed=1) == build_tree(points, params, seed=1)
    assert build_tree(points, params, seed=1) != build_tree(points, params, seed=2)
    pytest.raises(ConfigError, build_tree, points, params, seed=-1).match("seed")


def test_state_round_trip_and_read_only():
    tree = build_tree(random_points(20), TreeParams(branching=2, max_leaf_size=4))
    assert LabelTree.from_state(tree.state()) == tree
    with pytest.raises(ValueError, match="read-only"):
        tree.leaf_labels[0] = 1
    assert tree.leaf_positions[tree.leaf_labels].tolist() == list(range(20))


@pytest.mark.parametrize(
    ("parents", "labels", "message"),
    [
        ([], [0], "at least one level"),
        ([[0, 1]], [0, 1], "level 0"),
        ([[0, 0], [0, 0]], [0, 1], "level 1"),
        ([[0, 0], [1, 0]], [0, 1], "level 1"),
        ([[0, 0]], [0], "2 leaves but 1"),
        ([[0, 0]], [0, 0], "column 1 is missing"),
        ([[0, 0]], [0, 5], "column 1 is missing"),
        ([[[0]]], [0], "one-dimensional"),
    ],
)
def test_malformed_trees_are_refused(parents, labels, message):
    pytest.raises(DataError, LabelTree, parents, labels).match(message)


def test_what_is_no_tree():
    for nothing in (as_csr(np.zeros((0, 3))), np.zeros((0, 3))):
        pytest.raises(DataError, build_tree, nothing).match("no labels")
    pytest.raises(DataError, build_tree, np.full((200, 2), np.nan)).match("label_features: the")


def test_coarse_trees():
    tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    assert tree.coarsen(1) == LabelTree([[0, 0]], [0, 1])
    assert tree.coarsen(2) is tree
    for levels in (0, 3):
        pytest.raises(ConfigError, tree.coarsen, levels).match("levels: must be 1 to 2")


@given(seed=st.integers(0, 200))
@settings(max_examples=30)
def test_children_of_nodes_are_their_ranges(seed):
    random = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(random.integers(0, 4, 6))])
    nodes = random.integers(0, 6, random.integers(0, 8))
    children, counts = children_of(nodes, starts)
    ranges = [range(starts[node], starts[node + 1]) for node in nodes]
    assert children.tolist() == [child for own in ranges for child in own]
    assert counts.tolist() == [len(own) for own in ranges]


@given(seed=st.integers(0, 200), k=st.integers(1, 12))
@settings(max_examples=60)
def test_needed_nodes_are_the_fewest_that_always_suffice(seed, k):
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, 5)
    if not counts.any():
        return
    (needed,) = nodes_needed([counts], k)
    smallest = np.sort(counts[counts > 0])
    assert smallest[:needed].sum() >= min(k, counts.sum())
    if needed > 1:
        assert smallest[: needed - 1].sum() < k


def test_needed_nodes_go_up_level_by_level():
    # Three labels may need both clusters of the lower level, and these both of the upper one.
    assert nodes_needed([np.array([1, 1]), np.array([2, 5])], 3) == [2, 2]
    assert nodes_needed([np.array([1, 1]), np.array([3, 5])], 3) == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["balanced", "kway"])
def test_growing_a_tree_tells_how_far_it_is(kind):
    rng = np.random.default_rng(0)
    points = sparse.random_array((90_000, 2_000), density=0.005, rng=rng, dtype=np.float32)
    told = []
    params = TreeParams(kind=kind, max_leaf_size=20)
    tree = on_threads(
        1, build_tree, points.tocsr(), params, progress=lambda *pair: told.append(pair)
    )
    done = [pair[0] for pair in told]
    assert len(told) > 1 and {pair[1] for pair in told} == {90_000}
    assert done == sorted(done) and 0 <= done[0] < done[-1] <= 90_000
    assert tree == on_threads(2, build_tree, points.tocsr(), params)


def clusters(tree, level):
    """The labels below each node of a level."""
    starts = np.arange(tree.labels + 1)
    for number in range(len(tree.parents) - 1, level, -1):
        starts = starts[tree.children(number)]
    return [tree.leaf_labels[a:b].tolist() for a, b in pairwise(starts)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("density", [0.02, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_kway_agrees_with_the_literal_version(seed, density, kind):
    points = as_blocks(random_points(150, density=density, seed=seed), kind)
    params = TreeParams(kind="kway", branching=6, max_leaf_size=9, max_depth=3)
    tree = build_tree(points, params, seed=seed)
    expected = kway_levels(points.to_csr().toarray().astype(np.float64), 6, 9, 3, 20, seed)
    assert len(expected) == 2
    for level, groups in enumerate(expected):
        assert [sorted(labels) for labels in clusters(tree, level)] == groups
    assert len(tree.parents) == len(expected) + 1


@pytest.mark.parametrize("kind", KINDS)
def test_labels_without_features_are_dealt_out(kind):
    points = np.zeros((60, 4))
    points[:12] = np.eye(4)[np.arange(12) % 4]
    params = TreeParams(kind="kway", branching=4, max_leaf_size=5, max_depth=2)
    tree = build_tree(as_blocks(points, kind), params, seed=4)
    sizes = [sum(label >= 12 for label in labels) for labels in clusters(tree, 0)]
    assert max(sizes) - min(sizes) <= 1
    none = build_tree(as_blocks(np.zeros((60, 4)), kind), params)
    assert [len(labels) for labels in clusters(none, 0)] == [15] * 4


def test_identical_and_few_labels_stay_together():
    tree = build_tree(np.ones((30, 2)), TreeParams(kind="kway", branching=4, max_leaf_size=5))
    assert tree.widths == (1, 1, 30)
    assert build_tree(np.eye(5), TreeParams(kind="kway", max_leaf_size=5)).widths == (5,)


def blocks(rows, density=0.1, kind="sparse"):
    return as_blocks(random_points(rows, 90, density), kind)


class Workers(Engine):
    """Notes how many rows each task was given."""

    def __init__(self, workers):
        self.workers = workers
        self.rows = []

    def call(self, function, *arguments, gpu=False):
        if function.__name__ in ("halve_piece", "split_nodes"):
            values = [getattr(argument, "value", None) for argument in arguments]
            self.rows.append(sum(len(value) for value in values if isinstance(value, Features)))
        return super().call(function, *arguments)


@given(
    rows=st.integers(1, 300),
    density=st.sampled_from([0.0, 0.02, 0.3]),
    leaf=st.integers(1, 12),
    branching=st.integers(2, 5),
    tree=st.sampled_from(["balanced", "kway"]),
    kind=st.sampled_from(KINDS),
    workers=st.sampled_from([1, 3, 9, 70]),
    size=st.integers(40, 400),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=60)
def test_trees_have_the_same_bits(rows, density, leaf, branching, tree, kind, workers, size, seed):
    labels = blocks(rows, density, kind)
    params = TreeParams(kind=tree, branching=branching, max_leaf_size=leaf, max_depth=5)
    cut = Blocks.cut(Workers(workers), labels, size)
    assert build_tree(cut, params, seed=seed) == build_tree(labels, params, seed=seed)


@pytest.mark.parametrize(
    ("workers", "tasks"),
    [(2, [1000] + [125] * 8), (9, [1000] + [125] * 8 + [15, 16, 15, 16, 16, 15, 16, 16] * 8)],
)
def test_a_task_gets_only_the_rows_of_its_subtree(workers, tasks):
    engine = Workers(workers)
    build_tree(Blocks.cut(engine, blocks(1000), 300), TreeParams(max_leaf_size=2))
    assert engine.rows[:9] == tasks[:9]
    assert sorted(engine.rows[9:]) == sorted(tasks[9:])


def test_a_task_gets_only_the_rows_of_nodes_that_are_split():
    engine, labels = Workers(2), blocks(600)
    params = TreeParams(kind="kway", branching=5, max_leaf_size=110, max_depth=3)
    tree = build_tree(Blocks.cut(engine, labels, 300), params)
    sizes = np.bincount(tree.parents[1][tree.parents[2]])
    assert engine.rows[0] == 600
    assert 0 < sizes[sizes > 110].sum() == sum(engine.rows[1:]) < 600


def test_a_subtree_of_the_kernel_needs_its_rows_alone():
    """The promise on which the pieces depend: from a depth at which the kernel copies rows."""
    labels = blocks(400)
    parts, layers = labels.parts(), _native.KMEANS_LAYERS_PER_COPY
    options = {"max_iterations": 20, "seed": 5, "threads": 1}
    whole = _native.balanced_kmeans(parts, depth=layers + 2, **options)
    top = _native.balanced_kmeans(parts, depth=layers, **options)
    bounds = halves(400, layers)
    for number in range(2**layers):
        place = slice(bounds[number], bounds[number + 1])
        own = labels.take(top[place].astype(np.int64))
        root = 2**layers + number
        below = _native.balanced_kmeans(own.parts(), depth=2, root=root, **options)
        np.testing.assert_array_equal(top[place][below], whole[place])


def test_progress_reaches_all_labels():
    calls = []
    engine = Workers(2)
    build_tree(
        Blocks.cut(engine, blocks(500), 100),
        TreeParams(max_leaf_size=4),
        progress=lambda *pair: calls.append(pair),
    )
    assert calls[-1] == (500, 500)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_errors_are_those_of_one_process():
    bad = Features(dense=np.full((200, 2), np.nan, np.float32))
    with pytest.raises(DataError, match=r"label_features: .* contains NaN"):
        build_tree(Blocks.cut(Workers(2), bad), TreeParams(max_leaf_size=4))
