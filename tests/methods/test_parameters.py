"""Parameters as scikit-learn's tools ask for them."""

from __future__ import annotations

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from labelgrove import Linear, RankerParams
from labelgrove.errors import ConfigError
from labelgrove.methods import METHODS, method_class


@pytest.mark.parametrize("name", sorted(METHODS))
def test_parameters_are_those_that_scikit_learn_would_find(name: str) -> None:
    model = method_class(name)()
    # The same class with scikit-learn's own base before ours.
    theirs = type("Theirs", (type(model),), {n: getattr(BaseEstimator, n) for n in ("get_params",)})
    assert model.get_params(deep=False) == theirs.get_params(model, deep=False)
    if name != "ensemble":  # whose members have parameters of their own
        assert model.get_params() == theirs.get_params(model)
    assert clone(model).get_params(deep=False) == model.get_params(deep=False)
    assert get_tags(model).estimator_type is None


def test_nested_values_are_set_in_their_groups() -> None:
    model = Linear()
    changed = clone(model).set_params(ranker__C=3.0, n_trees=2, ranker=RankerParams(eps=0.5))
    assert (changed.ranker.C, changed.ranker.eps, changed.n_trees) == (3.0, 0.5, 2)
    assert model.ranker.C == 1.0
    with pytest.raises(ConfigError, match=r"n_tree: unknown key; did you mean n_trees\?"):
        model.set_params(n_tree=2)
    with pytest.raises(ConfigError, match="unknown key"):
        model.set_params(ranker__CC=2)


def test_what_is_shown_is_what_was_changed() -> None:
    assert repr(Linear()) == "Linear()"
    model = Linear(ranker=RankerParams(C=2.0), random_state=3)
    assert repr(model) == "Linear(random_state=3, ranker=RankerParams(C=2.0))"
    assert eval(repr(model)).get_params() == model.get_params()
