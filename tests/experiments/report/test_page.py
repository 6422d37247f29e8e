"""A report in a real browser, from disk: its table of labels, contrasts, phones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from labelgrove import Linear, Predictions
from labelgrove.data.shop import shop_corpus
from labelgrove.experiments.report import write_report
from labelgrove.text.tfidf import TfidfParams
from support.browsing import Visit, browser, violations
from support.label_reports import made, read_data

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True}


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


def test_the_table_is_searched_sorted_and_paged_from_disk(started: Any, report: Path) -> None:
    visit = opened(started, report)
    page = visit.page
    assert page.locator("#label-table tbody tr").count() == 50
    data = read_data(report)
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
    assert visit.requests == [report.as_uri()]  # everything is in the one file
    assert not visit.complaints


def column(page: Any, number: int) -> list[str]:
    cells: list[str] = page.locator(f"#label-table tbody tr :nth-child({number})").all_inner_texts()
    return [text for text in cells if text.strip()][:50]


def test_a_phone_shows_the_table(started: Any, report: Path) -> None:
    for scheme in ("light", "dark"):
        visit = opened(started, report, color_scheme=scheme, **PHONE)
        visit.page.get_by_role("button", name="Later").click()
        visit.wait_until("document.querySelectorAll('#label-table tbody tr').length === 50")
        visit.page.evaluate(OPEN_ALL)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("look") / "report.html"
    train, dev = shop_corpus(300, labels=30), shop_corpus(60, labels=30, part="dev")
    other = Linear(tfidf=TfidfParams(max_features=50)).fit(train)
    against = {"a run with a rather long name": other}
    write_report(Linear().fit(train), dev, file, against=against, intervals=20)
    return file


def open_report(started: Any, file: Path, **options: Any) -> Any:
    visit = opened(started, file, **options)
    # Nothing else was loaded, and the policy forbade nothing.
    assert visit.requests == [file.as_uri()] and not visit.complaints
    visit.page.evaluate(OPEN_ALL)
    return visit.page


def test_both_themes_change_the_page_and_its_charts(started: Any, whole: Path) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page = open_report(started, whole, color_scheme=scheme)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        lines = page.evaluate(
            "getComputedStyle(document.querySelector('[id=quality] ~ * svg path[style*=accent]'))"
            ".stroke"
        )
        grounds.add(lines)
    assert len(grounds) == 4  # the page and its charts both change


def test_a_phone_needs_no_scrolling_sideways(started: Any, whole: Path) -> None:
    page = open_report(started, whole, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_nothing_is_wrong_by_the_rules_of_axe(started: Any, report: Path, whole: Path) -> None:
    assert violations(open_report(started, whole), ("light", "dark")) == []
    visit = opened(started, report)
    visit.page.get_by_role("button", name="predicted").click()
    visit.wait_until("document.querySelectorAll('#label-table tbody tr').length === 50")
    assert violations(visit.page, ("light", "dark phone")) == []
