"""The settings that are worth tuning."""

from labelgrove.labels.tree import TreeParams
from labelgrove.model.spaces import linear_space


def test_branchings_follow_the_kind_of_tree() -> None:
    assert linear_space(TreeParams())["tree.branching"] == [8, 16, 32]
    assert linear_space(TreeParams(kind="kway"))["tree.branching"] == [50, 100, 200]
