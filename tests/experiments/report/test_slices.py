"""Slices: the metrics of the documents of each value, from given values, records or files."""

from __future__ import annotations

import numpy as np
import pytest

from labelgrove import Corpus, Linear, records
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.experiments.report import to_html, write_report
from labelgrove.experiments.report.runs import MOST_VALUES
from support.report_pages import Page

ROWS = [
    {"text": f"{colour} {thing} {i}", "language": language, "kind": kind, "labels": [colour, thing]}
    for i, (colour, thing, language, kind) in enumerate(
        [
            ("red", "hat", "en", ["new"]),
            ("blue", "shoe", "en", ["new", "sale"]),
            ("red", "shoe", "de", []),
            ("blue", "hat", "fi", ["sale"]),
        ]
        * 6
    )
]
TEXTS = [str(row["text"]) for row in ROWS]
LABELS = [row["labels"] for row in ROWS]


@pytest.fixture(scope="module")
def model() -> Linear:
    return Linear().fit(TEXTS[:9], LABELS[:9])


def test_slices_have_the_values_of_evaluate(model: Linear) -> None:
    corpus = Corpus.from_lists(TEXTS, LABELS)
    languages = [row["language"] for row in ROWS]
    report = write_report(
        model,
        corpus,
        None,
        slices={"language": languages},
        intervals=30,
        against=[model],
        name="me",
    )
    parts = report.slices["language"]
    assert [(one.value, one.documents) for one in parts] == [("en", 12), ("de", 6), ("fi", 6)]
    for one in parts:
        rows = np.flatnonzero(np.array(languages) == one.value)
        part = corpus.take(rows)
        expected = evaluate(
            model.predict(part, k=10), part, metrics=["P@1", "nDCG@3"], intervals=30
        )
        for evaluation in one.evaluations:
            assert evaluation["P@1"] == pytest.approx(expected["P@1"])
            assert evaluation.intervals["P@1"] == pytest.approx(expected.intervals["P@1"])
    html = to_html(report)
    page = Page(html)
    page.check(html)
    table = page.tables["language, me, percent"]
    assert table[0][:3] == ["language", "documents", "P@1"]
    assert table[1][:2] == ["en", "12"]
    assert table[1][2].startswith(f"{100 * parts[0].evaluations[0]['P@1']:.2f} [")
    assert report.to_dict()["slices"]["language"]["de"]["documents"] == 6


def test_a_document_counts_for_each_of_its_values_or_for_none(model: Linear) -> None:
    corpus = Corpus.from_lists(TEXTS, LABELS)
    kinds = {"kind": [row["kind"] for row in ROWS]}
    parts = write_report(model, corpus, None, slices=kinds, intervals=None).slices["kind"]
    counts = [(one.value, one.documents) for one in parts]
    assert counts == [("new", 12), ("sale", 12), ("(no value)", 6)]


def test_many_values_are_joined(model: Linear) -> None:
    corpus = Corpus.from_lists(TEXTS, LABELS)
    parts = write_report(model, corpus, None, slices={"n": range(24)}, intervals=None).slices["n"]
    assert len(parts) == MOST_VALUES + 1
    assert (parts[-1].value, parts[-1].documents) == ("(4 other values)", 4)


def test_values_come_from_records(model: Linear) -> None:
    documents = records(ROWS, text="text", fields="language")
    corpus = Corpus.from_lists(documents, LABELS)
    report = write_report(Linear().fit(corpus), corpus, None, slices=["language"], intervals=None)
    values = [(one.value, one.documents) for one in report.slices["language"]]
    assert values == [("en", 12), ("de", 6), ("fi", 6)]


def test_slices_that_are_not_there_are_refused(model: Linear) -> None:
    corpus = Corpus.from_lists(TEXTS, LABELS)
    with pytest.raises(DataError, match="no document has a value in the field 'language'"):
        write_report(model, corpus, None, slices=["language"])
    with pytest.raises(DataError, match="1 values of 'language' but 24 documents"):
        write_report(model, corpus, None, slices={"language": ["en"]})
