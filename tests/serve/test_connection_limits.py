"""Connections are counted in total and by address, and fit below the limit of open files."""

from __future__ import annotations

import logging
import resource
from typing import Any

import pytest

from labelgrove.serve import gate as gates
from labelgrove.serve.connection_limits import ConnectionLimits, allow_descriptors
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.settings import ServeParams

pytestmark = pytest.mark.slow


def gate(total: int = 4, each: int = 2) -> ConnectionLimits:
    return ConnectionLimits(
        ServeParams(max_connections=total, max_connections_per_address=each), Metrics()
    )


def test_one_address_cannot_take_all_connections() -> None:
    door = gate()
    assert [door.enter("192.0.2.1") is None for _ in range(4)] == [True, True, False, False]
    assert door.enter("192.0.2.2") is None and door.enter(None) is None
    problem = door.enter("192.0.2.3")
    assert problem is not None and "4 open connections" in problem.detail
    assert problem.status == 503 and problem.headers["Retry-After"] == "1"
    door.leave("192.0.2.1")
    assert door.enter("192.0.2.3") is None
    assert "labelgrove_open_connections 4.0\n" in door.metrics.text()


def test_hosts_with_many_ipv6_addresses_count_once() -> None:
    door = gate()
    assert door.enter("2001:db8::1") is None and door.enter("2001:db8::2") is None
    assert door.enter("2001:db8::ffff:3") is not None
    assert door.enter("2001:db8:0:1::1") is None


def test_addresses_that_left_are_forgotten() -> None:
    door = gate()
    for number in range(100):
        assert door.enter(f"192.0.2.{number}") is None
        door.leave(f"192.0.2.{number}")
    assert not door._addresses


def test_few_descriptors_lower_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gates, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    with caplog.at_level(logging.WARNING):
        door = gate(total=1024, each=256)
    assert door.limit == 256 - 20 - gates.REFUSED - gates.SPARE
    assert door.limit_per_address == door.limit // 4
    assert "ulimit -n" in caplog.text


def test_the_soft_limit_is_raised_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {"now": (256, 4096)}
    monkeypatch.setattr(gates, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: limits.update(now=new))
    allow_descriptors(1024)
    assert 1024 < limits["now"][0] < 2048 and limits["now"][1] == 4096
    assert gate(total=1024).limit == 1024
    allow_descriptors(100)
    assert limits["now"][0] > 1024  # never lowered
    allow_descriptors(100_000)
    assert limits["now"] == (4096, 4096)
