"""Counters, gauges and histograms for Prometheus, summed over all worker processes.

With several workers, ``run.py`` sets PROMETHEUS_MULTIPROC_DIR to a shared folder before they start.
prometheus_client then keeps the numbers of each process in files there, and the process that is
asked adds them up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

__all__ = ["CONTENT_TYPE"]
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
# Everything else counts as "other", so that clients cannot make the list of metrics grow.
OF_A_MODEL = ("predict", "labels", "tree", "feedback")
ROUTES = {f"{base}/{name}" for base in ("/v1", "/v1/models/{name}") for name in OF_A_MODEL}
ROUTES |= {"/v1/model", "/v1/models", "/v1/models/{name}"}
ROUTES |= {"/healthz", "/readyz", "/metrics", "/openapi.json"}
STATUSES = {200, 400, 401, 403, 404, 405, 408, 413, 421, 422, 429, 431, 500, 503, 507}
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The numbers of the service."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(f"labelgrove_{name}", help, labels, registry=registry)

        def gauge(name: str, help: str, *labels: str) -> Gauge:
            name = f"labelgrove_{name}"
            return Gauge(name, help, labels, registry=registry, multiprocess_mode="livesum")

        def histogram(
            name: str, help: str, *labels: str, bounds: tuple[float, ...] = SECONDS
        ) -> Histogram:
            return Histogram(f"labelgrove_{name}", help, labels, registry=registry, buckets=bounds)

        self.requests = counter(
            "requests", "Requests by route, model and status.", "route", "model", "status"
        )
        self.request_seconds = histogram(
            "request_seconds", "Seconds from a request's arrival to its answer.", "route", "model"
        )
        self.texts = counter("texts", "Texts whose labels were predicted.", "model")
        self.batch_texts = histogram("batch_texts", "Texts per batch.", "model", bounds=TEXTS)
        self.batch_seconds = histogram("batch_seconds", "The model's time.", "model")
        self.waiting_seconds = histogram("waiting_seconds", "Requests' time in the queue.", "model")
        self.waiting_texts = gauge("waiting_texts", "Texts queued or being worked on.", "model")
        self.open_requests = gauge("open_requests", "Requests that have no answer yet.")
        self.open_connections = gauge("open_connections", "Connections that were let in.")
        self.reloads = counter(
            "reloads", "New models in the folder, by outcome.", "model", "outcome"
        )
        self.feedback = counter("feedback", "Entries of feedback that were kept.", "model")

    def of(self, model: str) -> ModelMetrics:
        """The numbers of one model."""
        return ModelMetrics(self, model)

    def count_request(
        self, route: str, status: int | None, model: str = "", seconds: float | None = None
    ) -> None:
        """Counts an answered request; ``seconds`` if it went well and its time is of interest."""
        known = str(status) if status in STATUSES else "other"
        route = route if route in ROUTES else "other"
        self.requests.labels(route, model, known).inc()
        if seconds is not None and route != "other":
            self.request_seconds.labels(route, model).observe(seconds)

    def text(self, **info: Sequence[dict[str, str]]) -> str:
        """Prometheus' text format; each of ``info`` adds gauges of 1 with these labels."""
        return generate_latest(_Collected(self._registry, info)).decode()


class ModelMetrics:
    """The numbers of one model of the service."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.texts = metrics.texts.labels(model)
        self.batch_texts = metrics.batch_texts.labels(model)
        self.batch_seconds = metrics.batch_seconds.labels(model)
        self.waiting_seconds = metrics.waiting_seconds.labels(model)
        self.waiting_texts = metrics.waiting_texts.labels(model)
        self.loaded = metrics.reloads.labels(model, "loaded")
        self.failed = metrics.reloads.labels(model, "failed")
        self.feedback = metrics.feedback.labels(model)


class _Collected(Collector):
    """All metrics, without the times at which prometheus_client created them."""

    def __init__(
        self, registry: CollectorRegistry, info: dict[str, Sequence[dict[str, str]]]
    ) -> None:
        self._registry = registry
        self._info = info

    def collect(self) -> Iterator[Metric]:
        folder = os.environ.get(FOLDER)
        source: Collector = self._registry
        if folder:
            _forget_dead_processes(Path(folder))
            source = MultiProcessCollector(None, folder)  # type: ignore[no-untyped-call]
        for metric in source.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
        for name, rows in self._info.items():
            family = InfoMetricFamily(f"labelgrove_{name}", "What is running.")
            for labels in rows:
                family.add_metric([], labels)
            yield family


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
