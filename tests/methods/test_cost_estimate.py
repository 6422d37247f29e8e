"""Sizes that plans expect before there is a tree."""

from __future__ import annotations

import numpy as np
import pytest

from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.methods.cost_estimate import expected_widths


@pytest.mark.parametrize(
    ("sizes", "labels", "widths"),
    [
        ((4, 8, 3), 60, (4, 16, 60)),
        ((4, 8, 9), 60, (4, 16, 60)),  # 60 / 16 labels fit into a cluster
        ((4, 15, 9), 60, (4, 60)),  # exactly as many as fit
        ((4, 14, 9), 60, (4, 16, 60)),
        ((100, 5, 3), 60, (60, 60)),
        ((4, 100, 3), 60, (60,)),
    ],
)
def test_a_kway_tree_is_no_wider_than_expected(sizes, labels, widths):  # type: ignore[no-untyped-def]
    branching, leaf, depth = sizes
    params = TreeParams(kind="kway", branching=branching, max_leaf_size=leaf, max_depth=depth)
    assert expected_widths(params, labels) == widths
    grown = build_tree(np.random.default_rng(0).random((labels, 5)), params).widths
    assert all(a <= b for a, b in zip(grown, widths, strict=False))


def test_a_balanced_tree_is_as_wide_as_expected() -> None:
    params = TreeParams(branching=4, max_leaf_size=8)
    assert expected_widths(params, 60) == build_tree(np.eye(60), params).widths
