"""Time limits that a test ends itself, so that no test depends on how busy the machine is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


class Timeouts:
    """Replaces ``asyncio.timeout``: remembers the limits, which end only on command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float | None] = []
        self._open: list[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]] = []
        self._make = asyncio.timeout
        monkeypatch.setattr(asyncio, "timeout", self._timeout)

    def _timeout(self, seconds: float | None) -> asyncio.Timeout:
        limit = self._make(None)
        self.seconds.append(seconds)
        self._open.append((asyncio.get_running_loop(), limit))
        return limit

    def end(self, number: int = -1) -> None:
        """Lets the time of one limit run out; from any thread."""
        loop, limit = self._open[number]

        def expire() -> Any:
            limit.reschedule(loop.time())

        loop.call_soon_threadsafe(expire)
