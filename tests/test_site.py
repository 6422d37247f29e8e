"""The documentation site and its notebooks: they run, they are whole, and they load nothing."""

import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.browsing import Visit, browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
BUILDING = importlib.util.find_spec("sphinx") and importlib.util.find_spec("furo")


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_notebooks_run(file, tmp_path, monkeypatch):
    notebook = json.loads(file.read_text(encoding="utf-8"))
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) >= 4
    # Outputs would grow old in the repository; the site makes them new.
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(cell, str(file), "exec"), namespace)


class Links(HTMLParser):
    """What a page links to, what it loads, and its ids."""

    def __init__(self, html):
        super().__init__()
        self.links = []
        self.loaded = []
        self.ids = set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def builder():
    if not BUILDING:
        pytest.skip("Sphinx is not installed")
    place = ROOT / "docs" / "site" / "build.py"
    spec = importlib.util.spec_from_file_location("site_builder", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(builder, tmp_path_factory):
    return builder.build(tmp_path_factory.mktemp("site"), execute=False)


def test_every_page_and_link_of_the_site_is_there(builder, site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / builder.staged(page)).with_suffix(".html").exists()
    pages = {file: Links(file.read_text(encoding="utf-8")) for file in site.rglob("*.html")}
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or not (parts.path or parts.fragment):
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            assert target.exists(), f"{file.relative_to(site)} links to {link}"
            if parts.fragment and target in pages and "genindex" not in str(file):
                assert unquote(parts.fragment) in pages[target].ids, f"{file.name}: {link}"


def test_the_site_loads_nothing_from_other_hosts(site):
    for file in site.rglob("*.html"):
        for source in Links(file.read_text(encoding="utf-8")).loaded:
            assert not urlsplit(source).netloc and not source.startswith("//"), f"{file}: {source}"
    for file in site.rglob("*.css"):
        css = file.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", css), file


@pytest.fixture
def started():
    with browser() as started:
        yield started


def test_search_finds_pages_in_a_browser_without_a_server(site, started):
    for width in (1280, 360):
        context = started.new_context(viewport={"width": width, "height": 800})
        address = (site / "search.html").as_uri() + "?q=propensity"
        visit = Visit(context, address)
        visit.page.goto(address)
        visit.wait_until("document.querySelectorAll('#search-results li').length > 0")
        visit.wait_until("document.querySelector('#search-results').innerText.includes('Metrics')")
        visit.check()
        visit.page.goto((site / "index.html").as_uri())
        assert visit.page.locator("img[src$='report.webp']").count() == 1
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.check()
        context.close()
