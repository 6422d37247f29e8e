"""A Ray cluster, shared by all tests that leave it whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

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
