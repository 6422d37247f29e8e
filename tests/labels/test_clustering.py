"""Trees that workers grow in pieces are those of one process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import _native
from labelgrove.data.blocks import Blocks
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.errors import DataError
from labelgrove.labels.clustering import halves
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.tree import TreeParams, build_tree
from support.blocks import KINDS, as_blocks

pytestmark = pytest.mark.kernel


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


def points(rows, kind="sparse", density=0.1, seed=0):
    random = np.random.default_rng(seed)
    return as_blocks(
        l2_normalised(sparse.random_array((rows, 90), density=density, rng=random)), kind
    )


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
    labels = points(rows, kind, density)
    params = TreeParams(kind=tree, branching=branching, max_leaf_size=leaf, max_depth=5)
    blocks = Blocks.cut(Workers(workers), labels, size)
    assert build_tree(blocks, params, seed=seed) == build_tree(labels, params, seed=seed)


@pytest.mark.parametrize(
    ("workers", "tasks"),
    [(2, [1000] + [125] * 8), (9, [1000] + [125] * 8 + [15, 16, 15, 16, 16, 15, 16, 16] * 8)],
)
def test_a_task_gets_only_the_rows_of_its_subtree(workers, tasks):
    engine = Workers(workers)
    build_tree(Blocks.cut(engine, points(1000), 300), TreeParams(max_leaf_size=2))
    assert engine.rows[:9] == tasks[:9]
    assert sorted(engine.rows[9:]) == sorted(tasks[9:])


def test_a_task_gets_only_the_rows_of_nodes_that_are_split():
    engine, labels = Workers(2), points(600)
    params = TreeParams(kind="kway", branching=5, max_leaf_size=110, max_depth=3)
    tree = build_tree(Blocks.cut(engine, labels, 300), params)
    sizes = np.bincount(tree.parents[1][tree.parents[2]])
    assert engine.rows[0] == 600
    assert 0 < sizes[sizes > 110].sum() == sum(engine.rows[1:]) < 600


def test_a_subtree_of_the_kernel_needs_its_rows_alone():
    """The promise on which the pieces depend: from a depth at which the kernel copies rows."""
    parts, layers = points(400).parts(), _native.KMEANS_LAYERS_PER_COPY
    options = {"max_iterations": 20, "seed": 5, "threads": 1}
    whole = _native.balanced_kmeans(parts, depth=layers + 2, **options)
    top = _native.balanced_kmeans(parts, depth=layers, **options)
    bounds = halves(400, layers)
    for number in range(2**layers):
        place = slice(bounds[number], bounds[number + 1])
        own = points(400).take(top[place].astype(np.int64))
        root = 2**layers + number
        below = _native.balanced_kmeans(own.parts(), depth=2, root=root, **options)
        np.testing.assert_array_equal(top[place][below], whole[place])


def test_progress_reaches_all_labels():
    calls = []
    engine = Workers(2)
    build_tree(
        Blocks.cut(engine, points(500), 100),
        TreeParams(max_leaf_size=4),
        progress=lambda *pair: calls.append(pair),
    )
    assert calls[-1] == (500, 500)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_errors_are_those_of_one_process():
    bad = Features(dense=np.full((200, 2), np.nan, np.float32))
    with pytest.raises(DataError, match=r"label_features: .* contains NaN"):
        build_tree(Blocks.cut(Workers(2), bad), TreeParams(max_leaf_size=4))
