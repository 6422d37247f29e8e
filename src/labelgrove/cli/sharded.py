"""``labelgrove evaluate`` over shards: workers predict, and all predictions are measured here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.cli import common, options
from labelgrove.core.arrays import CSR, stacked_rows
from labelgrove.core.topk import TopK
from labelgrove.data.facts import warning_of
from labelgrove.data.formats import ReadOptions, ReadReport
from labelgrove.data.formats.shards import shards_of
from labelgrove.evaluation.measures import Measures, check_labels
from labelgrove.evaluation.metrics import Evaluation
from labelgrove.evaluation.predictions import Predictions, ScoreKind
from labelgrove.exchange.loading import load


class ShardScores(NamedTuple):
    """What the command gets of a shard: the predictions and the true labels of its documents."""

    best: TopK
    score_kind: ScoreKind
    labels: CSR
    unknown: npt.NDArray[np.int64]
    known: tuple[int, int]  # documents of the training data, see Fingerprints.known
    cpu: float
    report: ReadReport


@dataclass(frozen=True)
class ShardJob:
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
            file = Path(shard)
            corpus = common.read_for(model, file, self.how, index=model.index_, report=report)
            start = time.process_time()
            predictions = model.predict(corpus, k=self.k, threads=self.threads)
            cpu = time.process_time() - start
            best = TopK(predictions.columns, predictions.scores, predictions.counts)
            prints = model.facts_.fingerprints
            known = (0, 0) if prints is None else prints.known(corpus)
            truth = corpus.labels, corpus.unknown
            return ShardScores(best, predictions.score_kind, *truth, known, cpu, report)

        return predicted


def evaluate_shards(
    model: Path,
    shards: Path,
    how: ReadOptions,
    where: options.Where,
    machine: options.Machine,
    metrics: list[str] | None = None,
    intervals: int | None = None,
    filter_pairs: Any = None,
    **settings: Any,
) -> tuple[Evaluation, float, float]:
    """The metrics, and the wall and CPU seconds of prediction."""
    model = model.resolve()
    loaded = load(model)  # memory-mapped: only the index and the facts are read
    measures = Measures.of(metrics, loaded.calibration_)
    k = measures.labels_needed(filtered=filter_pairs is not None)
    facts = loaded.facts_
    settings |= {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    settings |= {"intervals": intervals, "filter_pairs": filter_pairs}
    job = ShardJob(model, machine.device, how, k, where.threads(machine.threads))
    files = shards_of(shards)
    gpu = common.asks_for_gpu(loaded, machine.device)
    wall = time.perf_counter()
    with where.open() as engine:
        parts = [*engine.stream(job.worker, files, gpu=gpu)]
    wall = time.perf_counter() - wall
    report = ReadReport()
    for part in parts:
        report.add(part.report)
    common.stderr_console().print(f"{shards}: {report}")
    labels = stacked_rows([part.labels for part in parts])
    unknown = np.concatenate([part.unknown for part in parts])
    check_labels(labels, unknown)
    predictions = Predictions.concat(
        [Predictions(*part.best, loaded.index_, part.score_kind) for part in parts]
    )
    evaluation = measures.evaluate(predictions, labels, unknown=unknown, **settings)
    known, asked = (sum(counts) for counts in zip(*(part.known for part in parts), strict=True))
    if note := warning_of(known, asked):
        evaluation = replace(evaluation, notes=(note, *evaluation.notes))
    return evaluation, wall, sum(part.cpu for part in parts)
