"""The table of labels, missed ones and wrong documents beside slow twins; runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from labelgrove import Corpus, LabelIndex, Linear, Predictions
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.metrics.ranking import Judged, judge
from labelgrove.experiments.report import write_report
from labelgrove.experiments.report.measuring import (
    Run,
    best_scores,
    label_table,
    missed_labels,
    most_wrong,
    on_one_index,
    predicted,
)
from support.label_reports import made, read_data
from support.report_pages import Page

LABELS = 7


@st.composite
def judgements(draw: st.DrawFn) -> Judged:
    documents = draw(st.integers(1, 6))
    size = documents * LABELS
    scores = draw(
        st.lists(st.sampled_from([-1, 0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)
    )
    truth = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    matrix = np.array(scores, float).reshape(documents, LABELS)
    matrix[matrix < 0] = -np.inf  # never predicted
    predictions = Predictions.from_scores(matrix, k=4, index=LabelIndex("abcdefg"))
    unknown = draw(st.lists(st.integers(0, 2), min_size=documents, max_size=documents))
    return judge(predictions, np.array(truth, float).reshape(documents, LABELS), unknown=unknown)


def best(judged: Judged, row: int, k: int) -> list[int]:
    count = min(k, int(judged.predictions.counts[row]))
    return judged.predictions.columns[row, :count].tolist()


def true(judged: Judged, row: int) -> list[int]:
    return judged.truth.indices[judged.truth.indptr[row] : judged.truth.indptr[row + 1]].tolist()


@given(judgements(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_the_table_has_what_loops_count(judged: Judged, k: int) -> None:
    table = label_table([judged], k=k)
    documents = range(len(judged))
    has = [set(true(judged, row)) for row in documents]
    got = [set(best(judged, row, k)) for row in documents]
    labels = sorted(set().union(*has, *got), key=lambda one: (-sum(one in h for h in has), one))
    assert table.columns.tolist() == labels
    for row, label in enumerate(labels):
        right = [d for d in documents if label in has[d] & got[d]]
        scores = table.scores[0]
        assert scores.true[row] == sum(label in h for h in has)
        assert (scores.predicted[row], scores.hits[row]) == (
            sum(label in g for g in got),
            len(right),
        )


def test_a_report_on_many_labels_is_one_file(tmp_path: Path) -> None:
    corpus, predictions = made()
    out = tmp_path / "r.html"
    report = write_report(predictions, corpus, out, intervals=None)
    page = Page(out.read_text(encoding="utf-8"))
    page.check(out.read_text(encoding="utf-8"))
    assert len(page.tables["Labels, percent"]) == 1  # rows are data
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]
    data = read_data(out)
    assert data["support"][0] == int((corpus.labels[:, 7] > 0).sum())
    assert data["names"][0] == "<b>Label</b> & 7" and data["ids"][0] == "id:7"
    assert len(data["names"]) == len(report.labels)

    write_report(predictions, corpus, out, intervals=None, worst=0)
    assert "alert" not in out.read_text(encoding="utf-8")


@given(judgements(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_missed_labels_are_those_that_are_not_among_the_best(judged: Judged, k: int) -> None:
    rows, columns = missed_labels(judged, k)
    expected = [
        (row, label)
        for row in range(len(judged))
        for label in true(judged, row)
        if label not in best(judged, row, k)
    ]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


def test_scores_of_the_best_labels_are_taken_for_probabilities_if_they_can_be() -> None:
    index = LabelIndex("ab")
    p = Predictions.from_scores([[0.25, 0.5], [1 + 1e-7, 0.125]], k=2, index=index)
    found = best_scores(judge(p, [[1, 0], [0, 1]]), k=1)
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([0.5, 1.0], [False, False])
    for outside in (-0.5, 1.5):
        p = Predictions.from_scores([[outside, 0.5]], k=2, index=index)
        assert best_scores(judge(p, [[1, 0]]), k=2) is None
    margins = Predictions.from_scores([[0.5, 0]], k=1, index=index, score_kind="margin")
    assert best_scores(judge(margins, [[1, 0]]), k=1) is None


@given(judgements())
@settings(max_examples=60, deadline=None)
def test_most_wrong_documents_come_first_and_right_ones_never(judged: Judged) -> None:
    result = most_wrong(judged, k=3, most=100)
    values = [document.ndcg for document in result]
    assert values == sorted(values)
    rows = {document.row for document in result}
    for row in range(len(judged)):
        size = int(judged.sizes[row])
        places = judged.hits[row, : min(3, size)]
        perfect = len(places) == min(3, size) and bool(places.all())
        assert (row in rows) == (size > 0 and not perfect)
    for document in result:
        expected = [c for c in true(judged, document.row) if c not in best(judged, document.row, 3)]
        assert list(document.missed) == expected


def test_among_equally_wrong_documents_the_most_confident_comes_first() -> None:
    p = Predictions.from_scores([[0.3, 0], [0.9, 0], [0, 1]], k=1, index=LabelIndex("ab"))
    assert [d.row for d in most_wrong(judge(p, [[0, 1]] * 3), k=1, most=9)] == [1, 0]


CORPUS = Corpus.from_lists(
    ["red shoes", "blue hat", "green lamp"], [["shoes", "red"], ["hats"], ["lamps", "green"]]
)


def test_a_run_comes_from_a_model_a_folder_predictions_or_a_file(tmp_path: Path) -> None:
    model = Linear().fit(CORPUS)
    model.save(tmp_path / "saved")
    file = tmp_path / "p.jsonl"
    file.write_text("".join('{"labels": ["hats"], "scores": [0.5]}\n' for _ in range(3)))
    fresh = predicted(model, CORPUS, k=2)
    assert fresh.name == "linear" and fresh.seconds is not None
    stored = predicted(tmp_path / "saved", CORPUS, k=2)
    assert (stored.name, stored.folder) == ("saved", tmp_path / "saved")
    assert np.array_equal(stored.predictions.columns, fresh.predictions.columns)
    ready = predicted(fresh.predictions, CORPUS, k=1)
    assert ready.predictions.k == 1 and ready.seconds is None
    assert predicted(str(file), CORPUS, k=2).predictions.names() == [["hats"]] * 3


def test_other_things_are_refused_with_a_sentence() -> None:
    pytest.raises(ConfigError, predicted, 3, CORPUS, k=1).match("cannot report on int")
    p = Predictions.from_scores([[1.0]], k=1, index=LabelIndex("a"))
    pytest.raises(DataError, predicted, p, CORPUS, k=1).match("1 predictions but 3 documents")


def test_runs_with_other_labels_keep_their_metrics() -> None:
    truth = Corpus.from_lists(["1", "2"], [["a", "c"], ["b", "z"]])
    mine = Predictions.from_scores([[0.9, 0.2], [0.1, 0.8]], k=2, index=LabelIndex("ab"))
    other = Predictions.from_scores(
        [[0.3, 0.9, 0.1], [0.9, 0.2, 0.3]], k=3, index=LabelIndex(["c1", "b", "a"], names="Cba")
    )
    third = Predictions.from_scores([[0.3], [0.4]], k=1, index=LabelIndex("c"))
    metrics = ["P@1", "P@3", "R@3", "nDCG@3"]
    before = [evaluate(p, truth, metrics=metrics).values for p in (mine, other, third)]
    moved = on_one_index([Run("", mine), Run("", other), Run("", third)])
    index = moved[0].predictions.index
    assert list(index.ids) == ["a", "b", "c1", "c"]
    assert all(run.predictions.index is index for run in moved)
    assert [evaluate(run.predictions, truth, metrics=metrics).values for run in moved] == before
    assert moved[1].predictions.ids() == other.ids()


def test_equal_indexes_are_shared_and_padding_stays_padding() -> None:
    first = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ab"))
    second = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ab"))
    third = Predictions.from_scores([[0.9, -np.inf]], k=2, index=LabelIndex("ba"))
    same = on_one_index([Run("", first), Run("", second)])
    assert same[0].predictions.index is same[1].predictions.index
    moved = on_one_index([Run("", first), Run("", third)])
    assert moved[1].predictions.columns.tolist() == [[1, -1]]
