"""Sizes that plans expect before there is a tree, and the settings that are worth tuning."""

from __future__ import annotations

import numpy as np
import pytest

from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.methods import METHODS, create
from labelgrove.methods.cost_estimate import expected_widths, linear_space


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


def test_branchings_follow_the_kind_of_tree() -> None:
    assert linear_space(TreeParams())["tree.branching"] == [8, 16, 32]
    assert linear_space(TreeParams(kind="kway"))["tree.branching"] == [50, 100, 200]


@pytest.mark.parametrize("method", [name for name, entry in METHODS.items() if not entry.preset])
def test_all_of_a_space_can_be_set_and_has_the_default(method: str) -> None:
    config = create(method).to_config()
    for name, values in create(method).search_space().items():
        group, _, key = name.rpartition(".")
        default = config[group][key] if group else config[key]
        if isinstance(values, dict):
            choices = [values["low"], values["high"]]
            assert isinstance(default, str) or choices[0] <= default <= choices[1]
        else:
            choices = [value for value in values if isinstance(value, int | float)]
            assert default in values
        assert choices == sorted(set(choices)), name
        for value in choices:
            create(method, {group: {key: value}} if group else {key: value})
