"""A real Ray cluster of two small nodes, shared by all tests that need no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 120 << 20}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two nodes; skips where ray is not installed."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    # Workers must find labelgrove and the functions of tests.
    paths = [str(ROOT / "src"), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    started.add_node(**NODE)
    yield started
    started.shutdown()


@pytest.fixture
def engine(cluster: Any) -> Iterator[Any]:
    """The engine on the shared cluster."""
    from labelgrove.engines import open_engine

    with open_engine("ray", address=cluster.address) as opened:
        yield opened
