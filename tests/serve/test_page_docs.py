"""The page about the API, in a real browser."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import CONTRASTS, visiting
from support.services import running

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def service(browser: Any, model_path: Path, tmp_path_factory: Any) -> Iterator[Any]:
    with running({"a": model_path}, feedback=tmp_path_factory.mktemp("said")) as client:
        yield client


def opened(visit: Any) -> Any:
    visit.page.goto(f"{visit.address}/docs")
    visit.page.wait_for_selector(".route .method")
    return visit.page


def test_every_route_has_an_example_that_works(browser: Any, service: Any) -> None:
    described = service.get("/openapi.json").json()["paths"]
    with visiting(browser, service.base_url) as visit:
        page = opened(visit)
        shown = page.locator("#routes .route h3 code").all_inner_texts()
        assert sorted(shown) == sorted(described)
        commands = page.locator("#routes .example pre").all_inner_texts()
        assert len(commands) == len(shown)
        assert "/v1/models/a/predict" in "".join(commands)
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", f"{command} -sS --fail-with-body"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"no_proxy": "*"},
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_an_example_is_copied(browser: Any, service: Any) -> None:
    allowed = {"permissions": ["clipboard-read", "clipboard-write"]}
    with visiting(browser, service.base_url, **allowed) as visit:
        page = opened(visit)
        command = page.locator("#routes .example pre").first.inner_text()
        page.locator("#routes .example button").first.click()
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") == command


def test_the_token_is_asked_for_and_not_shown(browser: Any, model_path: Path) -> None:
    with running(model_path, token="s3cret") as client, visiting(browser, client.base_url) as visit:
        visit.page.goto(f"{client.base_url}/docs")
        visit.page.wait_for_selector("#token-dialog[open]")
        visit.page.keyboard.type("s3cret")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_selector(".route .method")
        text = visit.page.inner_text("main")
        assert "$LABELGROVE_TOKEN" in text and "s3cret" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_also_on_a_phone(browser: Any, service: Any, scheme: str) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    with visiting(browser, service.base_url, **phone) as visit:
        page = opened(visit)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        weak = [one for one in page.evaluate(CONTRASTS) if one[0] < 4.5]
        assert not weak
