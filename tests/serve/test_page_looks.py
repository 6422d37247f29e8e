"""How the page looks in a real browser: themes, phones, motion."""

import pytest

from support.browsing import find, visiting
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
def service(browser, model_path):
    with running(model_path) as client:
        yield client


def open_all(visit, view, text="this red hat"):
    """A view with something in it."""
    page = visit.page
    page.goto(f"{visit.address}/#/{view}")
    page.wait_for_selector("#summary:has-text('knows')", state="attached")
    if view == "try":
        find(page, ".ranking", text)
        if page.viewport_size["width"] < 1120:
            assert page.is_hidden(".why")  # it would push the other labels away
            page.locator(".label").first.click()
        page.wait_for_selector(FILLED[view])
        page.click("#which summary")
    page.wait_for_selector(FILLED[view])
    return page


def test_light_and_dark_follow_the_system_until_chosen(browser, service):
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


def test_a_phone_needs_no_scrolling_sideways(browser, service):
    text = "this red hat " + "x" * 400
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with visiting(browser, service.base_url, **phone) as visit:
        for view in VIEWS:
            page = open_all(visit, view, text)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            assert page.locator("nav").bounding_box()["y"] >= 0
        page = open_all(visit, "try")
        page.fill("#text", "\n".join([text] * 3))
        page.check("input[value=lines]")
        find(page, "text=3 of 3 texts answered")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
