"""What the service logs: a line of JSON per request, and messages that clients cannot multiply.

The lines are for machines: who asked what, with which outcome, in which time. They contain no texts
and no searches.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from starlette.types import Scope

access = logging.getLogger("labelgrove.access")
REQUEST_ID = b"x-request-id"
# An id that a proxy or a client has given is kept; anything else could forge lines of a log.
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# What strangers can cause as often as they like: failed accepts, bad requests.
NOISY = ("asyncio", "uvicorn.error")


def request_id(headers: Mapping[bytes, bytes]) -> bytes:
    """The id that came with a request, or a new one.

    >>> request_id({b"x-request-id": b"abc-1"}), len(request_id({b"x-request-id": b"a b"}))
    (b'abc-1', 16)
    """
    given = headers.get(REQUEST_ID, b"")
    return given if _ID.fullmatch(given) else secrets.token_hex(8).encode()


def write_access(scope: Scope, id: bytes, **outcome: str | float | None) -> None:
    """Writes the line of an answered request."""
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": id.decode(),
        "client": scope["client"][0] if scope.get("client") else None,
        "method": scope["method"],
        "path": scope["path"],
    }
    access.info(json.dumps(line | outcome))


def log_access() -> None:
    """Writes the lines to standard output, apart from messages; does nothing when called again."""
    if not access.handlers:
        access.addHandler(logging.StreamHandler(sys.stdout))
        access.setLevel(logging.INFO)
        access.propagate = False


class OncePerSecond(logging.Filter):
    """Lets each message through once per second, then with the number of those left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        # The first words: what follows (sockets, addresses) differs every time.
        key = str(record.msg).partition("\n")[0][:80]
        now = self._clock()
        if now - self._last.get(key, -1.0) < 1.0:
            self._left_out[key] = self._left_out.get(key, 0) + 1
            return False
        if len(self._last) > 1000:
            self._last.clear()
            self._left_out.clear()
        self._last[key] = now
        if count := self._left_out.pop(key, 0):
            record.msg = f"{record.msg} ({count} more like this since the last line)"
        return True


def limit_logs() -> None:
    """Limits the loggers that clients can make write; does nothing when called again."""
    for name in NOISY:
        logger = logging.getLogger(name)
        if not any(isinstance(present, OncePerSecond) for present in logger.filters):
            logger.addFilter(OncePerSecond())
