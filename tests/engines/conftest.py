"""A Ray cluster, shared by all tests that leave it whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from labelgrove.cli import main
from support.clusters import started_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    with started_cluster() as (cluster, _):
        yield cluster


@pytest.fixture(scope="module")
def engine(cluster: Any) -> Iterator[Any]:
    """The engine on the shared cluster; its workers stay, as starting them takes seconds."""
    from labelgrove.engines import open_engine

    with open_engine("ray", address=cluster.address) as opened:
        yield opened


@pytest.fixture
def lossy() -> Iterator[Any]:
    """A cluster, its second node, which may go away, and the engine."""
    from labelgrove.engines import open_engine

    with (
        started_cluster() as (cluster, node),
        open_engine("ray", address=cluster.address) as engine,
    ):
        yield cluster, node, engine


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command in this process and returns its standard output."""

    def run(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["labelgrove", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise AssertionError(capfd.readouterr().err) from None
        return capfd.readouterr().out

    return run
