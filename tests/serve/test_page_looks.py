"""How the page looks in a real browser: themes, phones, motion."""

import pytest

from labelgrove import Linear
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


# Words that are on more than one line, and bars that are not beside their words.
BROKEN = """() => {
    const broken = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const node = walk.currentNode;
        if (!node.parentElement.checkVisibility()) continue;
        if (node.parentElement.closest(".hidden, .skip, textarea, script")) continue;
        for (const word of node.data.matchAll(/[\\p{L}\\p{N}]+/gu)) {
            const range = document.createRange();
            range.setStart(node, word.index);
            range.setEnd(node, word.index + word[0].length);
            const tops = [...range.getClientRects()].map((one) => Math.round(one.top));
            if (new Set(tops).size > 1) broken.push(word[0]);
        }
    }
    const middle = (one) => one.getBoundingClientRect().y + one.getBoundingClientRect().height / 2;
    for (const row of document.querySelectorAll(".words li"))
        if (Math.abs(middle(row.querySelector(".bar")) - middle(row)) > 3)
            broken.push(row.innerText);
    return broken;
}"""


ORIGINS = "(bars) => bars.map((bar) => getComputedStyle(bar, '::after').transformOrigin)"


@pytest.mark.parametrize("width", [360, 1280])
def test_no_word_is_broken_and_what_one_needs_is_in_view(browser, tmp_path, width):
    names = ["Betriebswirtschaftslehre", "Computerunterstütztes Verfahren", "Unternehmensgründung"]
    texts = [f"{name} und {names[number - 1]}" for number, name in enumerate(names)] * 4
    Linear().fit(texts, [[name] for name in names] * 4).save(tmp_path / "model")
    size = {"viewport": {"width": width, "height": 740}}
    with (
        running(tmp_path / "model", feedback=tmp_path) as client,
        visiting(browser, client.base_url, **size) as visit,
    ):
        page = visit.page
        page.fill("#text", " ".join(names))
        page.click("#find")
        for needed in ("nav a", ".choosing input[role=combobox]", ".choosing > button"):
            page.wait_for_selector(needed)
            box = page.locator(needed).first.bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] <= 740, needed
        for view in VIEWS:
            assert open_all(visit, view, " ".join(names)).evaluate(BROKEN) == []
            if view == "try":  # words against a label go to the left of the middle
                for bars, left in ((".bar.minus", True), (".bar:not(.minus)", False)):
                    origins = page.locator(f".signed {bars}").evaluate_all(ORIGINS)
                    assert {float(origin.split("px")[0]) > 0 for origin in origins} == {left}


def test_motion_can_be_reduced(browser, service):
    lasting = "getComputedStyle(document.querySelector('.bar'), '::after').transitionDuration"
    for wish, expected in (("reduce", "0s"), ("no-preference", "0.35s")):
        with visiting(browser, service.base_url, reduced_motion=wish) as visit:
            assert open_all(visit, "try").evaluate(lasting) == expected
