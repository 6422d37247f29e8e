"""What methods share: settings in and out, training input, and names that lead to classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, LabelIndex, Linear
from labelgrove.core.params import read_toml, to_toml
from labelgrove.core.strings import StringTable
from labelgrove.data.features import Features
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods import METHODS, create, method_class
from labelgrove.methods.base import (
    TrainingFacts,
    checked_inputs,
    from_config,
    to_config,
    training_corpus,
)


def test_config_round_trip_through_toml(tmp_path: Path) -> None:
    model = create("linear", {"random_state": 3, "ranker": {"C": 2}, "tfidf": {"max_df": 0.5}})
    file = tmp_path / "c.toml"
    file.write_text(to_toml(to_config(model)))
    again = from_config(Linear, read_toml(file))
    assert to_config(again) == to_config(model)
    assert again.n_jobs is None


def test_presets_give_way_to_what_is_asked_for() -> None:
    preset = METHODS["ova"].preset["tree"]["max_leaf_size"]
    assert create("ova").tree.max_leaf_size == preset
    assert create("ova", {"tree": {"max_leaf_size": 7}}).tree.max_leaf_size == 7
    create("ova", {"tree": {"max_leaf_size": 7}})
    assert METHODS["ova"].preset["tree"]["max_leaf_size"] == preset


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ranker": 3}, "ranker: is a table"),
        ({"rankr": {}}, "did you mean ranker"),
        ({"ranker": {"c": 1}}, r"did you mean ranker\.C"),
        ({"random_state": -1}, "at least 0"),
        ({"random_state": "x"}, "whole number"),
        ({"n_jobs": 1.5}, "whole number"),
        ({"n_jobs": 0}, "n_jobs: must be at least 1, or -1 or none for all cores"),
        ({"n_jobs": -5}, "n_jobs: must be at least 1"),
    ],
)
def test_wrong_settings_name_their_path(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create("linear", config)


def test_a_group_of_the_wrong_kind_is_refused_by_fit() -> None:
    with pytest.raises(ConfigError, match="tree: must be TreeParams"):
        Linear(tree="bonsai").fit(["a", "b"], [["x"], ["y"]])  # type: ignore[arg-type]


def test_unknown_methods_are_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'linear'"):
        method_class("lineal")
    with pytest.raises(ConfigError, match="methods: "):
        method_class("zzz")


def test_constructors_share_no_groups() -> None:
    first, second = Linear(), Linear()
    first.set_params(ranker__C=9.0)
    assert second.ranker.C != 9.0


def test_training_corpus_takes_what_users_have() -> None:
    index = LabelIndex(["a", "b"])
    matrix = sparse.csr_matrix(np.array([[1, 0], [0, 1]]))
    for texts in (["x", "y"], ("x", "y"), np.array(["x", "y"]), iter(["x", "y"])):
        corpus = training_corpus(texts, [{"a"}, {"b"}])
        assert corpus.label_lists() == [["a"], ["b"]]
    assert training_corpus(["x", "y"], matrix, index).index is index
    assert training_corpus(["x", "y"], matrix).index.ids == ["0", "1"]
    assert training_corpus(["x", "y"], [[1], [2]]).label_lists() == [["1"], ["2"]]
    both = training_corpus(["x", "y"], matrix, dense=[[1.0, 2.0, 3.0]] * 2)
    assert (both.texts, both.width) == (["x", "y"], 3)
    with pytest.raises(DataError, match="1 dense rows but 2 documents"):
        training_corpus(["x", "y"], matrix, dense=[[1.0]])
    with pytest.raises(DataError, match="2 columns"):
        training_corpus(["x", "y"], matrix, LabelIndex(["a"]))
    with pytest.raises(DataError, match="positive"):
        training_corpus(["x", "y"], -matrix)


def test_inputs_keep_their_cheap_forms() -> None:
    table = StringTable.from_strings(["x"])
    assert checked_inputs(table) is table
    corpus = Corpus.from_lists(["x"], [["a"]])
    assert checked_inputs(corpus) is corpus.texts
    features = Features(dense=[[1.0]])
    assert checked_inputs(features) is features
    assert checked_inputs(np.eye(2)).width == checked_inputs(sparse.eye_array(2)).terms == 2


def test_training_facts_survive_the_disk(tmp_path: Path) -> None:
    model = Linear().fit(["red", "blue", "red"], [["a"], ["a", "b"], []])
    model.save(tmp_path / "m")
    facts = labelgrove.load(tmp_path / "m").facts_
    assert (facts.documents, facts.frequencies.tolist()) == (3, [2, 1])
    assert TrainingFacts.from_state(facts.state()).documents == 3


def test_a_model_of_another_method_is_not_loaded(tmp_path: Path) -> None:
    from labelgrove.disk.model_folder import save_model

    save_model(tmp_path / "m", method="other", params={}, parts={})
    with pytest.raises(ConfigError, match=r"labelgrove\.load"):
        Linear.load(tmp_path / "m")
    with pytest.raises(ConfigError, match="unknown method 'other'"):
        labelgrove.load(tmp_path / "m")
