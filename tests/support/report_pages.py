"""Reads a report as a browser would: is it well-formed, what does it load, what do tables say?"""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser
from pathlib import Path

import labelgrove.experiments.report

SCRIPT = Path(labelgrove.experiments.report.__file__).with_name("templates") / "labels.js"
VOID = {"meta", "br", "hr", "img", "link", "input"}
# Attributes that make a browser fetch something or run something.
LOADING = {"src", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """A parsed page; raises AssertionError where tags do not match or ids repeat."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.scripts: list[tuple[str, str]] = []  # type and content
        self.tables: dict[str, list[list[str]]] = {}
        self._caption: str | None = None
        self._row: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"
        assert len(self.ids) == len(set(self.ids)), "an id stands twice"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "a":
            self.links.append(attributes["href"])
        for name in attributes:
            assert not name.startswith("on") and name not in LOADING, f"<{tag} {name}=...>"
        assert "url(" not in attributes.get("style", "") and "@" not in attributes.get("style", "")
        if tag == "use":
            self.links.append(attributes["href"])
        if "clip-path" in attributes:
            self.links.append(attributes["clip-path"].removeprefix("url(").removesuffix(")"))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((attributes.get("type", ""), ""))
        elif tag == "caption":
            self._caption = ""
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th"):
            self._row.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()
        if tag == "caption":
            assert self._caption is not None
            self._table = self.tables.setdefault(self._caption, [])
        elif tag == "tr":
            self._table.append(self._row)

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            return
        if "script" in self.open:
            self.scripts[-1] = (self.scripts[-1][0], data)
            return
        self.words.append(data)
        if "caption" in self.open:
            self._caption = (self._caption or "") + data
        elif "td" in self.open or "th" in self.open:
            self._row[-1] += data

    @property
    def text(self) -> str:
        """All words of the page."""
        return " ".join(" ".join(self.words).split())

    def check(self, html: str) -> None:
        """Nothing comes from elsewhere, everything that is pointed at is there."""
        names = {tag for tag, _ in self.tags}
        assert not names & {"link", "img", "iframe", "object", "embed", "form", "base"}
        assert all(link.startswith("#") and link[1:] in self.ids for link in self.links)
        for tag, attributes in self.tags:
            if tag == "svg" and attributes.get("aria-hidden") != "true":
                assert attributes["role"] == "img"
                assert all(name in self.ids for name in attributes["aria-labelledby"].split())
        style = html[html.index("<style>") : html.index("</style>")]
        assert "url(" not in style and "@import" not in style and "light-dark(" in style
        policy = next(a for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy["content"].startswith("default-src 'none'")
        # The only code is our own, as it stands in the package, and the policy allows no other.
        code = [text for kind, text in self.scripts if kind != "application/json"]
        assert code == [SCRIPT.read_text(encoding="utf-8")]
        allowed = base64.b64encode(hashlib.sha256(SCRIPT.read_bytes()).digest()).decode()
        rules = next(r for r in policy["content"].split("; ") if r.startswith("script-src"))
        assert rules == f"script-src 'sha256-{allowed}'"
