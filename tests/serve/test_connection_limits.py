"""Connections are counted in total and by address, and fit below the limit of open files."""

import logging
import resource

import pytest

from labelgrove.serve import protocol
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.protocol import ConnectionLimits, allow_descriptors
from labelgrove.serve.settings import ServeParams

pytestmark = pytest.mark.slow


def limits(total=4, each=2):
    return ConnectionLimits(
        ServeParams(max_connections=total, max_connections_per_address=each), Metrics()
    )


def test_one_address_cannot_take_all_connections():
    connections = limits()
    assert [connections.enter("192.0.2.1") is None for _ in range(4)] == [True, True, False, False]
    assert connections.enter("192.0.2.2") is None and connections.enter(None) is None
    problem = connections.enter("192.0.2.3")
    assert problem is not None and "4 open connections" in problem.detail
    assert problem.status == 503 and problem.headers["Retry-After"] == "1"
    connections.leave("192.0.2.1")
    assert connections.enter("192.0.2.3") is None
    assert "labelgrove_open_connections 4.0\n" in connections.metrics.text()


def test_hosts_with_many_ipv6_addresses_count_once():
    connections = limits()
    assert connections.enter("2001:db8::1") is None and connections.enter("2001:db8::2") is None
    assert connections.enter("2001:db8::ffff:3") is not None
    assert connections.enter("2001:db8:0:1::1") is None


def test_addresses_that_left_are_forgotten():
    connections = limits()
    for number in range(100):
        assert connections.enter(f"192.0.2.{number}") is None
        connections.leave(f"192.0.2.{number}")
    assert not connections._addresses


def test_few_descriptors_lower_the_limit(monkeypatch, caplog):
    monkeypatch.setattr(protocol, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 256))
    with caplog.at_level(logging.WARNING):
        connections = limits(total=1024, each=256)
    assert connections.limit == 256 - 20 - protocol.REFUSED - protocol.SPARE
    assert connections.limit_per_address == connections.limit // 4
    assert "ulimit -n" in caplog.text


def test_the_soft_limit_is_raised_as_far_as_needed(monkeypatch):
    descriptors = {"now": (256, 4096)}
    monkeypatch.setattr(protocol, "_open_descriptors", lambda: 20)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: descriptors["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, new: descriptors.update(now=new))
    allow_descriptors(1024)
    assert 1024 < descriptors["now"][0] < 2048 and descriptors["now"][1] == 4096
    assert limits(total=1024).limit == 1024
    allow_descriptors(100)
    assert descriptors["now"][0] > 1024  # never lowered
    allow_descriptors(100_000)
    assert descriptors["now"] == (4096, 4096)
