"""How a report looks: its words, and in a real browser contrast in both themes, and phones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from labelgrove import Linear
from labelgrove.data.shop import shop_corpus
from labelgrove.experiments.report import write_report
from labelgrove.experiments.report.look import duration, percent, shortened
from labelgrove.text.tfidf import TfidfParams
from support.browsing import CONTRASTS, browser, violations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_numbers_and_texts_in_words() -> None:
    times = [duration(seconds) for seconds in (0.012, 12.3, 75, 9000)]
    assert times == ["12 ms", "12.3 s", "1 min 15 s", "2 h 30 min"]
    assert (percent(0.5), percent(0.012, signed=True), percent(float("nan"))) == (
        "50.00",
        "+1.20",
        "–",
    )
    assert shortened("one  two three", 8) == "one two…"
    assert shortened(" one  two ", 8) == "one two"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("look") / "report.html"
    train, dev = shop_corpus(300, labels=30), shop_corpus(60, labels=30, part="dev")
    other = Linear(tfidf=TfidfParams(max_features=50)).fit(train)
    against = {"a run with a rather long name": other}
    write_report(Linear().fit(train), dev, file, against=against, intervals=20)
    return file.as_uri()


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with browser() as started:
        yield started


def open_report(started: Any, address: str, **options: Any) -> Any:
    page = started.new_context(**options).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("request", lambda request: complaints.append(request.url))
    page.goto(address)
    assert complaints == [address]  # nothing else was loaded, and the policy forbade nothing
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    return page


def test_texts_can_be_read_in_both_themes(started: Any, address: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        page = open_report(started, address, color_scheme=scheme)
        contrasts = page.evaluate(CONTRASTS)
        words = {words for _, words in contrasts}
        assert {"labels per document, k", "Time and memory", "linear"} <= words
        weak = [(round(ratio, 2), words) for ratio, words in contrasts if ratio < 4.5]
        assert not weak
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        lines = page.evaluate(
            "getComputedStyle(document.querySelector('[id=quality] ~ * svg path[style*=accent]'))"
            ".stroke"
        )
        grounds.add(lines)
    assert len(grounds) == 4  # the page and its charts both change


def test_a_phone_needs_no_scrolling_sideways(started: Any, address: str) -> None:
    page = open_report(started, address, viewport={"width": 360, "height": 740}, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_nothing_is_wrong_by_the_rules_of_axe(started: Any, address: str) -> None:
    assert violations(open_report(started, address), ("light", "dark")) == []
