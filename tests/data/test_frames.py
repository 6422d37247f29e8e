"""Frames of pandas, polars and Arrow are read by their columns, or refused."""

import warnings

import numpy as np
import pandas
import pyarrow
import pytest

from labelgrove import Corpus, Linear, evaluate, records
from labelgrove.data.inputs import checked_inputs, training_corpus
from labelgrove.errors import DataError, LabelgroveWarning

ROWS = {"text": ["red shoes", "blue hat"], "labels": [["shoes"], ["hats"]]}


@pytest.fixture(params=["pandas", "polars", "arrow"])
def frame(request):
    if request.param == "polars":
        return pytest.importorskip("polars").DataFrame
    return {"pandas": pandas.DataFrame, "arrow": pyarrow.table}[request.param]


def test_one_column_is_the_documents(frame):
    texts, labels = frame({"text": ROWS["text"]}), frame({"labels": ROWS["labels"]})
    assert checked_inputs(texts) == ROWS["text"]
    assert training_corpus(texts, labels).label_lists() == ROWS["labels"]
    assert Corpus.from_lists(texts, labels).texts == ROWS["text"]
    uneven = [["shoes", "red"], ["hats"]]
    assert training_corpus(texts, frame({"labels": uneven})).label_lists() == [
        ["red", "shoes"],
        ["hats"],
    ]


def test_models_of_one_column_refuse_more(frame):
    both = frame(ROWS)
    model = Linear().fit(both["text"], ROWS["labels"])
    assert len(model.predict(frame({"text": ["hat"] * 7}))) == 7
    with pytest.raises(DataError, match=r"2 columns \('text', 'labels'\).*df\['text'\]"):
        model.predict(both)
    pytest.raises(DataError, Linear().fit, both, ROWS["labels"]).match(r"labelgrove\.records\(df")
    pytest.raises(DataError, Linear().fit, ROWS["text"], both).match("labels are a data frame")


def test_several_columns_are_texts_and_fields(frame):
    table = {"title": ["a shoe", "a hat"] * 2, "shop": ["north", "south"] * 2, "price": [1] * 4}
    documents = records(frame(table), text="title", fields="shop")
    model = Linear().fit(documents, ["shoe", "hat"] * 2)
    rows = frame({"title": ["a new thing"], "shop": ["south"], "price": [3]})
    assert model.predict(rows, k=1).names() == [["hat"]]


def test_a_label_alone_may_be_a_string(frame):
    labels = frame({"labels": ["shoes", "hats"]})
    for given in (["shoes", "hats"], np.array(["shoes", "hats"]), labels, labels["labels"]):
        assert training_corpus(ROWS["text"], given).label_lists() == ROWS["labels"]


def test_mappings_and_sets_are_refused():
    model = Linear().fit(ROWS["text"], ROWS["labels"])
    pytest.raises(DataError, model.predict, {"text": "a hat"}).match("mapping with the keys")
    pytest.raises(DataError, model.predict, {"a hat", "a shoe"}).match("set, which has no order")
    with pytest.raises(DataError, match="labels are a mapping"):
        Linear().fit(ROWS["text"], {0: ["a"], 1: ["b"]})


def test_a_frame_of_numbers_is_a_matrix_with_named_columns(frame):
    corpus = training_corpus(ROWS["text"], frame({"shoes": [1, 0], "hats": [0, 1]}))
    assert corpus.label_lists() == ROWS["labels"]
    assert list(corpus.index.ids) == ["shoes", "hats"]
    other = training_corpus(
        ROWS["text"], frame({"shoes": [1, 0], "hats": [0, 1]}), ["hats", "shoes"]
    )
    assert other.label_lists() == ROWS["labels"]
    with pytest.raises(DataError, match=r"missing cell \(NaN\)"):
        training_corpus(ROWS["text"], frame({"shoes": [1.0, 0.0], "hats": [float("nan"), 1.0]}))
    with pytest.raises(DataError, match=r'such as fit\(df\["text"\], df\["labels"\]\)'):
        Linear().fit(frame(ROWS))


