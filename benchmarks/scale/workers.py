"""What workers cost and move: training on Ray with 1, 2 and 3 of them.

    python -m benchmarks.scale.workers [--documents 100000] [--labels 10000] [--workers 1,2,3]

It trains on shards of a made-up shop. Every task notes its CPU seconds, its process,
and the bytes of what it is given and gives back. Wall time means little on a busy machine, so time
is counted in CPU seconds: those of the driver, plus, for each stage, those of the worker that had
most to do.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import report
from labelgrove import Linear
from labelgrove.core.callbacks import Event
from labelgrove.engines.engine import Ref
from labelgrove.engines.ray import RayEngine


class Noting(RayEngine):
    """An engine that notes what every task costs; ``stage`` is the one that calls belong to."""

    stage = "read"

    def __init__(self, workers: int) -> None:
        super().__init__(workers=workers)
        self.notes: list[tuple[str, Ref]] = []

    def call(self, function: Callable[..., Any], *arguments: Any, gpu: bool = False) -> Ref:
        (value,) = self._noted(function, arguments, 0)
        return value

    def split(self, function: Callable[..., Any], *arguments: Any, parts: int) -> list[Ref]:
        return self._noted(function, arguments, parts)

    def _noted(self, function: Callable[..., Any], arguments: Any, parts: int) -> list[Ref]:
        *values, note = super().split(noted, function, parts, *arguments, parts=max(1, parts) + 1)
        self.notes.append((self.stage, note))
        return values

    def listen(self, event: Event) -> None:
        if event.kind == "stage_start":
            self.stage = event.stage

    def stages(self) -> dict[str, dict[str, float]]:
        """What the tasks of each stage cost together."""
        by_stage = defaultdict(list)
        for stage, ref in self.notes:
            by_stage[stage].append(self.get(ref))
        found = {}
        for stage, notes in by_stage.items():
            worked: dict[int, float] = defaultdict(float)
            for note in notes:
                worked[note["process"]] += note["cpu"]
            found[stage] = {
                "tasks": len(notes),
                "cpu": round(sum(note["cpu"] for note in notes), 3),
                "longest": round(max(note["cpu"] for note in notes), 3),
                "busiest": round(max(worked.values()), 3),
                "given_mb": round(sum(note["given"] for note in notes) / 1e6, 2),
                "made_mb": round(sum(note["made"] for note in notes) / 1e6, 2),
                "most_given_mb": round(max(note["given"] for note in notes) / 1e6, 2),
            }
        return found


def noted(function: Callable[..., Any], parts: int, *arguments: Any) -> tuple[Any, ...]:
    """The values of a call, and what it cost."""
    start = time.process_time()
    value = function(*arguments)
    cpu = time.process_time() - start
    sizes = {"given": size_of(arguments), "made": size_of(value)}
    note = {"cpu": cpu, "process": os.getpid(), **sizes}
    return (*value, note) if parts else (value, note)


def size_of(value: Any) -> int:
    """Bytes of a value as it travels, without a copy of its arrays."""
    buffers: list[int] = []
    plain = pickle.dumps(
        value, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw().nbytes)
    )
    return len(plain) + sum(buffers)


def trained(workers: int, make: Callable[[Noting], Any]) -> tuple[Linear, dict[str, Any]]:
    """A model that so many workers train, and its costs."""
    with Noting(workers) as engine:
        wall, cpu = time.perf_counter(), time.process_time()
        corpus = make(engine)
        model = Linear().fit(corpus, engine=engine, callbacks=[engine.listen])
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        stages = engine.stages()
    busiest = sum(stage["busiest"] for stage in stages.values())
    total = cpu + sum(stage["cpu"] for stage in stages.values())
    costs = {"workers": workers, "driver": cpu, "path": cpu + busiest, "cpu": total, "wall": wall}
    return model, {name: round(cost, 3) for name, cost in costs.items()} | {"stages": stages}


def shop(documents: int, labels: int, counts: list[int], *, save: bool) -> None:
    from labelgrove.data.formats.jsonl import dump_document
    from labelgrove.data.formats.shards import read_shards
    from labelgrove.data.shop import shop_documents

    with tempfile.TemporaryDirectory() as folder:
        shards = 12
        files = [(Path(folder) / f"{number:02}.jsonl").open("wb") for number in range(shards)]
        for number, document in enumerate(shop_documents(documents, labels=labels)):
            files[number * shards // documents].write(dump_document(document))
        for file in files:
            file.close()
        for count in counts:
            model, costs = trained(count, lambda engine: read_shards(engine, folder))
            terms = model.rankers_[0].features
            about = {"corpus": "shop", "documents": documents, "labels": len(model.index_)}
            report("workers", about | {"terms": terms, **costs}, save=save)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--workers", default="1,2,3")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    counts, save = json.loads(f"[{given.workers}]"), not given.no_save
    shop(given.documents, given.labels, counts, save=save)


if __name__ == "__main__":
    main()
