"""The settings that are worth tuning."""

import pytest

from labelgrove.labels.tree import TreeParams
from labelgrove.methods import METHODS, create
from labelgrove.methods.spaces import linear_space


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
