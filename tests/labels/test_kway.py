from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.labels.features import l2_normalised
from labelgrove.labels.tree import TreeParams, build_tree
from reference.kway import kway_levels
from support.blocks import KINDS, as_blocks
from support.threads import on_threads

pytestmark = pytest.mark.kernel


def random_points(rows, columns=30, density=0.2, seed=0):
    rng = np.random.default_rng(seed)
    return l2_normalised(sparse.random_array((rows, columns), density=density, rng=rng))


def clusters(tree, level):
    """The labels below each node of a level."""
    starts = np.arange(tree.labels + 1)
    for number in range(len(tree.parents) - 1, level, -1):
        starts = starts[tree.children(number)]
    return [tree.leaf_labels[a:b].tolist() for a, b in pairwise(starts)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("density", [0.02, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_literal_version(seed, density, kind):
    points = as_blocks(random_points(150, density=density, seed=seed), kind)
    params = TreeParams(kind="kway", branching=6, max_leaf_size=9, max_depth=3)
    tree = build_tree(points, params, seed=seed)
    expected = kway_levels(points.to_csr().toarray().astype(np.float64), 6, 9, 3, 20, seed)
    assert len(expected) == 2
    for level, groups in enumerate(expected):
        assert [sorted(labels) for labels in clusters(tree, level)] == groups
    assert len(tree.parents) == len(expected) + 1


@given(
    rows=st.integers(1, 60),
    density=st.sampled_from([0.0, 0.05, 0.5]),
    leaf=st.integers(1, 20),
    branching=st.integers(2, 80),
    depth=st.integers(1, 4),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=60)
def test_trees_are_valid_and_do_not_depend_on_threads(
    rows, density, leaf, branching, depth, kind, seed
):
    points = as_blocks(random_points(rows, density=density), kind)
    params = TreeParams(kind="kway", branching=branching, max_leaf_size=leaf, max_depth=depth)
    one = on_threads(1, build_tree, points, params, seed=seed)
    assert one == on_threads(3, build_tree, points, params, seed=seed)
    assert len(one.parents) <= depth
    assert all(
        np.diff(one.children(level)).max() <= branching for level in range(len(one.parents) - 1)
    )
    if len(one.parents) > 1:
        assert all(labels == sorted(labels) for labels in clusters(one, len(one.parents) - 2))


def test_planted_clusters_of_unequal_size_are_found():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(3), [40, 10, 4]))
    points = np.eye(3)[group] + 0.05 * rng.random((54, 3))
    params = TreeParams(kind="kway", branching=3, max_leaf_size=5, max_depth=2)
    found = {
        tuple(group[labels].tolist())
        for seed in range(20)
        for labels in clusters(build_tree(l2_normalised(points), params, seed=seed), 0)
    }
    assert {(0,) * 40, (1,) * 10, (2,) * 4} <= found


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
