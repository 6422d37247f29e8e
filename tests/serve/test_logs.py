"""Repeated messages are written once per second."""

from __future__ import annotations

import logging

import pytest

from labelgrove.serve.logs import NOISY, OncePerSecond, limit_logs

pytestmark = pytest.mark.slow


def test_a_message_is_written_once_per_second() -> None:
    now = [100.0]
    lines: list[str] = []
    logger = logging.Logger("strangers")
    logger.addFilter(OncePerSecond(lambda: now[0]))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    for number in range(2048):
        logger.error(f"socket.accept() out of system resource\nsocket: {number}")
    logger.error("something else: %d%%", 5)
    assert [line.split("\n")[0] for line in lines] == [
        "socket.accept() out of system resource",
        "something else: 5%",
    ]
    now[0] += 1.0
    logger.error("socket.accept() out of system resource")
    assert lines[2:] == [
        "socket.accept() out of system resource (2047 more like this since the last line)"
    ]


def test_messages_that_never_repeat_do_not_pile_up() -> None:
    once = OncePerSecond(lambda: 0.0)
    for number in range(5000):
        record = logging.LogRecord("x", logging.ERROR, "", 0, f"{number}", None, None)
        assert once.filter(record)
    assert len(once._last) < 2000


def test_loggers_are_limited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NOISY:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    limit_logs()
    limit_logs()
    assert [len(logging.getLogger(name).filters) for name in NOISY] == [1, 1]
