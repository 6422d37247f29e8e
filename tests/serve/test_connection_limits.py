"""Connections are counted in total and by address, and fit below the limit of open files."""

from __future__ import annotations

import logging
import resource
from typing import Any

import pytest

from labelgrove.serve import connection_limits
from labelgrove.serve.connection_limits import ConnectionLimits, allow_descriptors
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.settings import ServeParams

pytestmark = pytest.mark.slow


def counting(total: int = 4, each: int = 2) -> ConnectionLimits:
    return ConnectionLimits(
        ServeParams(max_connections=total, max_connections_per_address=each), Metrics()
    )


def test_one_address_cannot_take_all_connections() -> None:
    counted = counting()
    assert [counted.enter("192.0.2.1") is None for _ in range(4)] == [True, True, False, False]
    assert counted.enter("192.0.2.2") is None and counted.enter(None) is None
    problem = counted.enter("192.0.2.3")
    assert problem is not None and "4 open connections" in problem.detail
    assert problem.status == 503 and problem.headers["Retry-After"] == "1"
    counted.leave("192.0.2.1")
    assert counted.enter("192.0.2.3") is None
    assert "labelgrove_open_connections 4.0\n" in counted.metrics.text()


def test_hosts_with_many_ipv6_addresses_count_once() -> None:
    counted = counting()
    assert counted.enter("2001:db8::1") is None and counted.enter("2001:db8::2") is None
    assert counted.enter("2001:db8::ffff:3") is not None
    assert counted.enter("2001:db8:0:1::1") is None


def test_addresses_that_left_are_forgotten() -> None:
    counted = counting()
    for number in range(100):
        assert counted.enter(f"192.0.2.{number}") is None
        counted.leave(f"192.0.2.{number}")
    assert not counted._addresses


def test_few_descriptors_lower_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_limits, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    with caplog.at_level(logging.WARNING):
        counted = counting(total=1024, each=256)
    assert counted.limit == 256 - 20 - connection_limits.REFUSED - connection_limits.SPARE
    assert counted.limit_per_address == counted.limit // 4
    assert "ulimit -n" in caplog.text


def test_the_soft_limit_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"now": (256, 4096)}
    monkeypatch.setattr(connection_limits, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: limits.update(now=new))
    allow_descriptors(1024)
    assert 1024 < limits["now"][0] < 2048 and limits["now"][1] == 4096
    assert counting(total=1024).limit == 1024
    allow_descriptors(100)
    assert limits["now"][0] > 1024  # never lowered
    allow_descriptors(100_000)
    assert limits["now"] == (4096, 4096)