def test_names_of_a_matrix_are_given_as_index():
    classes = np.array(["hats", "shoes"], dtype=object)  # as in MultiLabelBinarizer.classes_
    matrix = np.array([[0, 1], [1, 0]])
    assert training_corpus(ROWS["text"], matrix, classes).label_lists() == ROWS["labels"]
    with pytest.warns(LabelgroveWarning, match=r"index=binarizer\.classes_"):
        training_corpus(ROWS["text"], matrix)
    with pytest.raises(DataError, match="'a' occurs twice"):
        training_corpus(ROWS["text"], matrix, ["a", "a"])


def test_columns_with_a_filtered_index_are_read_by_position():
    table = pandas.DataFrame({"text": ["a", "b", "c"], "labels": [["x"], ["y"], ["z"]]}).iloc[1:]
    corpus = Corpus.from_lists(table["text"], table["labels"])
    assert [corpus.texts[0], corpus.texts[1]] == ["b", "c"]
    assert corpus.label_lists() == [["y"], ["z"]]


@pytest.mark.parametrize("value", [None, float("nan"), np.float64("nan"), pandas.NA])
def test_missing_texts_and_labels_are_named_with_the_remedy(value):
    missing = r"document 1 is missing \((None|nan|<NA>)\).*fillna"
    pytest.raises(DataError, checked_inputs, ["a", value]).match(missing)
    pytest.raises(DataError, Corpus.from_lists, ["a", value], [["x"], ["y"]]).match("fillna")
    labels = [["x"], value]
    pytest.raises(DataError, training_corpus, ["a", "b"], labels).match(r"missing.*give \[\]")
    pytest.raises(DataError, training_corpus, ["x"], ["a; b c"]).match(r"\['a', 'b c'\]")


def test_columns_of_any_library_hold_missing_texts():
    model = Linear().fit(ROWS["text"], ROWS["labels"])
    polars = pytest.importorskip("polars")
    columns = [
        pandas.Series(["hat", None], dtype=kind) for kind in ("string", "object", "category")
    ]
    for column in [*columns, polars.Series(["hat", None]), pyarrow.array(["hat", None])]:
        with pytest.raises(DataError, match=r'document 1 is missing.*fillna\(""\).*fill_null'):
            model.predict(column)


def test_columns_of_records_are_checked_like_lists():
    polars = pytest.importorskip("polars")
    rows = [{"title": text, "creator": "Ada"} for text in ROWS["text"]]
    documents = polars.Series(records(rows, text=["title"], fields=["creator"]))
    model = Linear().fit(documents, ROWS["labels"])
    assert model.facts_.fields is not None
    best = model.predict(polars.Series(rows), k=1)  # a column of structures
    assert best.names() == ROWS["labels"]
    plain = Linear().fit(ROWS["text"], ROWS["labels"])
    pytest.raises(DataError, plain.predict, documents).match("the model was trained on plain texts")


def test_a_lazy_frame_is_refused_without_running_its_query():
    polars = pytest.importorskip("polars")
    model = Linear().fit(ROWS["text"], ROWS["labels"])
    lazy = polars.LazyFrame(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pytest.raises(DataError, model.predict, lazy).match("are a LazyFrame, not yet read; give")
        pytest.raises(DataError, Linear().fit, ROWS["text"], lazy).match("LazyFrame")


def test_labels_in_columns_and_frames_are_the_truth(frame):
    model = Linear().fit(ROWS["text"], ROWS["labels"])
    predictions = model.predict(ROWS["text"], k=1)
    truth = [["hats"], ["hats", "new"]]  # half of the first labels, and a third of all
    expected = evaluate(predictions, truth, metrics=["P@1", "R@1"])
    assert expected.values == {"P@1": 0.5, "R@1": 0.25}
    table = frame({"labels": truth})
    numbers = frame({"new": [0, 1], "hats": [1, 1]})
    for given in (table, table["labels"], numbers):
        assert evaluate(predictions, given, metrics=["P@1", "R@1"]) == expected
    arrays = [np.array(labels, dtype=object) for labels in truth]  # as pandas reads Parquet
    assert evaluate(predictions, arrays, metrics=["P@1", "R@1"]) == expected
