"""What ``fit`` and ``predict`` are given is checked once, at the door."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, Documents, LabelIndex
from labelgrove.core.strings import StringTable
from labelgrove.data.features import Features
from labelgrove.data.inputs import (
    check_k,
    check_threads,
    checked_inputs,
    hold_out,
    training_corpus,
    with_fields,
)
from labelgrove.data.records import FieldNames
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning


def test_training_corpus_takes_what_users_have():
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
    with pytest.warns(LabelgroveWarning, match="3 of the labels given are not in the index"):
        corpus = training_corpus(["x", "y"], [["a", "c"], ["d", "e"]], index)
    assert corpus.label_lists() == [["a"], []]
    with pytest.raises(DataError, match="1 dense rows but 2 documents"):
        training_corpus(["x", "y"], matrix, dense=[[1.0]])
    with pytest.raises(DataError, match="2 columns"):
        training_corpus(["x", "y"], matrix, LabelIndex(["a"]))
    pytest.raises(DataError, training_corpus, ["x", "y"], -matrix).match("positive")


def test_inputs_keep_their_cheap_forms():
    table = StringTable.from_strings(["x"])
    assert checked_inputs(table) is table
    corpus = Corpus.from_lists(["x"], [["a"]])
    assert checked_inputs(corpus) is corpus.texts
    features = Features(dense=[[1.0]])
    assert checked_inputs(features) is features
    assert checked_inputs(np.eye(2)).width == checked_inputs(sparse.eye_array(2)).terms == 2


def test_fields_are_checked_where_there_are_texts():
    numbers = Documents(features=np.eye(2))
    assert with_fields(numbers, None) is numbers
    names = FieldNames(("title",), ())
    for kind in (lambda texts: Corpus.from_lists(texts, [["a"]]), Documents):
        record = kind([names.record({"title": "x"})])
        assert with_fields(record, names) is record
        pytest.raises(DataError, with_fields, record, None).match("plain texts")


def test_wrong_numbers_and_documents_are_refused():
    for k in (0, -1, True, 2.5, "3", None):
        pytest.raises(ConfigError, check_k, k).match("k must be a whole number of at least 1")
    for threads in (-2, True, 1.0):
        pytest.raises(ConfigError, check_threads, threads).match("threads: must be a whole number")
    assert [check_threads(n) for n in (-1, 0, 2)] == [-1, 0, 2] and check_k(np.int64(3)) == 3
    for documents, message in (
        ("one text", "documents are one string"),
        (7, "must be a list of strings, got int"),
        (["a", 7], "document 1 is int, not a string: 7"),
    ):
        pytest.raises(DataError, checked_inputs, documents).match(message)
    assert checked_inputs(iter(("a", "b"))) == ["a", "b"]


def test_held_out_documents_have_labels_and_are_not_learnt_from():
    labels = [["a"] if n % 3 else [] for n in range(100)]
    corpus = Corpus.from_lists([str(n) for n in range(100)], labels)
    train, held_out = hold_out(corpus, 0.1, seed=0)
    assert held_out is not None and (len(train), len(held_out)) == (90, 10)
    assert all(held_out.label_lists())
    assert set(held_out.texts or ()).isdisjoint(train.texts or ())
    assert hold_out(corpus, 0.04, seed=0) == (corpus, None)  # four are too few
    assert hold_out(corpus, 0.05, seed=0)[1] is not None
    pytest.raises(ConfigError, hold_out, corpus, 1.0, seed=0).match("held_out: must be at least 0")

    corpus = Corpus.from_lists(["x"] * 10, [["a"]] * 5 + [[]] * 5)
    assert hold_out(corpus, 0.5, 0)[1] is None  # five to hold out, and only five with labels
