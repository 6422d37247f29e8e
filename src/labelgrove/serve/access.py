"""One line of JSON per request, for machines: who asked what, with which outcome, in which time.

It contains no texts and no searches.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

log = logging.getLogger("labelgrove.access")
REQUEST_ID = b"x-request-id"
# An id that a proxy or a client has given is kept; anything else could forge lines of a log.
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def request_id(headers: Mapping[bytes, bytes]) -> bytes:
    """The id that came with a request, or a new one.

    >>> request_id({b"x-request-id": b"abc-1"}), len(request_id({b"x-request-id": b"a b"}))
    (b'abc-1', 16)
    """
    given = headers.get(REQUEST_ID, b"")
    return given if _ID.fullmatch(given) else secrets.token_hex(8).encode()


def log_to_stdout() -> None:
    """Writes the lines to standard output, apart from messages; does nothing when called again."""
    if not log.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


def write(
    scope: Mapping[str, Any],
    *,
    id: bytes,
    route: str,
    model: str,
    status: int | None,
    seconds: float,
    size: int,
) -> None:
    """Writes the line of an answered request, whose body has ``size`` bytes."""
    client = scope.get("client")
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": id.decode(),
        "client": client[0] if client else None,
        "method": scope["method"],
        "path": scope["path"],
        "route": route,
        "model": model or None,
        "status": status,
        "ms": round(1000 * seconds, 3),
        "bytes": size,
    }
    log.info(json.dumps(line))
