"""Reports as files: their values are the metrics' own, and no text can break out of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Linear, Predictions
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import by_frequency, compare_all, evaluate
from labelgrove.experiments.report import Report, to_html, write_report
from support.models import Plain
from support.report_pages import Page

THINGS = ["shoes", "hats", "lamps", "chairs", "tables"]
COLOURS = ["red", "blue", "green"]


def shop(documents: int, seed: int = 0) -> Corpus:
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(documents):
        thing, colour = THINGS[rng.integers(5)], COLOURS[rng.integers(3)]
        word = colour if rng.random() < 0.8 else COLOURS[rng.integers(3)]
        texts.append(f"item {number}: {word} {thing}")
        labels.append([thing, colour] + (["sale"] if rng.random() < 0.1 else []))
    return Corpus.from_lists(texts, labels)


@pytest.fixture(scope="module")
def model() -> Linear:
    return Linear().fit(shop(120))


@pytest.fixture(scope="module")
def held_out() -> Corpus:
    return shop(60, seed=1)


def read(file: Path) -> Page:
    html = file.read_text(encoding="utf-8")
    page = Page(html)
    page.check(html)
    return page


def shown(report: Report) -> Page:
    html = to_html(report)
    page = Page(html)
    page.check(html)
    return page


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def test_values_are_those_of_the_metrics(model: Linear, held_out: Corpus, tmp_path: Path) -> None:
    other = Linear(tfidf=model.tfidf.__class__(max_features=3)).fit(shop(120))
    write_report(
        model, held_out, tmp_path / "r.html", against={"small": other}, intervals=50, name="big"
    )
    page = read(tmp_path / "r.html")
    known = {"train_frequencies": model.facts_.frequencies, "n_train": model.facts_.documents}
    names = [f"{family}@{k}" for family in ("P", "nDCG", "PSP", "R") for k in (1, 3, 5)]
    mine, theirs = model.predict(held_out, k=9), other.predict(held_out, k=9)
    expected = evaluate(mine, held_out, metrics=names, intervals=50, **known)
    head, *rows = page.tables["big, percent"]
    assert head == ["metric", "@1", "@3", "@5"]
    for family, *cells in rows:
        for k, cell in zip((1, 3, 5), cells, strict=True):
            low, high = expected.intervals[f"{family}@{k}"]
            value = percent(expected[f"{family}@{k}"])
            assert cell == f"{value} [{percent(low)}, {percent(high)}]"
    curves = page.tables["Curves, percent"]
    assert curves[0][:5] == ["k", "P@k, big", "nDCG@k, big", "PSP@k, big", "R@k, big"]
    assert curves[3][1] == percent(expected["P@3"]) and len(curves) == 1 + len(model.index_)

    both = compare_all([mine, theirs], held_out, metrics=names, intervals=50, **known)
    differences = both.pairs[0, 1]
    table = page.tables["big minus small, percent and percentage points"]
    by_name = {row[0]: row[1:] for row in table[1:]}
    for name in names:
        low, high = differences.intervals[name]
        assert by_name[name][:4] == [
            percent(differences.second.values[name]),
            percent(differences.first.values[name]),
            f"{100 * differences.differences[name]:+.2f}",
            f"{100 * low:+.2f} to {100 * high:+.2f}",
        ]
        verdict = "better" if low > 0 else "worse" if high < 0 else "not settled"
        assert by_name[name][4] == verdict

    bins = by_frequency(mine, held_out, train_frequencies=model.facts_.frequencies, k=5)
    table = page.tables["big: the 5 best labels by frequency, percent"]
    for row, b in zip(table[1:], bins, strict=True):
        recall = "–" if np.isnan(b.recall) else percent(b.recall)
        assert row[1:] == [
            f"{b.labels:,}",
            f"{b.occurrences:,}",
            f"{b.hits:,}",
            recall,
            percent(b.precision_share),
        ]


def test_numbers_come_back_without_texts(model: Linear, held_out: Corpus) -> None:
    report = write_report(model, held_out, None, against=[model], intervals=None)
    numbers = report.to_dict()
    assert [run["name"] for run in numbers["runs"]] == ["linear", "linear (2)"]
    assert numbers["runs"][0]["values"]["P@1"] == report.evaluations[0]["P@1"]
    assert numbers["runs"][1]["subject_minus_this"]["P@1"] == [0, 0, 0]
    assert "item" not in str(numbers)


def test_costs_settings_and_training_are_told(
    model: Linear, held_out: Corpus, tmp_path: Path
) -> None:
    model.save(tmp_path / "saved")
    write_report(tmp_path / "saved", held_out, tmp_path / "r.html")
    page = read(tmp_path / "r.html")
    stages = page.tables["Training of saved"]
    assert [row[0] for row in stages[1:]] == list(model.timings_)
    assert all(row[3].endswith("iB") for row in stages[1:])
    assert 'method = "linear"' in page.text


HOSTILE = [
    "</bdi></li><script>alert(1)</script>",
    "' onmouseover='alert(1)",
    '"><img src=http://evil.example/x.png>',
    "&lt;b&gt; <!-- <style>*{display:none}</style>",
    "nul \x00 bell \x07 lone \ud800 turn \u202e around",
    "]]> <svg onload=alert(1)>",
]


def test_hostile_labels_texts_ids_and_names_stay_text(tmp_path: Path) -> None:
    labels = [[label, HOSTILE[(i + 1) % 6]] for i, label in enumerate(HOSTILE)] * 4
    texts = [f"word{i} {HOSTILE[i]}" for i in range(6)] * 4
    ids = [f"{HOSTILE[i % 6]} {i}" for i in range(24)]
    corpus = Corpus.from_lists(texts, labels, ids=ids)
    index = corpus.index
    rng = np.random.default_rng(0)
    wrong = Predictions.from_scores(rng.random((24, 6)), k=6, index=index)
    report = write_report(
        Stub(wrong),
        corpus,
        tmp_path / "r.html",
        against={HOSTILE[0]: wrong, HOSTILE[1]: wrong},
        name=HOSTILE[2],
        title=HOSTILE[3],
        data_name=HOSTILE[4],
        k=3,
    )
    assert report.wrong
    page = read(tmp_path / "r.html")
    assert "alert(1)" in page.text and "evil.example" in page.text
    assert {tag for tag, _ in page.tags} <= {
        *("html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3"),
        *("p", "dl", "div", "dt", "dd", "nav", "ul", "ol", "li", "main", "section", "footer"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "span", "bdi", "details"),
        *("summary", "pre", "code", "figure", "figcaption", "svg", "desc", "text", "g", "path"),
        *("defs", "use", "rect", "clippath", "script", "noscript"),
    }


class Stub(Plain):
    """A model that gives ready predictions, with what a fitted one remembers."""

    def __init__(self, predictions: Predictions) -> None:
        super().__init__(method="stub")
        self.index_ = predictions.index
        self.facts_ = TrainingFacts(6, np.full(len(self.index_), 2), True)
        self.predictions = predictions

    def to_config(self) -> dict[str, Any]:
        return {}

    def predict(self, X: Any, k: int = 5, **request: Any) -> Predictions:
        return self.predictions.top(k)


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, 2])
def test_empty_predictions_are_reported(width: int) -> None:
    corpus = Corpus.from_lists(["x", "y"], [["a"], ["b"]])
    empty = Predictions(
        np.full((2, width), -1, np.int32),
        np.full((2, width), -np.inf, np.float32),
        np.zeros(2, np.int32),
        corpus.index,
    )
    training = TrainingFacts.of(corpus)
    page = shown(write_report(empty, corpus, None, training=training, against=[empty]))
    assert page.tables["predictions, percent"][1][1].startswith("0.00")
    assert "it predicted nothing" in page.text
    assert "Predicted: nothing" in page.text


def test_one_document_without_training_counts(tmp_path: Path) -> None:
    corpus = Corpus.from_lists(["only one"], [["a"]])
    p = Predictions.from_scores([[7.5]], k=1, index=corpus.index, score_kind="margin")
    page = shown(write_report(p, corpus, None))
    assert "how often labels occur in training is not known" in page.text
    assert "margins and scores outside 0 to 1" in page.text
    assert "are right" in page.text and "PSP@1" not in page.text


def test_a_run_that_knows_other_labels_is_compared_fairly(model: Linear) -> None:
    corpus = Corpus.from_lists(["red shoes", "a drum"], [["shoes", "red"], ["drums"]])
    index = LabelIndex(["drums", "shoes"])
    other = Predictions.from_scores([[0.1, 0.9], [0.9, 0.1]], k=2, index=index)
    report = write_report(model, corpus, None, against=[other], intervals=None)
    assert report.evaluations[1]["P@1"] == 1.0
    alone = write_report(model, corpus, None, intervals=None)
    for name, value in report.evaluations[0].values.items():
        if name in alone.evaluations[0].values:
            assert value == pytest.approx(alone.evaluations[0][name], nan_ok=True)


@pytest.mark.slow
def test_no_texts_are_shown_where_none_are_wanted(model: Linear, held_out: Corpus) -> None:
    assert "item 1" in to_html(write_report(model, held_out, None, worst=60, intervals=None))
    page = to_html(write_report(model, held_out, None, worst=0, intervals=None))
    assert "item " not in page and "Most wrong" not in page


@pytest.mark.slow
def test_texts_are_cut_and_features_need_none(model: Linear) -> None:
    label = model.index_.ids[0]
    corpus = Corpus.from_lists(["long " * 10_000] * 2, [["nothing like it"], [label]])
    assert "long " * 70 not in to_html(write_report(model, corpus, None, intervals=None))
    features = Corpus(None, np.eye(2), LabelIndex("ab"), features=np.eye(2))
    p = Predictions.from_scores([[0, 1], [0, 1]], k=1, index=features.index)
    assert "the data are features" in to_html(write_report(p, features, None, intervals=None))


def test_what_cannot_be_reported_is_refused(model: Linear, tmp_path: Path) -> None:
    unlabelled = Corpus.from_lists(["x"], [[]], index=model.index_)
    with pytest.raises(DataError, match="no document of the corpus has a label"):
        write_report(model, unlabelled, tmp_path / "r.html")
    with pytest.raises(DataError, match="no documents"):
        write_report(model, Corpus.from_lists([], []), tmp_path / "r.html")
    with pytest.raises(ConfigError, match="worst must be at least 0"):
        write_report(model, shop(2), tmp_path / "r.html", worst=-1)
    with pytest.raises(ConfigError, match="k must be a whole number"):
        write_report(model, shop(2), tmp_path / "r.html", k=0)
    assert not (tmp_path / "r.html").exists()
