"""What models keep: settings in and out, model folders, names that lead to classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

import labelgrove
from labelgrove import Linear, RankerParams, calibrate
from labelgrove.core.params import read_toml
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.bundle import read_manifest
from labelgrove.disk.model_folder import load_model
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.methods import METHODS, create, method_class
from labelgrove.methods.folders import from_version_1, without_gone
from labelgrove.methods.settings import check_count, groups_of


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ranker": 3}, "ranker: must be a table"),
        ({"rankr": {}}, "did you mean ranker"),
        ({"ranker": {"c": 1}}, r"did you mean ranker\.C"),
        ({"random_state": -1}, "at least 0"),
        ({"random_state": "x"}, "whole number"),
        ({"n_jobs": 1.5}, "whole number"),
        ({"n_jobs": 0}, "n_jobs: must be at least 1 and at most 1024, or -1 or none"),
        ({"n_jobs": -2}, "n_jobs: must be at least 1"),
        ({"n_jobs": 1025}, "n_jobs: must be at least 1"),
        ({"random_state": True}, "whole number"),
    ],
)
def test_wrong_settings_name_their_path(config: dict[str, object], message: str) -> None:
    pytest.raises(ConfigError, create, "linear", config).match(message)


@pytest.mark.parametrize("jobs", [None, -1, 1, 1024])
def test_numbers_of_threads_at_their_limits(jobs: int | None) -> None:
    assert create("linear", {"n_jobs": jobs, "random_state": 0}).n_jobs == jobs


def test_counts_begin_at_one() -> None:
    check_count("n_trees", 1)
    for wrong in (0, 1.0, True, None):
        with pytest.raises(ConfigError, match="n_trees: must be a whole number of at least 1"):
            check_count("n_trees", wrong)


def test_unknown_methods_are_refused_with_the_nearest() -> None:
    pytest.raises(ConfigError, method_class, "lineal").match("did you mean 'linear'")
    pytest.raises(ConfigError, method_class, "zzz").match("methods: ")


def test_a_group_given_as_none_gets_its_defaults() -> None:
    assert Linear(tree=None).tree == Linear().tree  # type: ignore[arg-type]
    assert list(groups_of(Linear)) == ["tfidf", "tree", "ranker", "search"]


def test_training_facts_survive_the_disk(tmp_path: Path) -> None:
    model = Linear().fit(["red", "blue", "red"], [["a"], ["a", "b"], []])
    model.save(tmp_path / "m")
    config = read_toml(tmp_path / "m" / "config.toml")
    assert config.pop("method") == "linear"
    assert Linear.from_config(config).to_config() == model.trained_config()
    facts = labelgrove.load(tmp_path / "m").facts_
    assert (facts.documents, facts.frequencies.tolist()) == (3, [2, 1])
    assert TrainingFacts.from_state(facts.state()).documents == 3


def test_a_model_of_another_method_is_not_loaded(tmp_path: Path) -> None:
    from labelgrove.disk.model_folder import save_model

    save_model(tmp_path / "m", method="other", params={}, parts={})
    pytest.raises(ConfigError, Linear.load, tmp_path / "m").match(r"labelgrove\.load")
    pytest.raises(ConfigError, labelgrove.load, tmp_path / "m").match("unknown method 'other'")


def test_settings_of_format_version_1_are_read_as_they_are_called_now() -> None:
    stored = {"heads": {"logits": "gather", "kept": 3}, "n_jobs": None}
    current = {"heads": {"kept": 3}, "n_jobs": None}
    assert from_version_1("cascadexml", stored) == current
    assert stored["heads"]["logits"] == "gather"  # type: ignore[index]
    stored = {"heads": {"full_chunk": None}, "training": {"table_steps": "row", "lr": 0.1}}
    assert from_version_1("lightxml", stored) == {"heads": {}, "training": {"lr": 0.1}}
    # Mined documents counted in full before there was a weight.
    for weight in (1.0, 0.5):
        own = {"ranker": {} if weight == 1 else {"mined_weight": weight}}
        assert from_version_1("xrtransformer", own) == {"ranker": {"mined_weight": weight}}
    assert from_version_1("xtransformer", {"ranker": {"C": 1.0}}) == {"ranker": {"C": 1.0}}
    # Rows of given features were used as they are.
    member = {"method": "linear", "ranker": {"mined_weight": 1.0}, "sparse_norm": "none"}
    ensemble = {"members": [{"method": "linear", "ranker": {}}]}
    assert from_version_1("ensemble", ensemble) == {"members": [member]}


def test_only_folders_of_version_1_are_read_by_their_old_names(tmp_path: Path) -> None:
    model = Linear().fit(shop_corpus(100, labels=20))
    model.save(tmp_path / "m")
    stored = load_model(tmp_path / "m")
    assert stored.manifest["format_version"] == 2
    del stored.params["sparse_norm"]
    assert Linear._from_stored(stored).sparse_norm == "l2"
    stored.manifest["format_version"] = 1
    assert Linear._from_stored(stored).sparse_norm is None


def test_the_date_of_training_survives_calibration(tmp_path: Path) -> None:
    model = Linear().fit(shop_corpus(100, labels=20))
    model.created_ = "2024-02-03T04:05:06+00:00"
    model.save(tmp_path / "model")
    loaded = Linear.load(tmp_path / "model")
    test = shop_corpus(100, labels=20, part="test")
    calibrate(loaded, test)
    assert loaded.predict(test).score_kind == "probability"  # from now on, unless raw is asked for
    assert loaded.predict(test, raw=True).score_kind == "product"
    loaded.save(tmp_path / "model", overwrite=True)
    manifest = read_manifest(tmp_path / "model", kind="model")
    assert manifest["created"] == "2024-02-03T04:05:06+00:00"


def test_settings_that_have_gone_are_left_out() -> None:
    heads = {"loss": "zlpr", "priors": True, "name_logit": 4.0}
    training = {"average": "ema", "ema_decay": 0.5, "lr": None}
    member = {"method": "lightxml", "return_held_out": True, "heads": heads, "training": training}
    current = without_gone({"rule": "mean", "members": [member]})
    expected = {"method": "lightxml", "heads": {"loss": "bce", "priors": True}}
    expected["training"] = {"average": "swa", "lr": None}
    assert current == {"rule": "mean", "members": [expected]}
    with pytest.raises(ConfigError, match="return_held_out"):
        create("lightxml", {"return_held_out": True})
    stored = {"label_texts": "auto", "heads": {"bootstrap": "inherit", "matcher": "mean"}}
    assert without_gone(stored) == {"label_texts": None, "heads": {"bootstrap": "none"}}
    assert without_gone({"ranker": {"relevance_norm": "max"}}) == {
        "ranker": {"relevance_norm": "l1"}
    }
    stored = {"tree": {"label_features": "pii"}, "refined": {"label_features": "pifa,text"}}
    now = {"tree": {"label_features": "pifa"}, "refined": {"label_features": "pifa+text"}}
    assert without_gone(stored) == now
    stored = {"vectors": {"kind": "word2vec"}, "word2vec": {"width": 8}}
    with pytest.raises(ModelFormatError, match="word2vec"):
        without_gone({"members": [stored]})
    assert without_gone(stored | {"vectors": "both"}) == {"vectors": "both"}
    for method, table, name, default, other in (
        ("cascadexml", "heads", "name_logit", 0.0, 4.0),
        ("cascadexml", "heads", "soft_targets", False, True),
        ("lightxml", "heads", "sharded", "none", True),
        ("xrtransformer", "heads", "matcher", "linear", "head"),
        ("xrtransformer", "heads", "lr", [], [1e-4]),
        ("xtransformer", "ranking", "label_transform", "l4-hinge", "sigmoid"),
    ):
        create(method, {table: {name: default}})
        with pytest.raises(ConfigError, match=rf"{table}\.{name}"):
            create(method, {table: {name: other}})


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
