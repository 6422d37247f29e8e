import math
import sys

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import ConfigError, DataError, MissingPackageError, NotFittedError
from labelgrove.evaluation.predictions import Predictions, ScoredLabel, check_fitted

INDEX = LabelIndex("abcd", names=["Ape", "Bat", "Cat", "Dog"])
SCORES = np.array([[0.5, 0.75, 0.5, 0.0], [-math.inf, 0.25, -math.inf, 1.0]], np.float32)


@pytest.fixture
def predictions():
    return Predictions.from_scores(SCORES, k=3, index=INDEX)


def test_best_first_ties_by_column_and_minus_infinity_never(predictions):
    assert predictions.ids() == [["b", "a", "c"], ["d", "b"]]
    assert predictions.names() == [["Bat", "Ape", "Cat"], ["Dog", "Bat"]]
    assert predictions.counts.tolist() == [3, 2]
    assert predictions.columns[1].tolist() == [3, 1, -1]
    assert predictions.scores[1].tolist() == [1.0, 0.25, -math.inf]
    assert predictions.score_kind == "product"


def test_rows_read_as_scored_labels_and_dictionaries(predictions):
    assert predictions[1] == [ScoredLabel("d", "Dog", 1.0), ScoredLabel("b", "Bat", 0.25)]
    assert list(predictions) == [predictions[0], predictions[1]]
    assert predictions.to_dicts()[1] == [
        {"id": "d", "name": "Dog", "score": 1.0},
        {"id": "b", "name": "Bat", "score": 0.25},
    ]


def test_csr_holds_stored_entries_only_with_sorted_columns():
    matrix = sparse.csr_array((np.float32([0.0, 0.5, 0.5]), [3, 2, 1], [0, 1, 1, 3]), shape=(3, 4))
    p = Predictions.from_csr(matrix, k=9, index=INDEX)
    assert p.ids() == [["d"], [], ["b", "c"]]
    assert p.k == 2
    matrix = Predictions.from_scores(SCORES, k=4, index=INDEX).to_csr()
    assert matrix.shape == (2, 4)
    assert matrix.nnz == 6
    assert matrix.indices.tolist() == [0, 1, 2, 3, 1, 3]
    p = Predictions.from_scores(np.zeros((0, 4)), k=2, index=INDEX)
    assert (len(p), p.ids(), p.to_csr().shape) == (0, [], (0, 4))


def test_top_narrows_and_above_keeps_scores_that_reach_the_threshold(predictions):
    assert predictions.top(1).ids() == [["b"], ["d"]]
    assert predictions.top(9).ids() == predictions.ids()
    pytest.raises(ConfigError, predictions.top, 0).match("k must be at least 1")
    assert predictions.above(0.5).ids() == [["b", "a", "c"], ["d"]]
    assert predictions.above(2.0).ids() == [[], []]
    assert predictions.above(-math.inf).ids() == predictions.ids()


def test_documents_like_the_first_one_of_others_are_found():
    index = LabelIndex(["a", "b"])
    own = Predictions.from_scores(np.array([[0.7, 0.2], [0.2, 0.7], [0.7, 0.1]]), k=2, index=index)
    assert own.same_as(own).tolist() == [True, False, False]
    two = Predictions.from_scores(np.array([[0.2, 0.7], [0.7, 0.2]]), k=2, index=index)
    assert own.same_as(two).tolist() == [False, True, False]


def test_without_moves_the_next_label_up(predictions):
    fewer = predictions.without([(0, 1), (1, 0), (1, 1)])
    assert fewer.ids() == [["a", "c"], ["d"]]
    assert fewer.columns[0].tolist() == [0, 2, -1]
    assert fewer.scores[0].tolist() == [0.5, 0.5, -math.inf]
    mask = sparse.coo_array((np.ones(2), ([0, 1], [1, 1])), shape=(2, 4))
    assert predictions.without(mask).ids() == fewer.ids()
    assert predictions.without([]).ids() == predictions.ids()
    # Padding of document 1 must not be mistaken for the last label of document 0.
    assert predictions.without([(0, 3)]).ids() == predictions.ids()


def test_without_refuses_what_is_not_pairs_or_outside(predictions):
    for pairs in ([(2, 0)], [(0, 4)], [(-1, 0)], [(0, -1)]):
        pytest.raises(DataError, predictions.without, pairs).match("pair 0 to remove")
    for pairs in ([1, 2], [(0, 1, 2)], [(0.5, 1.0)], [("a", "b")]):
        pytest.raises(DataError, predictions.without, pairs).match("pairs of integers")


