"""Settings: as scikit-learn's tools ask for them, and their checks."""

from __future__ import annotations

import re
from typing import Any

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
    pytest.raises(ConfigError, model.set_params, ranker__CC=2).match("unknown key")


def test_what_is_shown_is_what_was_changed() -> None:
    assert repr(Linear()) == "Linear()"
    model = Linear(ranker=RankerParams(C=2.0), random_state=3)
    assert repr(model) == "Linear(random_state=3, ranker=RankerParams(C=2.0))"
    assert eval(repr(model)).get_params() == model.get_params()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "linear",
            {"label_texts": "text"},
            "label_texts: must be one of 'names', 'none', got 'text'",
        ),
        ("lightxml", {"baseline": "yes"}, "baseline: must be true or false, got 'yes'"),
        ("cascadexml", {"held_out": "many"}, "held_out: must be a number or"),
        ("xrtransformer", {"refine": 2}, "refine: must be true or false, got 2"),
        ("neighbours", {"features": "tfidf"}, "features: must be one of 'auto', 'own'"),
        ("neighbours", {"encoder": 3}, "encoder: must be EncoderParams, got int"),
    ],
)
def test_arguments_are_checked_against_their_types(
    name: str, settings: dict[str, Any], message: str
) -> None:
    model = method_class(name)(**settings)
    pytest.raises(ConfigError, model.check_settings).match(re.escape(message))


def test_a_class_over_a_method_keeps_its_groups_and_types() -> None:
    class Mine(Linear):
        """A user's own."""

    assert Mine.from_config({"ranker": {"C": 2.0}, "n_trees": 2}).ranker.C == 2.0
    with pytest.raises(ConfigError, match="features: must be one of"):
        Mine(features="x").check_settings()  # type: ignore[arg-type]


def test_the_word_none_is_none_in_a_constructor_as_in_a_file() -> None:
    model = Linear(label_texts="none")  # type: ignore[arg-type]
    model.fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    assert model.label_texts is None and not model.learns_names()
