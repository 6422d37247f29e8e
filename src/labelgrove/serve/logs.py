"""Keeps clients from filling the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

# What strangers can cause as often as they like: failed accepts, bad requests.
NOISY = ("asyncio", "uvicorn.error")


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
