"""The page where things go wrong: a busy or lost service, limits, a token, markup in names."""

import re
import threading
from pathlib import Path

import httpx
import pytest

from support.browsing import TEXT, ask, find, names, visiting
from support.services import fitted, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_a_busy_service_is_told_of_and_asked_again(browser, shop_model):
    go_on = threading.Event()

    def wait_once(texts):
        if texts == ["first"]:
            go_on.wait(30)

    limits = {"max_waiting": 1, "max_texts": 1}
    with running(shop_model, slow=wait_once, **limits) as client:
        first = threading.Thread(
            target=httpx.post,
            args=(f"{client.base_url}/v1/predict",),
            kwargs={"json": {"texts": ["first"]}, "timeout": 30},
        )
        with visiting(browser, client.base_url) as visit:
            page = visit.page
            page.fill("#text", TEXT)
            first.start()
            while 'waiting_texts{model="model"} 1' not in client.get("/metrics").text:
                pass
            find(page, "text=The service is busy")
            assert "wait 1 second" in page.inner_text("#ask-problem")
            assert page.input_value("#text") == TEXT
            go_on.set()
            first.join()
            page.locator("button", has_text=re.compile("^Try again$")).click()
            page.wait_for_selector(".ranking")
            assert not page.is_visible("#ask-problem")


def test_many_texts_wait_for_a_busy_service_and_go_on_after_a_fault(browser, shop_model):
    answers = [429, None, 500, None]  # None: the service's own answer
    problem = {"detail": "texts are waiting", "code": "overloaded"}

    def meddle(route):
        status = answers.pop(0) if answers else None
        if status is None:
            route.continue_()
        else:
            route.fulfill(status=status, json=problem, headers={"retry-after": "1"})

    with running(shop_model) as client, visiting(browser, client.base_url) as visit:
        page = visit.page
        page.route("**/v1/predict", meddle)
        page.check("input[value=lines]")
        lines = "\n".join(f"kettle {number}" for number in range(60))
        find(page, "text=Continuing automatically", lines)
        page.wait_for_selector("text=32 of 60 texts answered")
        assert "The service failed" in page.inner_text("#ask-problem")
        page.click("text=Go on")
        page.wait_for_selector("text=60 of 60 texts answered")
        assert not page.is_visible("#ask-problem")


def test_limits_and_a_lost_connection_are_sentences(browser, shop_model):
    limits = {"max_body": 3000, "max_text_chars": 500}
    with running(shop_model, **limits) as client, visiting(browser, client.base_url) as visit:
        page = visit.page
        for text, words in [
            ("word " * 800, "too much for one request"),
            ("word " * 200, "did not accept this: texts[0]"),
        ]:
            find(page, f"text={words}", text)
            assert page.input_value("#text") == text
        page.context.set_offline(True)
        find(page, "text=cannot be reached", TEXT)
        page.context.set_offline(False)
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector(".ranking")
        page.reload()
        page.wait_for_selector("#summary:has-text('knows')")
        assert page.input_value("#text") == TEXT


def test_the_token_is_asked_for_once_though_requests_are_answered_late(browser, shop_model):
    with running(shop_model, token="s3cret") as client, visiting(browser, client.base_url) as visit:
        page, held = visit.page, []
        page.route("**/v1/models", lambda route: held.append(route))
        page.reload()
        page.wait_for_selector("#token-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("text=needs a token")
        with page.expect_response("**/v1/models"):
            held[0].continue_()
        page.wait_for_timeout(300)
        assert page.locator("#token-dialog[open]").count() == 0


def test_the_token_is_asked_for_and_kept_for_the_tab(browser, shop_model, tmp_path):
    report = tmp_path / "report.html"
    report.write_text("<p>A report</p>", encoding="utf-8")
    with (
        running(shop_model, token="s3cret", report=report) as client,
        visiting(browser, client.base_url) as visit,
    ):
        page = visit.page
        page.wait_for_selector("#token-dialog[open]")
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector("#token-wrong:visible")
        page.keyboard.press("Escape")
        page.wait_for_selector("text=needs a token")
        page.fill("#text", "typed meanwhile")
        page.keyboard.press("Control+Enter")
        page.get_by_role("button", name="Try again").click()
        page.wait_for_selector("#token-dialog[open]")
        page.keyboard.type("s3cret")
        page.keyboard.press("Enter")
        page.wait_for_selector("#summary:has-text('knows')")
        assert page.input_value("#text") == "typed meanwhile"
        ask(page)
        stored = "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie]"
        tab, browser_wide, cookies = page.evaluate(stored)
        assert "s3cret" in tab and "s3cret" not in browser_wide + cookies
        page.goto(f"{client.base_url}/#/model")
        with page.expect_download() as downloading:  # a link could not carry the token
            page.click("text=Download the report")
        assert Path(downloading.value.path()).read_text(encoding="utf-8") == "<p>A report</p>"
        page.reload()
        page.wait_for_selector("#model-facts section")
        page.click("#forget-token")
        page.wait_for_selector("#token-dialog[open]")
        assert "s3cret" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_markup_in_labels_and_texts_is_text(browser, tmp_path):
    prefix = "<img src=x onerror=alert(1)>"
    fitted(prefix=prefix).save(tmp_path / "model")
    with running(tmp_path / "model") as client, visiting(browser, client.base_url) as visit:
        ask(visit.page, f"this red hat {prefix}")
        assert names(visit.page)[0].startswith(prefix)
        for view, place in (("labels", "#label-list"), ("tree", "#tree")):
            visit.page.goto(f"{client.base_url}/#/{view}")
            visit.page.locator(place).get_by_text(prefix).first.wait_for()
        assert visit.page.locator("img").count() == 1  # our own mark
