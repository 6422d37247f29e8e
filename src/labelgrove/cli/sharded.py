"""``labelgrove evaluate`` over shards: workers predict; the figures are those of one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelgrove.cli import common, options
from labelgrove.cli.measuring import Measures, check_labels
from labelgrove.core.arrays import CSR, as_csr
from labelgrove.core.late import sparse
from labelgrove.core.topk import TopK
from labelgrove.data.fingerprints import warning_of
from labelgrove.formats import ReadOptions, ReadReport
from labelgrove.formats.shards import shard_files
from labelgrove.loading import load
from labelgrove.metrics import Evaluation
from labelgrove.scores.predictions import Predictions


class ShardScores(NamedTuple):
    """The predictions and the true labels of one shard."""

    best: TopK
    score_kind: Any
    labels: CSR
    unknown: Any
    known: tuple[int, int]  # documents of the training data, see Fingerprints.known
    cpu: float
    report: ReadReport


@dataclass(frozen=True)
class Job:
    """What to predict with and how, in values that other processes can be given."""

    model: Path
    device: str
    how: ReadOptions
    k: int
    threads: int

    def worker(self) -> Callable[[str], ShardScores]:
        """What predicts a shard."""
        model = common.load_model(self.model, self.device)

        def predicted(shard: str) -> ShardScores:
            report = ReadReport()
            corpus = common.read_for(
                model, Path(shard), self.how, index=model.index_, report=report
            )
            start = time.process_time()
            predictions = model.predict(corpus, k=self.k, threads=self.threads)
            cpu = time.process_time() - start
            prints = model.facts_.fingerprints
            return ShardScores(
                TopK(predictions.columns, predictions.scores, predictions.counts),
                predictions.score_kind,
                corpus.labels,
                corpus.unknown,
                (0, 0) if prints is None else prints.known(corpus),
                cpu,
                report,
            )

        return predicted


def evaluate_shards(
    model: Path,
    shards: Path,
    how: ReadOptions,
    where: options.Where,
    machine: options.Machine,
    metrics: list[str] | None = None,
    **settings: Any,
) -> tuple[Evaluation, float, float]:
    """The metrics, and the wall and CPU seconds of prediction.

    Workers predict; the metrics are computed here, over all documents in the shards' order.
    """
    model = model.resolve()
    loaded = load(model)  # memory-mapped: only the index and the facts are read
    measures = Measures.of(metrics, loaded.calibration_)
    k = measures.labels_needed(filtered=settings.get("filter_pairs") is not None)
    job = Job(model, machine.device, how, k, where.threads(machine.threads))
    files = [str(shard.resolve()) for shard in shard_files(shards)]
    wall = time.perf_counter()
    with where.open() as engine:
        parts = list(engine.stream(job.worker, files))
    wall = time.perf_counter() - wall
    report = ReadReport()
    for part in parts:
        report.add(part.report)
    common.stderr_console().print(f"{shards}: {report}")
    predictions = Predictions.concat(
        [Predictions(*part.best, loaded.index_, part.score_kind) for part in parts]
    )
    labels = as_csr(sparse.vstack([part.labels for part in parts], format="csr"))
    unknown = np.concatenate([part.unknown for part in parts])
    check_labels(labels, unknown)
    facts = loaded.facts_
    settings |= {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    evaluation = measures.evaluate(predictions, labels, unknown=unknown, **settings)
    known, asked = (sum(counts) for counts in zip(*(part.known for part in parts), strict=True))
    if note := warning_of(known, asked):
        evaluation = replace(evaluation, notes=(note, *evaluation.notes))
    return evaluation, wall, sum(part.cpu for part in parts)
