"""Predictions as JSON lines: what is written comes back, and what does not fit is refused."""

import csv
import json

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex
from labelgrove.errors import DataError
from labelgrove.evaluation.prediction_files import (
    prediction_lines,
    prediction_writer,
    read_predictions,
)
from labelgrove.evaluation.predictions import Predictions

INDEX = LabelIndex(["a", "b", "c"], names=["Ä\t", "B", "B"])
CORPUS = Corpus.from_lists(["x", "y"], [["a"], ["c"]], index=INDEX, ids=["d1", "d2"])
SCORES = np.array([[0.5, 0.25, 0.125], [0.0, 0.25, 0.5]])


def write(path, *lines):
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_round_trip_keeps_labels_that_share_a_name(tmp_path):
    predictions = Predictions.from_scores(SCORES, k=3, index=INDEX)
    file = tmp_path / "p.jsonl"
    file.write_bytes(b"".join(prediction_lines(predictions, ["d1", "d2"])))
    again = read_predictions(file, CORPUS)
    assert again.ids() == predictions.ids()
    assert np.allclose(again.scores, predictions.scores)


def test_documents_are_matched_by_id_or_by_order(tmp_path):
    file = write(
        tmp_path / "p",
        '{"id": "d2", "labels": ["c"], "scores": [1]}',
        '{"id": "d1", "labels": ["a"], "scores": [1]}',
    )
    assert read_predictions(file, CORPUS).ids() == [["a"], ["c"]]
    twice = Corpus.from_lists(["x", "y"], [["a"], ["c"]], index=INDEX, ids=["d", "d"])
    lines = ['{"id": "d", "labels": ["a"]}', '{"id": "d", "labels": ["c"]}']
    assert read_predictions(write(tmp_path / "p", *lines), twice).ids() == [["a"], ["c"]]
    pytest.raises(DataError, read_predictions, write(tmp_path / "q", *lines), CORPUS).match("twice")

    file = write(tmp_path / "p", '{"labels": ["c", "a"]}', '{"labels": []}')
    assert read_predictions(file, CORPUS).ids() == [["c", "a"], []]


NO_LIST = r"line 1: (label.* must|scores must|not valid)"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[1]"], "line 1"),
        (['{"labels": ["a"], "scores": ["x"]}'], "line 1: scores must be numbers"),
        (['{"labels": ["a"], "scores": [1, 2]}'], "1 labels but 2 scores"),
        (['{"labels": ["a"]}'], "1 predictions for 2 documents"),
        (['{"labels": ["a"]}', "{nonsense"], "line 2"),
        (['{"id": "d1", "labels": ["a"]}', '{"id": "z", "labels": ["a"]}'], "'d2'"),
        (['{"labels": ["a", "c", "a"], "scores": [0.4, 0.6, 0.4]}'] * 2, "'a' occurs twice"),
        (['{"labels": ["a"], "scores": 5}'], NO_LIST),
        (['{"labels": ["a"], "scores": [1' + "0" * 400 + "]}"], NO_LIST),
        (['{"labels": ["a"], "label_ids": 3}'], NO_LIST),
        (['{"labels": [["a"]]}'], NO_LIST),
        (['{"labels": ' + "[" * 5000 + "]" * 5000 + "}"], NO_LIST),  # some Pythons parse it
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, lines, message):
    pytest.raises(DataError, read_predictions, write(tmp_path / "p", *lines), CORPUS).match(message)
    table = write(tmp_path / "p.csv", "document,rank")
    pytest.raises(DataError, read_predictions, table, CORPUS).match("is a table; give JSON lines")


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_tables_have_the_columns_of_a_frame(tmp_path, name):
    pandas = pytest.importorskip("pandas")
    predictions = Predictions.from_scores(SCORES, k=2, index=INDEX)
    with prediction_writer(str(tmp_path / name)) as write:
        write(predictions, ["d1", None])
        write(predictions.top(1), [None, ""])
    read = {"p.csv": pandas.read_csv, "p.parquet": pandas.read_parquet}
    table = read[name](tmp_path / name)
    assert list(table.columns) == list(predictions.to_frame().columns)
    assert table["document"].astype(str).to_list() == ["d1", "d1", "1", "1", "2", "3"]
    assert table["rank"].to_list() == [1, 2, 1, 2, 1, 1]
    assert table["id"].to_list() == ["a", "b", "c", "b", "a", "c"]
    assert table["name"].str.strip().to_list() == ["Ä", "B", "B", "B", "Ä", "B"]
    assert table["score"].to_list() == [0.5, 0.25, 0.5, 0.25, 0.5, 0.5]


def test_columns_of_the_input_stay_beside_the_labels_and_never_replace_them(tmp_path):
    predictions = Predictions.from_scores(SCORES, k=1, index=INDEX)
    columns = ["text", "name", "input_name", "score"]
    file = tmp_path / "p.csv"
    with prediction_writer(str(file), columns) as write_batch:
        write_batch(predictions, ["d1", "d2"], cells=[["a, b", "n", "m", "9"], ["", "", "", ""]])
    with file.open(encoding="utf-8", newline="") as lines:
        head, first, second = csv.reader(lines)
    assert head[:5] == ["document", "rank", "id", "name", "score"]
    assert head[5:] == ["text", "input_input_name", "input_name", "input_score"]
    assert first[:3] == ["d1", "1", "a"] and first[5:] == ["a, b", "n", "m", "9"]
    assert second[:3] == ["d2", "1", "c"] and second[5:] == [""] * 4


def test_a_spreadsheet_finds_no_formula(tmp_path):
    evil = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
    index = LabelIndex(["=id", "b", "c"], names=["=HYPERLINK(1)", "B", "C"])
    predictions = Predictions.from_scores(SCORES, k=1, index=index).top(1)
    file = tmp_path / "p.csv"
    columns = ["=head", *"abcdef"]
    with prediction_writer(str(file), columns) as write:
        write(predictions, ["=d1", "d2"], cells=[["-3.5", *evil], ["+4", *"abcdef"]])
    with file.open(encoding="utf-8", newline="") as lines:
        head, first, second = csv.reader(lines)
    assert head[5] == "'=head" and first[0] == "'=d1" and first[2:4] == ["'=id", "'=HYPERLINK(1)"]
    assert first[5:] == ["-3.5", *(f"'{cell}" for cell in evil)]
    assert second[5:] == ["+4", *"abcdef"]


def test_documents_without_a_telling_word_are_marked():
    predictions = Predictions.from_scores(SCORES, k=2, index=INDEX)
    lines = list(prediction_lines(predictions, [None, None], [False, True]))
    assert "unknown" not in json.loads(lines[0]) and json.loads(lines[1])["unknown"] is True


def test_an_error_leaves_no_file(tmp_path):
    predictions = Predictions.from_scores(SCORES, k=2, index=INDEX)
    for name in ("p.csv", "p.jsonl"):
        with pytest.raises(KeyError), prediction_writer(str(tmp_path / name)) as write_batch:
            write_batch(predictions, ["d1", "d2"])
            raise KeyError
    assert list(tmp_path.iterdir()) == []
