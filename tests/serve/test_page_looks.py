"""How the page looks in a real browser: themes, contrast, phones, motion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import CONTRASTS, visiting
from support.services import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FILLED = {
    "try": ".why .links",
    "labels": "#label-list li",
    "tree": "#tree [role=treeitem]",
    "model": "#model-facts section",
}
VIEWS = tuple(FILLED)


@pytest.fixture(scope="module")
def service(browser: Any, model_path: Path) -> Iterator[Any]:
    with running(model_path) as client:
        yield client


def open_all(visit: Any, view: str, text: str = "this red hat") -> Any:
    """A view with something in it."""
    page = visit.page
    page.goto(f"{visit.address}/#/{view}")
    page.wait_for_selector("#summary:has-text('knows')", state="attached")
    if view == "try":
        page.fill("#text", text)
        page.click("#find")
        page.wait_for_selector(FILLED[view])
        page.click("#which summary")
    page.wait_for_selector(FILLED[view])
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read(browser: Any, service: Any, scheme: str) -> None:
    with visiting(browser, service.base_url, color_scheme=scheme) as visit:
        for view in VIEWS:
            contrasts = open_all(visit, view).evaluate(CONTRASTS)
            assert len(contrasts) > 10
            weak = [(round(ratio, 2), words) for ratio, words in contrasts if ratio < 4.5]
            assert not weak


def test_light_and_dark_follow_the_system_until_chosen(browser: Any, service: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with visiting(browser, service.base_url, color_scheme="dark") as visit:
        page = visit.page
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(ground)
        assert dark != light
        page.click("#theme")
        assert page.evaluate(ground) == dark
        page.reload()
        assert page.evaluate(ground) == dark
        page.click("#theme")
        assert page.evaluate(ground) == light


def test_a_phone_needs_no_scrolling_sideways(browser: Any, service: Any) -> None:
    text = "this red hat " + "x" * 400
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with visiting(browser, service.base_url, **phone) as visit:
        for view in VIEWS:
            page = open_all(visit, view, text)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page = open_all(visit, "try")
        page.fill("#text", "\n".join([text] * 3))
        page.check("input[value=lines]")
        page.click("#find")
        page.wait_for_selector("text=3 of 3 texts answered")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_motion_can_be_reduced(browser: Any, service: Any) -> None:
    lasting = "getComputedStyle(document.querySelector('.bar'), '::after').transitionDuration"
    for wish, expected in (("reduce", "0s"), ("no-preference", "0.35s")):
        with visiting(browser, service.base_url, reduced_motion=wish) as visit:
            assert open_all(visit, "try").evaluate(lasting) == expected


def test_everything_has_a_name(browser: Any, service: Any) -> None:
    unnamed = """() => [...document.querySelectorAll("input, select, textarea, button, a")]
        .filter((one) => one.checkVisibility() && !one.labels?.length && !one.innerText.trim()
            && !one.ariaLabel).map((one) => one.outerHTML)"""
    with visiting(browser, service.base_url) as visit:
        for view in VIEWS:
            page = open_all(visit, view)
            assert page.evaluate(unnamed) == []
            assert page.locator("h1:visible").count() == 1
            twice = """() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
                return ids.filter((id, at) => ids.indexOf(id) !== at); }"""
            assert page.evaluate(twice) == []
