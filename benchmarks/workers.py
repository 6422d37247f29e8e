"""What workers cost and move: training on Ray with 1, 2 and 3 of them, and PECOS with MPI.

    python benchmarks/workers.py [--documents 100000] [--labels 10000] [--workers 1,2,3]
    python benchmarks/workers.py --corpus tibkat --limit 10000 --workers 1,2 --pecos-python PYTHON

The first form trains on shards of a made-up shop. Every task notes its CPU seconds, its process,
and the bytes of what it is given and gives back. Wall time means little on a busy machine, so time
is counted in CPU seconds: those of the driver, plus, for each stage, those of the worker that had
most to do. The second form trains on tf-idf rows of a corpus, as one matrix, and lets PECOS do the
same, with as many processes (``mpiexec`` of Open MPI, beside the interpreter) as there are workers.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import default_data, read_part, report
from labelgrove import Corpus, LabelIndex, Linear, evaluate
from labelgrove.core.callbacks import Event
from labelgrove.engines.engine import Ref
from labelgrove.engines.ray import RayEngine

# PECOS 1.2.8 splits lists of arrays of different lengths, which NumPy refuses since 1.24.
PECOS = """
import resource, runpy, sys
import numpy as np
split = np.array_split
def split_lists(given, parts):
    if isinstance(given, list):
        items, given = given, np.empty(len(given), object)
        for number, item in enumerate(items):
            given[number] = item
    return split(given, parts)
np.array_split = split_lists
sys.argv = ["train", *sys.argv[1:]]
runpy.run_module("pecos.distributed.xmc.xlinear.train", run_name="__main__")
own = resource.getrusage(resource.RUSAGE_SELF)
print("CPU", own.ru_utime + own.ru_stime, own.ru_maxrss * 1024, flush=True)
"""
PECOS_PREDICT = """
import sys, numpy as np, scipy.sparse as smat
from pecos.xmc.xlinear.model import XLinearModel
model = XLinearModel.load(sys.argv[1])
found = model.predict(smat.load_npz(sys.argv[2]).astype(np.float32), only_topk=5, threads=1)
smat.save_npz(sys.argv[3], found.tocsr())
"""


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
    from labelgrove.data.formats.sharded import read_shards
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


def beside_pecos(
    name: str, data: Path, limit: int, counts: list[int], python: str | None, *, save: bool
) -> None:
    from scipy import sparse

    from labelgrove.text.tfidf import Tfidf

    parts = {part: read_part(data, name, part, limit) for part in ("train", "dev")}
    index = LabelIndex(sorted({label for row in parts["train"].labels for label in row}))
    tfidf = Tfidf().fit(parts["train"].texts)
    rows = {part: tfidf.transform(documents.texts) for part, documents in parts.items()}
    truth = {part: index.encode(documents.labels) for part, documents in parts.items()}
    about = {"corpus": name, "documents": len(parts["train"].texts), "labels": len(index)}

    def figures(found: Any) -> list[float]:
        matrix, unknown = truth["dev"]
        measured = evaluate(found, matrix, unknown=unknown, metrics=["P@1", "P@3", "P@5"])
        return [round(100 * value, 2) for value in measured.values.values()]

    for count in counts:
        corpus = Corpus(None, truth["train"][0], index, features=rows["train"])
        model, costs = trained(count, lambda _, corpus=corpus: corpus)
        found = figures(model.predict(rows["dev"], k=5))
        report("workers", about | {"program": "ours", "P": found, **costs}, save=save)
    if python is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = {part: f"{folder}/{part}.npz" for part in ("train", "dev", "labels", "found")}
        sparse.save_npz(paths["train"], sparse.csr_matrix(rows["train"]))
        sparse.save_npz(paths["dev"], sparse.csr_matrix(rows["dev"]))
        sparse.save_npz(paths["labels"], sparse.csr_matrix(truth["train"][0]))
        for count in counts:
            model = f"{folder}/model-{count}"
            mpi = [str(Path(python).parent / "mpiexec"), "--allow-run-as-root", "--oversubscribe"]
            flags = ["-x", paths["train"], "-y", paths["labels"], "-m", model, "--threads", "1"]
            wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(
                [*mpi, "-n", str(count), python, "-c", PECOS, *flags],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            wall = time.perf_counter() - wall
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            lines = [line.split() for line in done.stdout.splitlines() if line.startswith("CPU")]
            ranks = [[round(float(number), 2) for number in line[1:]] for line in lines]
            predict = ["-c", PECOS_PREDICT, model, paths["dev"], paths["found"]]
            subprocess.run([python, *predict], check=True)
            result = figures_of(sparse.load_npz(paths["found"]), index, figures)
            costs = {"workers": count, "cpu": round(cpu, 2), "wall": round(wall, 2)}
            costs |= {"path": max(rank[0] for rank in ranks), "ranks": ranks}
            report("workers", about | {"program": "PECOS", "P": result, **costs}, save=save)


def figures_of(found: Any, index: LabelIndex, figures: Callable[[Any], Any]) -> Any:
    from labelgrove.evaluation.predictions import Predictions

    return figures(Predictions.from_csr(found, k=5, index=index))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--workers", default="1,2,3")
    parser.add_argument("--corpus", help="a folder in --data, instead of a made-up shop")
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--limit", type=int, default=10_000)
    parser.add_argument("--pecos-python", help="an interpreter with libpecos, mpi4py and mpiexec")
    parser.add_argument("--no-save", action="store_true")
    given = parser.parse_args()
    counts, save = json.loads(f"[{given.workers}]"), not given.no_save
    if given.corpus is None:
        shop(given.documents, given.labels, counts, save=save)
    else:
        python = given.pecos_python
        beside_pecos(given.corpus, given.data, given.limit, counts, python, save=save)


if __name__ == "__main__":
    main()
