"""What prediction costs, as papers report it: one document at a time and in batches, GPU and CPU.

A number is the median over calls of ``model.predict``, from texts to sorted labels. Calls start
and end with an idle GPU, and come after a warm-up.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from labelgrove.core.memory import format_size
from labelgrove.data.corpus import Corpus
from labelgrove.data.inputs import documents_of
from labelgrove.experiments.bench.table import Record, markdown
from labelgrove.methods.base import Model

BATCHES = (1, 128)
LATENCY_WARM_UP = 5  # calls
WARM_UP, FEWEST, MOST = 3, 3, 200  # calls; large batches on a CPU take seconds each


@dataclass(frozen=True)
class Costs:
    """How to measure prediction: where, with how many threads, and how long each number takes."""

    device: str = "auto"  # a GPU, if there is one, and the CPU
    threads: int | None = None  # of the CPU; None = all cores
    seconds: float = 2.0

    def devices(self, model: Model) -> list[str]:
        """The devices to measure; a model without an encoder runs on the CPU alone."""
        if not model.encoders():
            return ["cpu"]
        if self.device != "auto":
            return [self.device]
        import torch

        return ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]

    def record(self, model: Model, corpus: Corpus) -> Record:
        """The costs of prediction, the speed of the training of networks, and the machine."""
        prediction = self.of(model, corpus)
        return {"story": training_speed(model), "prediction": prediction, "machine": machine()}

    def of(self, model: Model, corpus: Corpus) -> Record:
        """Per device and size of a batch: milliseconds per document, documents per second."""
        result: Record = {}
        for device in self.devices(model):
            model.use_device(device)
            with _cpu_threads(self.threads):
                result[device] = {
                    str(size): self._timed(model, corpus, size, warm=4 if device == "cpu" else size)
                    for size in BATCHES
                }
        return result

    def _timed(self, model: Model, corpus: Corpus, size: int, *, warm: int) -> dict[str, float]:
        """Calls with ``size`` documents. A GPU warms up with as many; on a CPU that takes long."""
        calls: list[float] = []
        begin = time.perf_counter()
        for number in range(-WARM_UP, MOST):
            if number >= FEWEST and time.perf_counter() - begin > self.seconds:
                break
            if number == 0:
                calls, begin = [], time.perf_counter()
            rows = [row % len(corpus) for row in range(number * size, (number + 1) * size)]
            documents = corpus.take(rows if number >= 0 else rows[:warm])
            calls.append(_seconds(model, documents, self.threads or 0))
        seconds = median(calls)
        return {
            "ms_per_document": round(1000 * seconds / size, 4),
            "documents_per_second": round(size / max(seconds, 1e-9), 2),
            "calls": len(calls),
        }


def latency(model: Model, corpus: Corpus, documents: int) -> dict[str, float]:
    """Milliseconds per document with one thread: median and 99th percentile."""
    milliseconds = []
    for number in range(min(documents, len(corpus)) + LATENCY_WARM_UP):
        document = documents_of(corpus.take([number % len(corpus)])).plain
        milliseconds.append(1000 * _seconds(model, document, 1))
    p50, p99 = np.percentile(milliseconds[LATENCY_WARM_UP:], [50, 99])
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4)}


def _seconds(model: Model, documents: Any, threads: int) -> float:
    """The time of one call, from an idle GPU to an idle GPU, if one is in use."""
    torch = sys.modules.get("torch")
    wait = torch.cuda.synchronize if torch and torch.cuda.is_initialized() else lambda: None
    wait()
    start = time.perf_counter()
    model.predict(documents, k=5, threads=threads)
    wait()
    return time.perf_counter() - start


def machine() -> Record:
    """The cores, and the GPU if torch was imported to use it."""
    torch = sys.modules.get("torch")
    gpu = torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    return {"cores": os.cpu_count(), "gpu": gpu}


def training_speed(model: Model) -> Record:
    """Updates and speed of a network's training; of all networks of an ensemble together."""
    histories = [part.history_ for part in model.submodels() or [model] if part.history_]
    if not histories:
        return {}
    seconds = sum(history["seconds"] for history in histories)
    tokens = sum(history["seconds"] * history["tokens_per_second"] for history in histories)
    return {
        "updates": sum(history["steps"] for history in histories),
        "network_seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / max(seconds, 1e-9)),
    }


def costs_table(records: Sequence[Record]) -> str:
    """The costs of each row as one Markdown table."""
    measured = [record for record in records if "prediction" in record]
    devices = [d for d in ("cuda", "cpu") if any(d in r["prediction"] for r in measured)]
    devices += sorted({d for r in measured for d in r["prediction"]} - set(devices))
    heads = ["", "corpus", "labels", "training s", "updates", "network s", "model"]
    for device in devices:
        heads += [f"{device} ms, batch 1", f"{device} docs/s, batch 128"]
    lines = []
    for record in measured:
        speed = record.get("story", {})
        line = [record["row"], record["corpus"], f"{record['labels']:,}"]
        line.append(f"{record['train_seconds']:.1f}")
        line += [f"{speed['updates']:,}", f"{speed['network_seconds']:.1f}"] if speed else ["", ""]
        line.append(format_size(record["model_bytes"]))
        for device in devices:
            if sizes := record["prediction"].get(device):
                line.append(f"{sizes['1']['ms_per_document']:.2f}")
                line.append(f"{sizes['128']['documents_per_second']:,.0f}")
            else:
                line += ["", ""]
        lines.append(line)
    return markdown([heads, *lines])


@contextmanager
def _cpu_threads(count: int | None) -> Iterator[None]:
    """Torch on so many threads; all cores for None."""
    torch = sys.modules.get("torch")
    if torch is None or not count:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
