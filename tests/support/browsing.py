"""A real browser for tests of pages: Chromium from the PATH, driven by playwright."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

TEXT = "A <b>kettle</b> 🫖 of copper for camping, in forest green. Not for cat lovers."

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "width": 360},
    "dark phone": {"color_scheme": "dark", "width": 360},
}


def violations(page: Any, looks: Collection[str] = tuple(LOOKS)) -> list[tuple[str, str, str]]:
    """What axe-core finds wrong: look, rule and the first element that breaks it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.evaluate(Path(axe.__file__).with_name("axe.min.js").read_text(encoding="utf-8"))
    found = []
    for look in looks:
        wish = LOOKS[look]
        page.emulate_media(color_scheme=wish["color_scheme"], reduced_motion="reduce")
        page.set_viewport_size({"width": wish.get("width", 1280), "height": 900})
        page.wait_for_timeout(100)  # until it is painted
        for one in page.evaluate("axe.run().then((result) => result.violations)"):
            found.append((look, one["id"], one["nodes"][0]["html"]))
    return found


@contextmanager
def browser() -> Iterator[Any]:
    """The browser, or a skipped test where there is none."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on the PATH")
    # As root, as in many containers, Chromium runs without its sandbox or not at all.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with driver.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield started
        started.close()


class Visit:
    """A page and everything it did: what it asked for, and what it complained about."""

    def __init__(self, context: Any, address: str) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.address = address
        self.page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._noted)

    def _noted(self, message: Any) -> None:
        # A refused request is no fault of the page; the tests look at what it makes of it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def wait_until(self, script: str) -> None:
        """Waits until an expression is true.

        Playwright's wait_for_function would do it inside the page, whose policy forbids to run
        strings: it works only where the first look finds the expression true.
        """
        last = time.monotonic() + 60
        while not self.page.evaluate(script):
            assert time.monotonic() < last, f"never came true: {script}"
            self.page.wait_for_timeout(20)

    def check(self) -> None:
        """Nothing was asked of other hosts, and nothing was forbidden or failed."""
        own = urlsplit(self.address).netloc
        strangers = [url for url in self.requests if urlsplit(url).netloc not in ("", own)]
        assert not strangers
        assert not self.complaints


@contextmanager
def visiting(started: Any, address: Any, view: str = "try", **options: Any) -> Iterator[Visit]:
    """Opens the page in a window of its own."""
    settings = {"viewport": {"width": 1280, "height": 900}} | options
    context = started.new_context(**settings)
    visit = Visit(context, str(address))
    visit.page.goto(f"{address}/#/{view}")
    try:
        yield visit
        visit.check()
    finally:
        context.close()


def find(page: Any, shown: str, text: str | None = None) -> None:
    """Asks for the labels of a text, or of what is there, and waits until something is shown."""
    if text is not None:
        page.fill("#text", text)
    page.click("#find")
    page.wait_for_selector(shown)


def ask(page: Any, text: str = TEXT) -> None:
    find(page, ".ranking .why .words", text)


def names(page: Any) -> list[str]:
    return [name.split("\n")[0] for name in page.locator(".ranking .name").all_inner_texts()]
