"""Corpora and label indexes: what goes in comes out, and mistakes are located."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import Documents
from labelgrove.core.part import Part
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.data.inputs import documents_of, training_corpus
from labelgrove.disk.hashing import content_hash
from labelgrove.errors import DataError, LabelgroveWarning

LabelLists = st.lists(st.lists(st.sampled_from("abcde"), max_size=4), max_size=6)


@given(LabelLists)
def test_labels_survive_the_matrix(lists):
    corpus = Corpus.from_lists(["text"] * len(lists), lists)
    assert corpus.label_lists() == [sorted(set(labels)) for labels in lists]
    assert corpus.unknown.tolist() == [0] * len(lists)


@given(LabelLists, st.randoms())
def test_the_index_does_not_depend_on_order(lists, random):
    shuffled = random.sample(lists, len(lists))
    assert LabelIndex.from_label_lists(lists) == LabelIndex.from_label_lists(shuffled)


@given(LabelLists, st.lists(st.sampled_from("abcdexyz"), unique=True))
def test_reindexing_equals_encoding_with_the_other_index(lists, ids):
    index = LabelIndex(ids)
    texts = ["text"] * len(lists)
    moved = Corpus.from_lists(texts, lists).reindex(index)
    direct = Corpus.from_lists(texts, lists, index=index)
    np.testing.assert_array_equal(moved.labels.toarray(), direct.labels.toarray())
    assert moved.unknown.tolist() == direct.unknown.tolist()
    assert moved.index is index


def test_reindexing_counts_a_label_met_by_id_and_by_name_once():
    labels = [{"c1": 0.5, "cats": 0.75, "new": 1.0}, {"c1": 0.5}, {"cats": 0.25, "c1": 0.5}]
    corpus = Corpus.from_lists(list("xyz"), labels)
    moved = corpus.reindex(LabelIndex(["c1"], names=["cats"]))
    assert moved.labels.toarray().tolist() == [[0.75], [0.5], [0.5]]
    assert moved.unknown.tolist() == [1, 0, 0]
    assert moved.reindex(moved.index) is moved


def test_ids_win_over_names_and_unknown_labels_get_the_nearest():
    index = LabelIndex(["a", "b", "c"], names=["b", "x", "x"])
    assert index.column("b") == 1
    assert index.column("x") == 1
    assert index.get("nothing") is None
    pytest.raises(DataError, index.column, "nothing").match("unknown label 'nothing'; the index")
    index = LabelIndex(["gnd:101", "gnd:202"], names=["Cats and dogs", "Tea"])
    pytest.raises(DataError, index.column, "cats and dog").match(r"did you mean 'Cats and dogs'\?")
    assert "did you mean 'gnd:202'" in index.unknown("gnd:2022")
    assert "did you mean" not in index.unknown(7)


def test_label_names_ids_weights_and_numbers():
    index = LabelIndex(["c1", "c2"], names=["cats", "dogs"])
    corpus = Corpus.from_lists(["x", "y"], [{"cats": 0.25}, ["dogs", "c2", "cats"]], index=index)
    assert corpus.labels.toarray().tolist() == [[0.25, 0.0], [1.0, 1.0]]
    assert corpus.label_lists(names=True) == [["cats"], ["cats", "dogs"]]
    corpus = Corpus.from_lists(["x", "y"], [[3, np.int64(20)], np.array([3])])
    assert corpus.label_lists() == [["20", "3"], ["3"]]


def test_a_matrix_can_hold_the_labels():
    matrix = sparse.csr_array(np.array([[0, 2], [1, 0]]))
    corpus = Corpus.from_lists(["x", "y"], matrix)
    assert corpus.label_lists() == [["1"], ["0"]]
    named = Corpus.from_lists(["x", "y"], matrix.toarray(), index=LabelIndex("ab"))
    assert named.label_lists() == [["b"], ["a"]]
    with pytest.raises(DataError, match="2 columns but the index has 0 labels"):
        Corpus.from_lists(["x", "y"], matrix, index=LabelIndex([]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a;b"], r"string 'a;b', which may be one label or several.*\['a;b'\] or \['a', 'b'\]"),
        ([None], "document 0 are missing"),
        ([b"ab"], "document 0 are b'ab'"),
        ([7], "document 0 are 7"),
        ([[None]], "document 0: None is not a string"),
        ([[True]], "document 0: True is not a string"),
        ([[["a"]]], "document 0: .* is not a string"),
        ([{"a": 0}], "weight 0 of 'a' must be > 0"),
        ([{"a": -1.0}], "must be > 0"),
        ([{"a": float("nan")}], "must be > 0"),
        ([{"a": float("inf")}], "must be > 0"),
        ([{"a": "1"}], "must be > 0"),
        ([{"a": None}], "must be > 0"),
        ([["a"], ["b"]], "1 texts but 2 rows"),
    ],
)
def test_wrong_labels_are_located(labels, message):
    pytest.raises(DataError, Corpus.from_lists, ["text"], labels).match(message)


def test_wrong_texts_rows_and_indexes_are_refused():
    for texts in ("xy", ["x", None], ["x", 3.0]):
        with pytest.raises(DataError, match=r"document 1 is|list of strings"):
            Corpus.from_lists(texts, [["a"], ["b"]])
    corpus = Corpus.from_lists(["x", "y", "z"], [["a"]] * 3)
    for rows in ([3], [0.5], [True, False]):
        pytest.raises(DataError, corpus.take, rows).match("row")
    pytest.raises(DataError, LabelIndex("abcb").column, "a").match("label id 'b' occurs twice")
    pytest.raises(DataError, LabelIndex, "ab", names=["x"]).match("2 label ids but 1 label names")
    pytest.raises(DataError, LabelIndex, "ab", texts="xyz").match("2 label ids but 3 label texts")
    pytest.raises(DataError, LabelIndex, "ab", groups={"animals": [0, 2]}).match("'animals' must")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": None}, "needs texts or features"),
        ({"texts": ["x"]}, "1 texts but 2 rows"),
        ({"ids": ["1"]}, "1 ids but 2 rows"),
        ({"features": np.eye(3)}, "3 feature rows but 2 rows"),
        ({"unknown": np.zeros(3, np.int64)}, "3 counts of unknown labels"),
        ({"index": LabelIndex("abc")}, "2 columns but the index has 3"),
        ({"labels": np.array([["a"]])}, "labels must hold numbers"),
    ],
)
def test_parts_of_a_corpus_must_fit(changes, message):
    parts = {"texts": ["x", "y"], "labels": np.eye(2), "index": LabelIndex("ab")}
    pytest.raises(DataError, Corpus, **parts | changes).match(message)


@pytest.mark.parametrize("kind", [list, StringTable.from_strings])
@pytest.mark.parametrize("rows", [[2, 0], np.array([-1, 0]), np.array([True, False, True])])
def test_take_keeps_everything_together(kind, rows):
    corpus = Corpus(
        kind(["x", "y", "z"]),
        sparse.csr_array(np.eye(3)),
        LabelIndex("abc"),
        ids=kind(["1", "2", "3"]),
        features=sparse.csr_array(np.diag([1.0, 2.0, 3.0])),
        unknown=np.array([0, 1, 2]),
    )
    taken = corpus.take(rows)
    expected = [0, 2] if np.asarray(rows).dtype == bool else [2, 0]
    assert list(taken.texts) == ["xyz"[i] for i in expected]
    assert list(taken.ids) == ["123"[i] for i in expected]
    assert taken.label_lists() == [["abc"[i]] for i in expected]
    assert taken.features.sparse.toarray().max(axis=1).tolist() == [i + 1 for i in expected]
    assert taken.unknown.tolist() == expected


def test_corpora_compare_by_identity_and_indexes_by_content():
    one, other = (Corpus.from_lists(["x"], [["a"]]) for _ in range(2))
    assert one == one
    assert one != other
    assert one.index == other.index
    assert LabelIndex("ab") == LabelIndex(StringTable.from_strings("ab"))
    assert LabelIndex("ab") != LabelIndex("ab", names="AB")
    assert LabelIndex("ab") != "ab"


@pytest.mark.parametrize(
    "index",
    [
        LabelIndex([]),
        LabelIndex(["a", "ü", "\ud800"]),
        LabelIndex("ab", names=["A", ""], texts=["first", "second"]),
        LabelIndex("ab", groups={"none": [], "both": [1, 0]}),
    ],
)
def test_an_index_goes_to_disk_and_back(index):
    part = index.state()
    back = LabelIndex.from_state(Part(part.config, part.arrays))
    assert back == index
    assert (back.texts is None) == (index.texts is None)
    assert list(back.texts or []) == list(index.texts or [])
    assert list(back.groups) == list(index.groups)
    assert all(np.array_equal(back.groups[g], index.groups[g]) for g in index.groups)
    assert content_hash(back) == content_hash(index)


def test_groups_are_stored_one_after_another_and_added():
    index = LabelIndex("abc", groups={"x": [2], "none": [], "y": [0, 1]})
    arrays = index.state().arrays
    assert arrays["groups.indptr"].tolist() == [0, 1, 1, 3]
    assert arrays["groups.columns"].tolist() == [2, 0, 1]
    more = index.with_groups({"z": [1]})
    assert list(more.groups) == ["x", "none", "y", "z"] and more.groups["z"].tolist() == [1]
    index = LabelIndex(["1", "2"], names=["cats", "dogs"], groups={"a": [0]})
    more = index.with_groups({"b": [1]})
    assert (list(more.names), sorted(more.groups)) == (["cats", "dogs"], ["a", "b"])
    assert list(LabelIndex("xy").with_groups({"b": [1]}).names) == ["x", "y"]


def test_a_dense_block_goes_along_and_features_come_in_any_form():
    dense = np.arange(6, dtype=np.float16).reshape(3, 2)
    corpus = Corpus.from_lists(["x", "y", "z"], [["a"], ["b"], ["a"]]).with_dense(dense)
    assert corpus.width == 2
    assert corpus.inputs == ["x", "y", "z"]
    taken = corpus.take([2, 0]).reindex(LabelIndex(["b"]))
    assert taken.features.dense.tolist() == [[4, 5], [0, 1]]
    assert taken.features.dense.dtype == np.float16
    pytest.raises(DataError, corpus.with_dense, dense[:2]).match("2 dense rows but 3 documents")
    pytest.raises(DataError, corpus.with_dense, dense).match("dense block already")

    for matrix, kind in ((np.eye(2), (0, 2)), (sparse.csr_array(np.eye(2)), (2, 0))):
        corpus = Corpus(None, np.eye(2), LabelIndex("ab"), features=matrix)
        assert isinstance(corpus.features, Features)
        assert (corpus.features.terms, corpus.features.width) == kind
        assert corpus.inputs is corpus.features


DECOMPOSED, COMPOSED = "cafe\u0301", "caf\u00e9"


def test_labels_that_differ_in_the_spelling_of_accents_become_one():
    lists = [[DECOMPOSED], [COMPOSED, "tea"], {DECOMPOSED: 0.5, COMPOSED: 2.0}]
    message = rf"1 label differs from another only in how accents.*{COMPOSED}"
    with pytest.warns(LabelgroveWarning, match=message):
        corpus = Corpus.from_lists(["x"] * 3, lists)
    assert list(corpus.index.ids) == [COMPOSED, "tea"]
    assert corpus.labels.toarray().tolist() == [[1, 0], [1, 1], [2, 0]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(LabelIndex.from_label_lists([[DECOMPOSED], ["tea"]]).ids) == [COMPOSED, "tea"]


def test_an_index_finds_labels_in_any_spelling():
    for spelling in (DECOMPOSED, COMPOSED):
        old = LabelIndex.from_state(LabelIndex(["x", spelling]).state())
        assert list(old.ids) == ["x", spelling]  # a model keeps its labels
        assert old.column(DECOMPOSED) == old.column(COMPOSED) == 1
        named = LabelIndex(["a"], names=[spelling])
        assert named.column(DECOMPOSED) == named.column(COMPOSED) == 0
    both = LabelIndex([DECOMPOSED, COMPOSED])
    assert (both.column(DECOMPOSED), both.column(COMPOSED)) == (0, 1)
    _, unknown = LabelIndex(["x"]).encode([[DECOMPOSED, COMPOSED]])
    assert unknown.tolist() == [1]


MATRIX = sparse.csr_array(np.eye(3, dtype=np.float32))


def test_rows_must_agree_and_the_plain_form_is_the_only_part():
    pytest.raises(DataError, Documents, ["a", "b"], MATRIX).match("2 texts but 3 feature rows")
    pytest.raises(DataError, Documents).match("need texts or features")
    both = Documents(["a", "b", "c"], MATRIX)
    assert both.plain is both and both.inputs == ["a", "b", "c"]
    assert Documents(["a"]).plain == ["a"]
    assert isinstance(Documents(features=MATRIX).plain, Features)


@pytest.mark.parametrize("texts", [["a", "b", "c"], StringTable.from_strings(["a", "b", "c"])])
def test_slices_take_both(texts):
    both = Documents(texts, MATRIX)
    last = both.take(slice(1, 9))
    assert len(both) == 3 and len(last) == 2
    assert last.texts is not None and list(last.texts) == ["b", "c"]
    assert last.features is not None and last.features.sparse.toarray()[0].tolist() == [0, 1, 0]


def test_whatever_has_texts_and_features_is_documents():
    corpus = Corpus.from_lists(["a", "b", "c"], [["x"]] * 3)
    corpus = Corpus(corpus.texts, corpus.labels, corpus.index, features=MATRIX)
    assert documents_of(corpus).features is corpus.features
    assert documents_of(["a"]).features is None and documents_of(MATRIX).texts is None
    assert repr(documents_of(corpus)) == "Documents(3 texts, 3 sparse + 0 dense)"
    learnt = training_corpus(Documents(["a", "b", "c"], MATRIX), [["x"]] * 3)
    assert learnt.texts == ["a", "b", "c"] and learnt.features is not None
