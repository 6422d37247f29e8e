"""Search spaces: what may stand in them, and that the built-in ones fit their methods."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

pytest.importorskip("optuna")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from labelgrove import Corpus
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.experiments.tuning.space import (
    built_in_space,
    checked_space,
    default_settings,
    ends,
    laid_over,
    parse_space,
    value_of,
)
from labelgrove.methods import METHODS, create

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"auto", "ensemble"}))
def test_built_in_spaces_fit_their_methods(method: str) -> None:
    try:
        model = create(method)
    except MissingExtraError:
        pytest.skip("needs torch")
    space = checked_space(built_in_space(model), method, {})
    for key, span in space.items():
        assert all(create(method, laid_over({}, {key: value})) for value in ends(span))
        value_of(model, key)  # every name leads somewhere


def test_spaces_from_toml() -> None:
    text = """
    [space]
    "ranker.C" = {low = 0.1, high = 10, log = true}
    "tree.branching" = {low = 4, high = 32, step = 4}
    ranker.negatives = ["tfn", "tfn+man"]
    "tfidf.ngram_range" = [[1, 1], [1, 2]]
    """
    space = checked_space(parse_space(tomllib.loads(text)["space"]), "linear", {})
    assert space["ranker.C"] == FloatDistribution(0.1, 10.0, log=True)
    assert space["tree.branching"] == IntDistribution(4, 32, step=4)
    assert space["ranker.negatives"] == CategoricalDistribution(("tfn", "tfn+man"))
    assert ends(space["tfidf.ngram_range"]) == ((1, 1), (1, 2))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "is empty"),
        ({"ranker.C": 3}, "list of values"),
        ({"ranker.C": []}, "one or more"),
        ({"ranker.C": {"low": 1}}, "high must be a number"),
        ({"ranker.C": {"low": 1, "high": "x"}}, "high must be a number"),
        ({"ranker.C": {"low": 2, "high": 1}}, "below"),
        ({"ranker.C": {"low": 0, "high": 1, "log": True}}, "low > 0"),
        ({"ranker.C": {"low": 1, "high": 2, "log": "yes"}}, "true or false"),
        ({"ranker.C": {"low": 1, "high": 2, "step": 0}}, "step"),
        ({"ranker.C": {"low": 1, "high": 2, "step": True}}, "step must be a number"),
        ({"ranker.C": {"low": 1, "hihg": 2}}, "did you mean ranker.C.high"),
        ({"ranker.C": {"low": -1, "high": 2}}, "greater than 0"),
        ({"ranker.CC": [1.0]}, "unknown key"),
        ({"rnker.C": [1.0]}, "did you mean ranker"),
        ({"tree.branching": {"low": 2.5, "high": 8}}, "whole number"),
        ({"ranker.a.b": [1]}, "one level"),
    ],
)
def test_wrong_spaces_are_refused_with_their_name(space: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_space(parse_space(space), "linear", {})


@pytest.mark.parametrize("method", ["cascadexml", "lightxml", "xrtransformer", "xtransformer"])
def test_a_search_begins_with_the_defaults_also_where_these_are_derived(method: str) -> None:
    pytest.importorskip("torch")
    from support.small_models import planted, tiny_training

    base = {"encoder": {"encoder": tiny_training()["encoder"]["encoder"]}, "device": "cpu"}
    space = checked_space(built_in_space(create(method, base)), method, base)
    corpus = Corpus.from_lists(*planted(60))
    defaults = default_settings(create(method, base), space, corpus)
    assert set(defaults) == set(space)
    assert (
        defaults["training.epochs"] == create(method, base).resolve_defaults(corpus).training.epochs
    )
