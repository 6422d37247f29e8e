"""The table of labels beside a slow twin, as data for the page's script, and in a real browser."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from labelgrove import Corpus, LabelIndex, Predictions
from labelgrove.metrics.ranking import Judged
from labelgrove.report import label_file, write_report
from labelgrove.report.labels import Example, label_table
from support.browsing import CONTRASTS, Visit, browser
from support.judgements import best, judgements, true
from support.report_pages import Page

MANY = 3000


@given(judgements(), st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_the_table_has_what_loops_count(judged: Judged, k: int) -> None:
    table = label_table([judged], k=k)
    documents = range(len(judged))
    has = [set(true(judged, row)) for row in documents]
    got = [set(best(judged, row, k)) for row in documents]
    labels = sorted(set().union(*has, *got), key=lambda one: (-sum(one in h for h in has), one))
    assert table.columns.tolist() == labels
    pairs: Counter[tuple[int, int]] = Counter()
    for h, g in zip(has, got, strict=True):
        pairs.update((m, w) for m in h - g for w in g - h)
        pairs.update((w, m) for m in h - g for w in g - h)
    for row, label in enumerate(labels):
        right = [d for d in documents if label in has[d] & got[d]]
        scores = table.scores[0]
        assert scores.true[row] == sum(label in h for h in has)
        assert (scores.predicted[row], scores.hits[row]) == (
            sum(label in g for g in got),
            len(right),
        )
        together = {other: pairs[label, other] for other in labels if pairs[label, other]}
        assert table.confusions[row] == max(together.values(), default=0)
        partner = int(table.partners[row])
        assert (labels[partner] in together) if together else partner == -1
        assert set(table.right[row]) <= set(right)
        assert len(table.right[row]) == min(3, len(right))
        missed = [Example(d, True) for d in documents if label in has[d] - got[d]]
        wrong = [Example(d, False) for d in documents if label in got[d] - has[d]]
        assert set(table.wrong[row]) <= {*missed, *wrong}
        assert len(table.wrong[row]) == min(3, len(missed) + len(wrong))
        if missed and wrong:
            assert {e.missed for e in table.wrong[row]} == {True, False}


def test_examples_are_the_surest_ones() -> None:
    scores = np.array([[0.1, 0.9], [0.8, 0.1], [0.7, 0.2], [0.9, 0.1], [0.6, 0.5]])
    corpus = Corpus.from_lists([""] * 5, [["a"]] * 5, index=LabelIndex("ab"))
    p = Predictions.from_scores(scores, k=1, index=corpus.index)
    report = write_report(p, corpus, None, intervals=None)
    assert report.labels.right == [[3, 1, 2], []]
    assert report.labels.wrong == [[Example(0, True)], [Example(0, False)]]
    assert report.labels.partners.tolist() == [1, 0]


def made(documents: int = 400, labels: int = MANY) -> tuple[Corpus, Predictions]:
    rng = np.random.default_rng(0)
    index = LabelIndex(
        [f"id:{i}" for i in range(labels)],
        names=[f"<b>Label</b> & {i}" if i % 2 else f"Étikett {i}" for i in range(labels)],
    )
    columns = np.stack([rng.choice(labels, 5, replace=False) for _ in range(documents)])
    scores = np.sort(rng.random((documents, 5)), axis=1)[:, ::-1].astype(np.float32)
    counts = np.full(documents, 5, np.int32)
    truth = [[f"id:{c}" for c in row[::2]] + ["id:7"] for row in columns]
    texts = [f"</script><script>alert({i})</script> text {i}" for i in range(documents)]
    predictions = Predictions(columns.astype(np.int32), scores, counts, index)
    return Corpus.from_lists(texts, truth, index=index), predictions


def read_data(file: Path) -> dict[str, Any]:
    source = file.read_text(encoding="utf-8")
    assert source.startswith("labelgroveLabels(") and source.endswith(");\n")
    assert "</script" not in source
    data: dict[str, Any] = json.loads(source[len("labelgroveLabels(") : -3])
    return data


def test_many_labels_are_in_a_file_beside_the_page(tmp_path: Path) -> None:
    corpus, predictions = made()
    out = tmp_path / "r.html"
    report = write_report(predictions, corpus, out, intervals=None)
    page = Page(out.read_text(encoding="utf-8"))
    page.check(out.read_text(encoding="utf-8"))
    rows = page.tables["Labels, percent"]
    assert len(rows) == 21 and rows[1][0] == "<b>Label</b> & 7"
    assert rows[1][1] == f"{int((corpus.labels[:, 7] > 0).sum()):,}"
    assert f"The 20 most frequent of {len(report.labels):,} labels" in page.text
    assert label_file(out) == tmp_path / "r.labels.js" and "r.labels.js" in page.text
    data = read_data(label_file(out))
    assert data["names"][0] == "<b>Label</b> & 7" and data["ids"][0] == "id:7"
    assert len(data["names"]) == len(data["right"]) == len(report.labels)
    title, text = data["documents"][data["wrong"][0][0] // 2]
    assert title.startswith("Document ") and "alert" in text

    write_report(predictions, corpus, out, intervals=None, worst=0)
    assert "alert" not in out.read_text(encoding="utf-8") + label_file(out).read_text()
    few = Corpus.from_lists(["x"], [["a"]])
    one = Predictions.from_scores([[1.0]], k=1, index=few.index)
    write_report(one, few, out, intervals=None)
    assert not label_file(out).exists()
    label_file(out).write_text("the reader's own")
    write_report(one, few, out, intervals=None)
    assert label_file(out).read_text() == "the reader's own"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus, predictions = made()
    # A name that a URL must quote.
    file = tmp_path_factory.mktemp("labels") / "a #1 report?.html"
    other = Predictions(
        predictions.columns[:, ::-1], predictions.scores, predictions.counts, predictions.index
    )
    write_report(predictions, corpus, file, intervals=None, against={"other": other})
    return file


def first(page: Any) -> str:
    return str(page.locator("#label-table tbody th").first.inner_text())


def opened(started: Any, file: Path, **options: Any) -> Visit:
    visit = Visit(started.new_context(**options), file.as_uri())
    visit.page.goto(file.as_uri())
    return visit


@pytest.mark.timeout(120)
def test_the_table_is_searched_sorted_and_paged_from_disk(started: Any, report: Path) -> None:
    visit = opened(started, report)
    page = visit.page
    assert visit.requests == [report.as_uri()]  # the data are loaded when they are needed
    assert page.locator("#label-table tbody tr").count() == 20
    data = read_data(label_file(report))
    page.fill("#label-search", "ÉTIKETT 12")
    visit.wait_until("document.querySelector('[role=status]').textContent.includes('that match')")
    shown = page.locator("#label-table tbody th").all_inner_texts()
    both = zip(data["names"], data["ids"], strict=True)
    expected = [name for name, id in both if "Étikett" in name and "12" in name + id]
    assert shown == expected[:50]
    page.fill("#label-search", "id:7")
    visit.wait_until("document.querySelector('#label-table tbody th').innerText.includes('& 7')")
    assert page.locator("#label-table tbody td").first.inner_text() == f"{data['support'][0]:,}"
    page.fill("#label-search", "no such label")
    visit.wait_until("document.querySelector('[role=status]').textContent.startsWith('No label')")
    page.fill("#label-search", "")
    visit.wait_until("document.querySelectorAll('#label-table tbody tr').length === 50")

    page.get_by_role("button", name="label", exact=True).click()
    visit.wait_until("document.querySelector('#label-table th').ariaSort === 'ascending'")
    assert first(page) == min(data["names"], key=str.lower)
    page.get_by_role("button", name="label", exact=True).press("Enter")
    visit.wait_until("document.querySelector('#label-table th').ariaSort === 'descending'")
    assert first(page) == max(data["names"], key=str.lower)
    page.get_by_role("button", name="predicted").click()
    page.get_by_role("button", name="Later").click()
    visit.wait_until("document.querySelector('[role=status]').textContent.startsWith('51 to 100')")
    cell = page.locator("#label-table tbody tr td:nth-child(3)").first.inner_text()
    assert int(cell) == sorted(data["runs"][0]["predicted"], reverse=True)[50]

    page.get_by_role("button", name="F1, other").click()
    visit.wait_until("document.querySelector('[aria-sort] button').innerText.includes('other')")
    f1 = [float(text.replace("–", "-1")) for text in column(page, 7)]
    assert f1 == sorted(f1, reverse=True)
    summary = page.locator("#label-table tbody summary").first
    summary.click()
    assert "alert(" in page.locator("#label-table tbody details[open]").first.inner_text()
    assert len(visit.requests) == 2
    assert not visit.complaints


def column(page: Any, number: int) -> list[str]:
    cells: list[str] = page.locator(f"#label-table tbody tr :nth-child({number})").all_inner_texts()
    return [text for text in cells if text.strip()][:50]


def test_texts_of_the_table_can_be_read_and_a_phone_shows_it(started: Any, report: Path) -> None:
    for scheme in ("light", "dark"):
        visit = opened(
            started,
            report,
            color_scheme=scheme,
            viewport={"width": 360, "height": 740},
            is_mobile=True,
        )
        visit.page.get_by_role("button", name="Later").click()
        visit.wait_until("document.querySelectorAll('#label-table tbody tr').length === 50")
        visit.page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
        weak = [(ratio, words) for ratio, words in visit.page.evaluate(CONTRASTS) if ratio < 4.5]
        assert not weak
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_missing_file_is_told(started: Any, report: Path, tmp_path: Path) -> None:
    alone = tmp_path / report.name
    alone.write_bytes(report.read_bytes())
    visit = opened(started, alone)
    visit.page.get_by_role("button", name="Later").click()
    visit.wait_until("document.querySelector('[role=status]').textContent.includes('not beside')")
    assert visit.page.locator("#label-table tbody tr").count() == 20


def test_a_small_table_needs_no_second_file(started: Any, tmp_path: Path) -> None:
    corpus, predictions = made(documents=15, labels=60)
    write_report(predictions, corpus, tmp_path / "small.html", intervals=None)
    assert not label_file(tmp_path / "small.html").exists()
    visit = opened(started, tmp_path / "small.html")
    visit.page.fill("#label-search", "id:7")
    visit.wait_until("document.querySelector('#label-table tbody th').innerText.includes('& 7')")
    assert len(visit.requests) == 1 and not visit.complaints
