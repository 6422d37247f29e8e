"""All errors as problem+json (RFC 9457).

``code`` is a word for programs; ``detail`` is a sentence for people. For a request that does not
fit the schema, ``errors`` name its fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from labelgrove.errors import ConfigError, DataError, UnsupportedError

MEDIA_TYPE = "application/problem+json"

# Every code that a client can see, and its status; docs/service.md explains each.
CODES = {
    "invalid-http": 400,
    "invalid-json": 400,
    "disconnected": 400,
    "no-token": 401,
    "cross-site": 403,
    "not-found": 404,
    "no-tree": 404,
    "no-node": 404,
    "no-label": 404,
    "no-report": 404,
    "no-model": 404,
    "no-feedback": 404,
    "method-not-allowed": 405,
    "slow-headers": 408,
    "slow-request": 408,
    "too-large": 413,
    "wrong-host": 421,
    "invalid-request": 422,
    "refused-by-model": 422,
    "not-supported": 422,
    "too-much-to-explain": 422,
    "overloaded": 429,
    "headers-too-large": 431,
    "internal-error": 500,
    "not-ready": 503,
    "stopping": 503,
    "time-limit": 503,
    "model-changed": 503,
    "too-many-connections": 503,
    "feedback-locked": 503,
    "feedback-full": 507,
}
# The codes of errors that the framework raises by itself.
_FRAMEWORK = {400: "invalid-json", 404: "not-found", 405: "method-not-allowed"}

SCHEMA: dict[str, object] = {
    "type": "object",
    "title": "Problem",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "const": "about:blank"},
        "title": {"type": "string", "description": "the status in words"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "what went wrong, for programs"},
        "detail": {"type": "string", "description": "what went wrong, for people"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


class Problem(Exception):
    """An error with the code, and so the status, that the client will see.

    >>> Problem("overloaded", "come back later", retry_after=1.2).headers
    {'Retry-After': '2'}
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[dict[str, str]] = (),
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = CODES[code], code, detail
        self.errors = list(errors)
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(max(1, min(60, math.ceil(retry_after))))

    def response(self) -> Response:
        """The answer that the client gets."""
        title = HTTPStatus(self.status).phrase
        body: dict[str, object] = {"type": "about:blank", "title": title, "status": self.status}
        body |= {"code": self.code, "detail": self.detail}
        if self.errors:
            body["errors"] = self.errors
        return Response(as_json(body), self.status, self.headers, media_type=MEDIA_TYPE)


def as_json(value: object) -> bytes:
    """JSON in UTF-8; half a character, which label files may contain, is escaped.

    >>> as_json({"name": "grün \\ud800"}).decode()
    '{"name":"grün \\\\ud800"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def problem_of(error: Exception) -> Problem:
    """What the client learns about an exception; it shows nothing of the server's inside."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid_request(error)
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, UnicodeDecodeError):
            return Problem("invalid-json", "the body is not valid UTF-8")
        code = _FRAMEWORK.get(error.status_code, "internal-error")
        headers = {str(name): str(value) for name, value in (error.headers or {}).items()}
        return Problem(code, str(error.detail), headers=headers)
    if isinstance(error, (DataError, ConfigError)):
        return Problem("refused-by-model", str(error))
    if isinstance(error, UnsupportedError):
        return Problem("not-supported", str(error))
    return Problem("internal-error", "the server failed; its log has the details")


def add_handlers(app: FastAPI) -> None:
    """Replaces FastAPI's own answers to errors; the door catches all others."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem_of(error).response()

    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, answer)


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for the OpenAPI text."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    seconds = {"description": "seconds", "schema": {"type": "integer"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        | ({"headers": {"Retry-After": seconds}} if status == 429 else {})
        for status in statuses
    }


def _invalid_request(error: RequestValidationError) -> Problem:
    items = error.errors()
    for item in items:
        if item["type"] == "json_invalid":
            why = item.get("ctx", {}).get("error", "cannot be parsed")
            return Problem("invalid-json", f"the body is not valid JSON: {why}")
    errors = [{"field": _field(item["loc"]), "message": str(item["msg"])} for item in items[:20]]
    detail = f"{errors[0]['field']}: {errors[0]['message']}"
    return Problem("invalid-request", detail, errors=errors)


def _field(location: Sequence[int | str]) -> str:
    """A path such as texts[3]."""
    path = ""
    for step in location[1:]:
        # The kind of threshold, or of document, that was tried.
        if step in ("float", "literal['auto']", "-text", "-fields"):
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.lstrip(".") or str(location[0])
