"""The page for browsers: its files, with a policy that lets them load and run nothing else.

The page is plain HTML, CSS and JavaScript modules in the folder ``page`` and uses the same routes
as every client. A report may be somebody else's HTML: only the script of our reports runs in it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response

from labelgrove.serve.copies import read_plain
from labelgrove.serve.models import Models
from labelgrove.serve.problems import Problem

FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# By its path: importing labelgrove.experiments.report would load much that serving does not need.
_REPORT = Path(__file__).parents[1] / "experiments" / "report"
REPORT_SCRIPT = _REPORT / "templates" / "labels.js"
_digest = base64.b64encode(hashlib.sha256(REPORT_SCRIPT.read_bytes()).digest()).decode()
REPORT_POLICY = (
    f"default-src 'none'; script-src 'sha256-{_digest}'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",  # the browser asks each time; most answers are 304
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_routes(app: FastAPI, models: Models, *, page: bool) -> None:
    """Adds the page at / and reports at /report.

    They are for people and not in the OpenAPI text. Of a model's own folder no symbolic link to a
    report is followed: in somebody else's it could lead to any file of this machine.
    """

    async def show_page(request: Request) -> Response:
        return await show_file(request, "index.html")

    async def show_file(request: Request, name: str) -> Response:
        content = files.get(name)
        if content is None:
            raise Problem("not-found", f"the page has no file {name!r}")
        return _sent(request, content, TYPES[Path(name).suffix], POLICY)

    def show_report(request: Request, name: str | None = None) -> Response:
        model = models.default if name is None else models.named(name)
        # Read each time, so that a new report needs no restart.
        file, follow = model.source.report, model.source.follow
        content = None if file is None else read_plain(file, follow=follow)
        if content is None:
            raise Problem("no-report", "there is no report; start the service with --report FILE")
        return _sent(request, content, TYPES[".html"], REPORT_POLICY)

    shown: dict[str, Callable[..., Any]] = {"/report": show_report, "/report/{name}": show_report}
    if page:
        files = {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix in TYPES}
        shown |= {"/": show_page, "/page/{name}": show_file}
    for path, show in shown.items():
        app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(show)


def _sent(request: Request, content: bytes, kind: str, policy: str) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = HEADERS | {"ETag": tag, "Content-Security-Policy": policy}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers | {"Content-Type": kind})
