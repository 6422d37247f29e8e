"""Counters, gauges and histograms for Prometheus, summed over all worker processes.

With several workers, ``run.py`` sets PROMETHEUS_MULTIPROC_DIR to a shared folder before they start.
prometheus_client then keeps the numbers of each process in files there, and the process that is
asked adds them up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE", "FOLDER", "Metrics"]
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Everything else counts as "other", so that clients cannot make the list of metrics grow.
ROUTES = {f"/v1/{name}" for name in ("predict", "labels", "model")}
ROUTES |= {"/healthz", "/readyz", "/metrics", "/openapi.json"}
STATUSES = {200, 400, 401, 404, 405, 408, 413, 421, 422, 429, 431, 500, 503}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The numbers of the service."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"labelgrove_{name}", help, labels, registry=registry)

        def gauge(name: str, help: str) -> Gauge:
            return Gauge(f"labelgrove_{name}", help, registry=registry, multiprocess_mode="livesum")

        def histogram(name: str, help: str, bounds: tuple[float, ...] = SECONDS) -> Histogram:
            return Histogram(f"labelgrove_{name}", help, registry=registry, buckets=bounds)

        self.requests = counter("requests", "Requests by route and status.", "route", "status")
        self.request_seconds = histogram(
            "request_seconds", "Seconds from a predict request's arrival to its answer."
        )
        self.texts = counter("texts", "Texts whose labels were predicted.")
        self.batch_texts = histogram("batch_texts", "Texts per batch.", TEXTS)
        self.batch_seconds = histogram("batch_seconds", "The model's time.")
        self.waiting_seconds = histogram("waiting_seconds", "Requests' time in the queue.")
        self.waiting_texts = gauge("waiting_texts", "Texts queued or being worked on.")
        self.open_requests = gauge("open_requests", "Requests that have no answer yet.")
        self.open_connections = gauge("open_connections", "Connections that were let in.")
        self.reloads = counter("reloads", "New models in the folder, by outcome.", "outcome")
        for outcome in ("loaded", "failed"):
            self.reloads.labels(outcome)

    def count_request(self, route: str, status: int | None) -> None:
        """Counts an answered request."""
        known = str(status) if status in STATUSES else "other"
        self.requests.labels(route if route in ROUTES else "other", known).inc()

    def text(self, **info: dict[str, str]) -> str:
        """Prometheus' text format; each ``info`` adds a gauge of 1 with these labels."""
        return generate_latest(_Collected(self._registry, info)).decode()


class _Collected(Collector):
    """All metrics, without the times at which prometheus_client created them."""

    def __init__(self, registry: CollectorRegistry, info: dict[str, dict[str, str]]) -> None:
        self._registry = registry
        self._info = info

    def collect(self) -> Iterator[Metric]:
        folder = os.environ.get(FOLDER)
        source: Any = self._registry
        if folder:
            _forget_dead_processes(Path(folder))
            source = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        for metric in source.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
        for name, labels in self._info.items():
            yield InfoMetricFamily(f"labelgrove_{name}", "What is running.", value=labels)


def _forget_dead_processes(folder: Path) -> None:
    """Removes the gauges of workers that were killed; uvicorn does not say which these are."""
    if sys.platform == "win32":  # where signal 0 would end the process
        return
    for file in folder.glob("gauge_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except PermissionError:  # alive
            continue
        except ProcessLookupError:
            with suppress(FileNotFoundError):  # another worker may do the same now
                mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]
