"""What ``fit`` and ``predict`` are given is checked once, at the door."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, LabelIndex
from labelgrove.core.strings import StringTable
from labelgrove.data.features import Features
from labelgrove.data.inputs import check_k, check_threads, checked_inputs, hold_out, training_corpus
from labelgrove.errors import ConfigError, DataError


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
    with pytest.raises(DataError, match="1 dense rows but 2 documents"):
        training_corpus(["x", "y"], matrix, dense=[[1.0]])
    with pytest.raises(DataError, match="2 columns"):
        training_corpus(["x", "y"], matrix, LabelIndex(["a"]))
    with pytest.raises(DataError, match="positive"):
        training_corpus(["x", "y"], -matrix)


def test_inputs_keep_their_cheap_forms():
    table = StringTable.from_strings(["x"])
    assert checked_inputs(table) is table
    corpus = Corpus.from_lists(["x"], [["a"]])
    assert checked_inputs(corpus) is corpus.texts
    features = Features(dense=[[1.0]])
    assert checked_inputs(features) is features
    assert checked_inputs(np.eye(2)).width == checked_inputs(sparse.eye_array(2)).terms == 2


@pytest.mark.parametrize("k", [0, -1, True, 2.5, "3", None])
def test_k_must_be_a_whole_number_above_zero(k):
    with pytest.raises(ConfigError, match="k must be a whole number of at least 1"):
        check_k(k)
    assert check_k(np.int64(3)) == 3


def test_threads_are_whole_numbers():
    assert [check_threads(n) for n in (-1, 0, 2)] == [-1, 0, 2]
    for wrong in (-2, True, 1.0):
        with pytest.raises(ConfigError, match="threads: must be a whole number"):
            check_threads(wrong)


def test_held_out_documents_have_labels_and_are_not_learnt_from():
    labels = [["a"] if n % 3 else [] for n in range(100)]
    corpus = Corpus.from_lists([str(n) for n in range(100)], labels)
    train, held_out = hold_out(corpus, 0.1, seed=0)
    assert held_out is not None and (len(train), len(held_out)) == (90, 10)
    assert all(held_out.label_lists())
    assert set(held_out.texts or ()).isdisjoint(train.texts or ())
    assert hold_out(corpus, 0.04, seed=0) == (corpus, None)  # four are too few
    assert hold_out(corpus, 0.05, seed=0)[1] is not None
    with pytest.raises(ConfigError, match="held_out: must be at least 0 and below 1"):
        hold_out(corpus, 1.0, seed=0)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("one text", "documents are one string"),
        (7, "must be a list of strings, got int"),
        (["a", 7], "document 1 is int, not a string: 7"),
    ],
)
def test_other_documents_are_refused(documents, message):
    assert checked_inputs(iter(("a", "b"))) == ["a", "b"]
    with pytest.raises(DataError, match=message):
        checked_inputs(documents)


def test_some_labelled_documents_stay_to_learn_from():
    corpus = Corpus.from_lists(["x"] * 10, [["a"]] * 5 + [[]] * 5)
    assert hold_out(corpus, 0.5, 0)[1] is None  # five to hold out, and only five with labels