def test_concat_pads_to_the_widest(predictions):
    both = Predictions.concat([predictions.top(1), predictions])
    assert both.ids() == [["b"], ["d"], ["b", "a", "c"], ["d", "b"]]
    assert both.columns[0].tolist() == [1, -1, -1]
    assert both.scores[0].tolist() == [0.75, -math.inf, -math.inf]
    assert both.columns.dtype == np.int32
    assert both.scores.dtype == np.float32
    pytest.raises(DataError, Predictions.concat, []).match("nothing")
    margin = Predictions.from_scores(SCORES, k=2, index=INDEX, score_kind="margin")
    pytest.raises(DataError, Predictions.concat, [predictions, margin]).match("different kinds")
    other = Predictions.from_scores(SCORES, k=2, index=LabelIndex("efgh"))
    pytest.raises(DataError, Predictions.concat, [predictions, other]).match("different label")


def test_arrays_that_disagree_are_refused():
    with pytest.raises(DataError, match="row 0 contains NaN"):
        Predictions.from_scores([[1.0, math.nan]], k=1, index=LabelIndex("ab"))
    with pytest.raises(DataError, match="2 columns but the index has 4"):
        Predictions.from_scores([[1.0, 2.0]], k=1, index=INDEX)

    columns, scores = np.zeros((2, 1), np.int32), np.zeros((2, 1), np.float32)
    counts = np.ones(2, np.int32)
    pytest.raises(DataError, Predictions, columns, scores[:1], counts, INDEX).match("n x k")
    with pytest.raises(DataError, match="one entry per document"):
        Predictions(columns, scores, counts[:1], INDEX)
    with pytest.raises(DataError, match="between 0 and k"):
        Predictions(columns, scores, counts + 1, INDEX)
    with pytest.raises(DataError, match="between 0 and k"):
        Predictions(columns, scores, counts - 2, INDEX)
    assert Predictions(columns, scores, counts - 1, INDEX).ids() == [[], []]


def test_other_scores_bring_another_order(predictions):
    other = predictions.with_scores(np.array([[0.1, 0.2, 0.2], [0.5, 0.75, 9.0]]))
    assert other.ids() == [["a", "c", "b"], ["b", "d"]]  # of equal ones, the first column
    assert other.scores[1].tolist() == [0.75, 0.5, -math.inf]
    assert other.columns[1].tolist() == [1, 3, -1]


def test_only_fitted_models_are_let_through():
    model = labelgrove.Linear()
    pytest.raises(NotFittedError, check_fitted, model).match("this Linear is not fitted yet")
    check_fitted(model.fit(["red shoes", "blue hat"], [["a"], ["b"]]))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_have_a_row_per_label(predictions, library):
    pytest.importorskip(library)
    frame = predictions.to_frame(library)
    assert list(frame.columns) == ["document", "rank", "id", "name", "score"]
    assert frame["document"].to_list() == [0, 0, 0, 1, 1]
    assert frame["rank"].to_list() == [1, 2, 3, 1, 2]
    assert frame["name"].to_list() == ["Bat", "Ape", "Cat", "Dog", "Bat"]
    assert frame["id"].to_list() == list("bacdb")
    assert frame["score"].to_list() == [0.75, 0.5, 0.5, 1.0, 0.25]
    own = predictions.to_frame(library, documents=("x", "y"))
    assert own["document"].to_list() == ["x", "x", "x", "y", "y"]
    assert len(predictions.above(2.0).to_frame(library)) == 0


def test_documents_of_a_frame_are_named_by_position_and_need_a_library(predictions, monkeypatch):
    pandas = pytest.importorskip("pandas")
    ids = pandas.Series(["x", "y"], index=[1, 0])
    assert predictions.to_frame(documents=ids)["document"].to_list() == ["x", "x", "x", "y", "y"]
    pytest.raises(DataError, predictions.to_frame, documents=["x"]).match("1 ids for 2 documents")
    monkeypatch.setitem(sys.modules, "pandas", None)
    pytest.raises(MissingPackageError, predictions.to_frame).match("to_frame needs pandas: pip")
    pytest.raises(ConfigError, predictions.to_frame, "dask").match("must be pandas or polars, got")


def test_predictions_are_displayed_in_a_few_lines(predictions):
    assert repr(predictions).splitlines() == [
        "Predictions(2 documents, 3 best labels, scores: product)",
        "  0: Bat 0.750, Ape 0.500, Cat 0.500",
        "  1: Dog 1.000, Bat 0.250",
    ]
    assert "no label" in repr(predictions.above(2.0))


def test_many_long_predictions_are_displayed_in_a_few_lines():
    index = LabelIndex([f"<i>{number}</i>{'x' * 9000}" for number in range(300)])
    many = Predictions.from_scores(np.ones((1000, 300)), k=300, index=index)
    assert repr(many).splitlines()[-1] == "  and 995 more"
    assert "and" not in repr(many.of_rows(np.arange(5)))
    assert len(repr(many)) < 2000
    nothing = many.of_rows(np.zeros(0, np.int64))
    assert repr(nothing).startswith("Predictions(0 documents")
