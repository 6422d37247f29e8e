"""Real Ray clusters of small nodes, all on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# A Ray that a test starts for itself would ask for a token from then on, in this whole process, if
# one is in the home folder; clusters of `Cluster` have none, so their machines could not answer.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
TESTS = Path(__file__).resolve().parents[1]
NODE = {"num_cpus": 1, "object_store_memory": 120 << 20}


@contextmanager
def started_cluster(**options: Any) -> Iterator[tuple[Any, Any]]:
    """A cluster and the second of its two nodes; skips where ray is not installed."""
    given = NODE | options
    pytest.importorskip("ray", reason="the extra ray is not installed")
    # Workers must find labelgrove and the functions of tests.
    paths = [str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args=given | {"include_dashboard": False})
        node = cluster.add_node(**given)
    try:
        yield cluster, node
    finally:
        cluster.shutdown()
