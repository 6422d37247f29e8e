"""Counters, gauges and histograms in Prometheus' text format, summed over all worker processes.

Which numbers there are is known beforehand, so they are cells of one array. Every process has an
array of its own; with several, the arrays are files in a shared folder, mapped into memory, and
whichever process is asked adds them all up. Only the event loop's thread writes.
"""

from __future__ import annotations

import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROUTES = (
    "/v1/predict",
    "/v1/labels",
    "/v1/model",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "other",
)
STATUSES = (200, 400, 401, 404, 405, 408, 413, 422, 429, 500, 503)
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# A process that has not moved for so long is gone, and what it had waiting with it.
_ALIVE_SECONDS = 30.0


@dataclass(frozen=True)
class Family:
    """One metric: its name, kind and help, and its label values or bucket bounds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    bounds: tuple[float, ...] = ()


FAMILIES = (
    Family(
        "labelgrove_requests_total",
        "counter",
        "Requests by route and status.",
        labels=(("route", ROUTES), ("status", (*map(str, STATUSES), "other"))),
    ),
    Family(
        "labelgrove_request_seconds",
        "histogram",
        "Seconds from a predict request's arrival to its answer.",
        bounds=_SECONDS,
    ),
    Family("labelgrove_texts_total", "counter", "Texts whose labels were predicted."),
    Family("labelgrove_batch_texts", "histogram", "Texts per batch.", bounds=_TEXTS),
    Family("labelgrove_batch_seconds", "histogram", "The model's time.", bounds=_SECONDS),
    Family(
        "labelgrove_waiting_seconds", "histogram", "Requests' time in the queue.", bounds=_SECONDS
    ),
    Family("labelgrove_waiting_texts", "gauge", "Texts queued or being worked on."),
    Family("labelgrove_open_requests", "gauge", "Requests that have no answer yet."),
    Family(
        "labelgrove_reloads_total",
        "counter",
        "New models found in the folder, by outcome.",
        labels=(("outcome", ("loaded", "failed")),),
    ),
)
_BY_NAME = {family.name: family for family in FAMILIES}


def _layout() -> tuple[dict[tuple[str, tuple[str, ...]], int], int]:
    """The cell of every metric, a histogram's first: its buckets, then its sum. Cell 0: the time
    of the process' last sign of life."""
    cells: dict[tuple[str, tuple[str, ...]], int] = {}
    size = 1
    for family in FAMILIES:
        for values in product(*(choices for _, choices in family.labels)):
            cells[family.name, tuple(values)] = size
            size += len(family.bounds) + 2 if family.kind == "histogram" else 1
    return cells, size


_CELLS, _SIZE = _layout()


class Metrics:
    """The numbers of this process and, through ``folder``, those of its siblings.

    >>> metrics = Metrics()
    >>> metrics.count("labelgrove_texts_total", by=3)
    >>> "labelgrove_texts_total 3" in metrics.text()
    True
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        if folder is None:
            self._values: npt.NDArray[np.float64] = np.zeros(_SIZE)
        else:
            file = folder / f"{uuid.uuid4().hex}.metrics"
            self._values = np.memmap(file, np.float64, mode="w+", shape=(_SIZE,))
        self.beat()

    def beat(self) -> None:
        """A sign of life: without one every few seconds this process' gauges are left out."""
        self._values[0] = time.time()

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Adds to a counter; a label value that is not foreseen counts as "other"."""
        foreseen = tuple(
            value if value in choices else "other"
            for value, (_, choices) in zip(labels, _BY_NAME[name].labels, strict=True)
        )
        self._values[_CELLS[name, foreseen]] += by

    def set(self, name: str, value: float) -> None:
        """Sets a gauge."""
        self._values[_CELLS[name, ()]] = value

    def observe(self, name: str, value: float) -> None:
        """Puts a value into a histogram."""
        bounds, first = _BY_NAME[name].bounds, _CELLS[name, ()]
        self._values[first + bisect_left(bounds, value)] += 1
        self._values[first + len(bounds) + 1] += value

    def text(self, **info: dict[str, str]) -> str:
        """Everything in Prometheus' text format; each ``info`` adds a gauge of 1 with its labels.

        >>> Metrics().text(model_info={"method": "linear"}).splitlines()[-1]
        'labelgrove_model_info{method="linear"} 1'
        """
        values = self._summed()
        lines: list[str] = []
        for family in FAMILIES:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += _samples(family, values)
        for name, labels in info.items():
            lines += [f"# TYPE labelgrove_{name} gauge", f"labelgrove_{name}{_braces(labels)} 1"]
        return "\n".join(lines) + "\n"

    def _summed(self) -> npt.NDArray[np.float64]:
        self.beat()
        if self._folder is None:
            return self._values
        gauges = [_CELLS[f.name, ()] for f in FAMILIES if f.kind == "gauge"]
        total = np.zeros(_SIZE)
        for file in self._folder.glob("*.metrics"):
            values = np.fromfile(file, np.float64)
            if len(values) != _SIZE:  # just being made
                continue
            if time.time() - values[0] > _ALIVE_SECONDS:
                values[gauges] = 0
            total += values
        return total


def _samples(family: Family, values: npt.NDArray[np.float64]) -> Iterator[str]:
    if family.kind == "histogram":
        first = _CELLS[family.name, ()]
        buckets = np.cumsum(values[first : first + len(family.bounds) + 1])
        for bound, count in zip([*family.bounds, "+Inf"], buckets, strict=True):
            yield f'{family.name}_bucket{{le="{bound}"}} {_number(count)}'
        yield f"{family.name}_sum {_number(values[first + len(family.bounds) + 1])}"
        yield f"{family.name}_count {_number(buckets[-1])}"
        return
    for choice in product(*(choices for _, choices in family.labels)):
        value = values[_CELLS[family.name, tuple(choice)]]
        # Of the many pairs of route and status only those that occurred are worth a line.
        if value or len(family.labels) < 2:
            names = [name for name, _ in family.labels]
            labels = dict(zip(names, choice, strict=True))
            yield f"{family.name}{_braces(labels)} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _braces(labels: dict[str, str]) -> str:
    def quoted(value: str) -> str:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    inner = ",".join(f"{name}={quoted(value)}" for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
