"""Frames of pandas and Arrow are read by their columns, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest

from labelgrove import Corpus, Linear
from labelgrove.data.inputs import checked_inputs, training_corpus
from labelgrove.errors import DataError, LabelgroveWarning

ROWS = {"text": ["red shoes", "blue hat"], "labels": [["shoes"], ["hats"]]}


@pytest.fixture(params=[pandas.DataFrame, pyarrow.table], ids=["pandas", "arrow"])
def frame(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_one_column_is_the_documents(frame: Any) -> None:
    texts, labels = frame({"text": ROWS["text"]}), frame({"labels": ROWS["labels"]})
    assert checked_inputs(texts) == ROWS["text"]
    assert training_corpus(texts, labels).label_lists() == ROWS["labels"]
    assert Corpus.from_lists(texts, labels).texts == ROWS["text"]


def test_models_read_one_column_and_refuse_more(frame: Any) -> None:
    both = frame(ROWS)
    model = Linear().fit(both["text"], ROWS["labels"])
    assert len(model.predict(frame({"text": ["hat"] * 7}))) == 7
    with pytest.raises(DataError, match=r"2 columns \('text', 'labels'\).*df\['text'\]"):
        model.predict(both)
    with pytest.raises(DataError, match=r"df\['text'\]"):
        Linear().fit(both, ROWS["labels"])
    with pytest.raises(DataError, match=r"labels are a data frame with 2 columns"):
        Linear().fit(ROWS["text"], both)


def test_mappings_and_sets_are_refused() -> None:
    model = Linear().fit(ROWS["text"], ROWS["labels"])
    with pytest.raises(DataError, match=r"mapping with the keys 'text'"):
        model.predict({"text": "a hat"})
    with pytest.raises(DataError, match="set, which has no order"):
        model.predict({"a hat", "a shoe"})
    with pytest.raises(DataError, match="labels are a mapping"):
        Linear().fit(ROWS["text"], {0: ["a"], 1: ["b"]})


def test_a_frame_of_numbers_is_a_matrix_with_named_columns(frame: Any) -> None:
    corpus = training_corpus(ROWS["text"], frame({"shoes": [1, 0], "hats": [0, 1]}))
    assert corpus.label_lists() == ROWS["labels"]
    assert list(corpus.index.ids) == ["shoes", "hats"]


def test_names_of_a_matrix_are_given_as_index() -> None:
    classes = np.array(["hats", "shoes"], dtype=object)  # as in MultiLabelBinarizer.classes_
    matrix = np.array([[0, 1], [1, 0]])
    assert training_corpus(ROWS["text"], matrix, classes).label_lists() == ROWS["labels"]
    with pytest.warns(LabelgroveWarning, match=r"index=binarizer\.classes_"):
        training_corpus(ROWS["text"], matrix)


def test_columns_with_a_filtered_index_are_read_by_position() -> None:
    table = pandas.DataFrame({"text": ["a", "b", "c"], "labels": [["x"], ["y"], ["z"]]}).iloc[1:]
    corpus = Corpus.from_lists(table["text"], table["labels"])
    assert [corpus.texts[0], corpus.texts[1]] == ["b", "c"]
    assert corpus.label_lists() == [["y"], ["z"]]


@pytest.mark.parametrize("value", [None, float("nan"), np.float64("nan")])
def test_missing_texts_are_named_with_the_remedy(value: Any) -> None:
    with pytest.raises(DataError, match=r"document 1 is missing \((None|nan)\).*fillna"):
        checked_inputs(["a", value])
    with pytest.raises(DataError, match="fillna"):
        Corpus.from_lists(["a", value], [["x"], ["y"]])


@pytest.mark.parametrize("value", [None, float("nan")])
def test_missing_labels_are_named_with_the_remedy(value: Any) -> None:
    with pytest.raises(DataError, match=r"labels of document 1 are missing.*give \[\]"):
        training_corpus(["a", "b"], [["x"], value])


def test_a_string_of_labels_is_split_in_the_advice() -> None:
    with pytest.raises(DataError, match=r"give a list: \['a', 'b c'\]"):
        training_corpus(["x"], ["a; b c"])
