"""``labelgrove evaluate`` over shards: workers predict and count, and the counts are put together.

The figures are those of one process, to the last bit, see ``metrics.tallies``.
"""

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
from labelgrove.core.late import sparse
from labelgrove.core.topk import TopK
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import warning_of
from labelgrove.data.formats import ReadOptions, ReadReport
from labelgrove.data.formats.shards import fetched, shards_of
from labelgrove.evaluation.measures import Measures, check_labels, evaluate_tallies, joined_tallies
from labelgrove.evaluation.metrics import Evaluation
from labelgrove.evaluation.metrics.tallies import Tally
from labelgrove.evaluation.predictions import Predictions, ScoreKind
from labelgrove.exchange.loading import load

JOINED_AT_ONCE = 16  # tallies of shards, which have counts for every label


class Whole(NamedTuple):
    """The predictions and the true labels of one shard, for pairs that count over all documents."""

    best: TopK
    score_kind: ScoreKind
    labels: CSR
    unknown: npt.NDArray[np.int64]


class ShardScores(NamedTuple):
    """What the command gets of a shard."""

    found: Whole | list[Tally] | None  # None: the shard has no documents
    documents: int
    labels: int  # of all documents together, known to the model
    unknown: int
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
    metrics: list[str] | None
    settings: dict[str, Any] | None  # of the metrics; None: all predictions are needed together

    def worker(self) -> Callable[[str], ShardScores]:
        """What predicts a shard."""
        model = common.load_model(self.model, self.device)
        measures = Measures.of(self.metrics, model.calibration_)

        def predicted(shard: str) -> ShardScores:
            report = ReadReport()
            with fetched(shard) as file:
                corpus = common.read_for(model, file, self.how, index=model.index_, report=report)
            start = time.process_time()
            predictions = model.predict(corpus, k=self.k, threads=self.threads)
            cpu = time.process_time() - start
            result: Whole | list[Tally] | None = None
            if self.settings is None:
                best = TopK(predictions.columns, predictions.scores, predictions.counts)
                result = Whole(best, predictions.score_kind, corpus.labels, corpus.unknown)
            elif len(corpus):
                result = measures.tally(
                    predictions, corpus.labels, unknown=corpus.unknown, **self.settings
                )
            prints = model.facts_.fingerprints
            known = (0, 0) if prints is None else prints.known(corpus)
            counts = len(corpus), corpus.labels.nnz, int(corpus.unknown.sum())
            return ShardScores(result, *counts, known, cpu, report)

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
    """The metrics, and the wall and CPU seconds of prediction.

    Workers predict and count. The predictions come here only with ``filter_pairs``, which name
    documents by their numbers in all shards; with ``intervals``, two numbers per document and
    metric do.
    """
    model = model.resolve()
    loaded = load(model)  # memory-mapped: only the index and the facts are read
    measures = Measures.of(metrics, loaded.calibration_)
    k = measures.labels_needed(filtered=filter_pairs is not None)
    facts = loaded.facts_
    settings |= {"train_frequencies": facts.frequencies, "n_train": facts.documents}
    given = None if filter_pairs is not None else settings | {"resampled": intervals is not None}
    threads = where.threads(machine.threads)
    job = ShardJob(model, machine.device, how, k, threads, metrics, given)
    files = shards_of(shards)
    parts: list[ShardScores] = []
    tallies: list[list[Tally]] = []
    gpu = common.asks_for_gpu(loaded, machine.device)
    wall = time.perf_counter()
    with where.open() as engine:
        for part in engine.stream(job.worker, files, gpu=gpu):
            if isinstance(part.found, list):
                tallies.append(part.found)
                part = part._replace(found=None)
                if len(tallies) > JOINED_AT_ONCE and intervals is None:
                    tallies = [joined_tallies(tallies)]
            parts.append(part)
    wall = time.perf_counter() - wall
    report = ReadReport()
    for part in parts:
        report.add(part.report)
    common.stderr_console().print(f"{shards}: {report}")
    documents, labels, unknown = (
        sum(getattr(part, name) for part in parts) for name in ("documents", "labels", "unknown")
    )
    if not labels:  # says why nothing can be measured
        check_labels(sparse.csr_array((documents, 1)), np.array([unknown]))
    if given is None:
        settings |= {"intervals": intervals, "filter_pairs": filter_pairs}
        evaluation = _of_whole(parts, measures, loaded.index_, settings)
    else:
        evaluation = evaluate_tallies(tallies, intervals)
    known, asked = (sum(counts) for counts in zip(*(part.known for part in parts), strict=True))
    if note := warning_of(known, asked):
        evaluation = replace(evaluation, notes=(note, *evaluation.notes))
    return evaluation, wall, sum(part.cpu for part in parts)


def _of_whole(
    parts: list[ShardScores], measures: Measures, index: LabelIndex, settings: dict[str, Any]
) -> Evaluation:
    """The metrics of predictions that are all here, in the shards' order."""
    results = [part.found for part in parts if isinstance(part.found, Whole)]
    predictions = Predictions.concat(
        [Predictions(*each.best, index, each.score_kind) for each in results]
    )
    labels = stacked_rows([each.labels for each in results])
    unknown = np.concatenate([each.unknown for each in results])
    return measures.evaluate(predictions, labels, unknown=unknown, **settings)
