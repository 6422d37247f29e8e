"""The numbers of a report, for charts and page: runs, metrics, each label, wrong documents.

Runs are models or ready predictions, made comparable over one set of label columns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from labelgrove.core.arrays import Bools, Float64, Int32, Int64, entry_keys, entry_rows
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import peak_rss
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.curves import Reliability, reliability
from labelgrove.evaluation.metrics import (
    BinScore,
    Comparison,
    Contest,
    Evaluation,
    LabelScores,
    by_label,
)
from labelgrove.evaluation.metrics.evaluation import json_number
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import Judged, by_frequency, ranking_measure
from labelgrove.evaluation.prediction_files import read_predictions
from labelgrove.evaluation.predictions import Predictions
from labelgrove.exchange.loading import load
from labelgrove.methods.base import Model


@dataclass(frozen=True)
class Run:
    """The predictions of one run; of a model, also the model and what predicting cost."""

    name: str
    predictions: Predictions
    model: Model | None = None
    folder: Path | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None


# What can be reported on: a fitted model, its folder, predictions, or a file of them.
Subject: TypeAlias = Model | Predictions | Run | str | Path
Subjects: TypeAlias = Mapping[str, Subject] | Sequence[Subject] | str | Path


def predicted(
    model: Subject, corpus: Corpus, *, k: int, name: str | None = None, threads: int | None = None
) -> Run:
    """A run from what can be reported on; a Run is returned as it is."""
    if isinstance(model, Run):
        return model
    folder = None
    if isinstance(model, (str, Path)):
        path = Path(model)
        name = name or path.name or str(path)
        if path.is_dir():
            model, folder = load(path), path
        else:
            model = read_predictions(path, corpus)
    if isinstance(model, Predictions):
        if len(model) != len(corpus):
            raise DataError(f"{len(model):,} predictions but {len(corpus):,} documents")
        return Run(name or "predictions", model.top(k))
    if not isinstance(model, Model):
        raise ConfigError(
            f"cannot report on {type(model).__name__}; give a fitted model, a model folder, "
            "Predictions or a file of them"
        )
    # The first call maps files and starts libraries; speeds are those of the calls after it.
    model.predict(corpus.take(range(min(1, len(corpus)))), k=k, threads=threads or 0)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = model.predict(corpus, k=k, threads=threads or 0)
    costs = time.perf_counter() - wall, time.process_time() - cpu, peak_rss()
    return Run(name or model.method, predictions, model, folder, *costs)


def named(against: Subjects) -> list[tuple[str | None, Subject]]:
    """The other runs with the names they were given, if any."""
    if isinstance(against, Mapping):
        return list(against.items())
    if isinstance(against, (str, Path)):
        return [(None, against)]
    return [(None, model) for model in against]


def with_unique_names(runs: Sequence[Run]) -> list[Run]:
    """The runs, with numbers after names that occur again."""
    seen: dict[str, int] = {}
    renamed = []
    for run in runs:
        number = seen[run.name] = seen.get(run.name, 0) + 1
        renamed.append(run if number == 1 else replace(run, name=f"{run.name} ({number})"))
    return renamed


def on_one_index(runs: Sequence[Run]) -> list[Run]:
    """The same predictions with columns of one index: the first run's labels, then those that only
    other runs know. Labels are matched by id, or by name where one side lacks the id."""
    first = runs[0].predictions.index
    if all(run.predictions.index is first or run.predictions.index == first for run in runs[1:]):
        return [_moved(run, run.predictions.columns, first) for run in runs]
    ids, names = list(first.ids), list(first.names)
    extra: dict[str, int] = {}
    moves = []
    for run in runs:
        index, taken = run.predictions.index, set()
        move = np.full(len(index) + 1, -1, np.int32)  # the last is that of padding
        for column, label in enumerate(index.ids):
            place = first.get(label)
            if place is None or place in taken:
                place = extra.setdefault(label, len(first) + len(extra))
                if place == len(ids):
                    ids.append(label)
                    names.append(index.names[column])
            taken.add(place)
            move[column] = place
        moves.append(move)
    both = LabelIndex(ids, names=names)
    return [
        _moved(run, move[run.predictions.columns], both)
        for run, move in zip(runs, moves, strict=True)
    ]


def _moved(run: Run, columns: Int32, index: LabelIndex) -> Run:
    return replace(run, predictions=replace(run.predictions, columns=columns, index=index))


@dataclass(frozen=True)
class ReportLabels:
    """Labels that are true or predicted in the evaluated documents, the most frequent first.

    ``columns`` are those in the index; ``scores`` are a run's.
    """

    columns: Int64
    scores: tuple[LabelScores, ...]

    def __len__(self) -> int:
        return len(self.columns)


def label_table(judged: Sequence[Judged], *, k: int) -> ReportLabels:
    """The table over the k best labels of each run; the first run is the subject."""
    metric = Metric("P", k=k)
    scores = [by_label(one, metric) for one in judged]
    occurs = scores[0].true + sum(one.predicted for one in scores) > 0
    columns = np.flatnonzero(occurs)
    columns = columns[np.argsort(-scores[0].true[columns], kind="stable")]
    chosen = [LabelScores(s.true[columns], s.predicted[columns], s.hits[columns]) for s in scores]
    return ReportLabels(columns, tuple(chosen))


def best_scores(judged: Judged, *, k: int) -> tuple[Float64, Bools] | None:
    """The k best labels' scores and which are right; None if they cannot be probabilities."""
    counted = judged.counted(Metric("P", k=k))
    scores = judged.predictions.scores[counted].astype(np.float64)
    if judged.predictions.score_kind == "margin" or not len(scores):
        return None
    if not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
        return None
    return np.minimum(scores, 1.0), judged.hits[counted]


def missed_labels(judged: Judged, k: int) -> tuple[Int64, Int64]:
    """(document, column) of the true labels that are not among the k best."""
    truth = judged.truth
    hits = judged.hits & judged.counted(Metric("P", k=k))
    hit_keys = np.nonzero(hits)[0] * truth.shape[1] + judged.predictions.columns[hits]
    missed = ~np.isin(entry_keys(truth), hit_keys)
    return entry_rows(truth)[missed], truth.indices[missed].astype(np.int64)


class WrongDocument(NamedTuple):
    """A document (its row) with errors among its k best labels; ``missed`` are columns."""

    row: int
    ndcg: float
    missed: tuple[int, ...]


def most_wrong(judged: Judged, *, k: int, most: int) -> list[WrongDocument]:
    """Documents with the lowest nDCG@k; among equals, those whose wrong labels scored highest.

    Documents without labels or without errors are left out.
    """
    ndcg = ranking_measure(judged, Metric("nDCG", k=k)).numerators
    wrong = judged.counted(Metric("P", k=k)) & ~judged.hits
    confidence = np.where(wrong, judged.predictions.scores, -np.inf).max(axis=1, initial=-np.inf)
    candidates = np.flatnonzero((judged.sizes > 0) & (ndcg < 1 - 1e-9))
    order = np.lexsort((candidates, -confidence[candidates], ndcg[candidates]))
    chosen = candidates[order[:most]]
    rows, missed = missed_labels(judged, k)
    return [
        WrongDocument(int(row), float(ndcg[row]), tuple(missed[rows == row].tolist()))
        for row in chosen
    ]


CUTOFFS = (1, 3, 5, 10)
FAMILIES = ("P", "nDCG", "PSP", "R")


@dataclass(frozen=True)
class Report:
    """The content of a report: the first run is its subject, the others are for comparison.

    ``evaluations`` hold, per run, metrics for k up to ``depth``. ``contest`` compares all pairs.
    """

    title: str
    data_name: str
    corpus: Corpus
    runs: tuple[Run, ...]
    judged: tuple[Judged, ...]
    evaluations: tuple[Evaluation, ...]
    training: TrainingFacts | None
    depth: int
    worst: int
    contest: Contest | None = None

    @property
    def subject(self) -> Run:
        """The run that the report is about."""
        return self.runs[0]

    @property
    def at(self) -> int:
        """The k of tables that have one k."""
        return min(5, self.depth)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The subject minus each other run."""
        if self.contest is None:
            return ()
        return tuple(self.contest.pairs[0, other] for other in range(1, len(self.runs)))

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of metrics that were measured."""
        return tuple(f for f in FAMILIES if f"{f}@1" in self.evaluations[0].values)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The values of k in tables."""
        return tuple(k for k in CUTOFFS if k <= self.depth)

    @cached_property
    def bins(self) -> tuple[list[BinScore], ...]:
        """Per run, results of head, torso, tail and unseen labels; empty without frequencies."""
        if self.training is None:
            return ()
        frequencies = self.training.frequencies
        return tuple(
            by_frequency(
                one.predictions,
                one.truth,
                unknown=one.unknown,
                train_frequencies=frequencies,
                k=self.at,
            )
            for one in self.judged
        )

    @cached_property
    def calibrations(self) -> tuple[Reliability | None, ...]:
        """Per run, how reliable its scores are as probabilities; None if they cannot be any."""
        pairs = [best_scores(judged, k=self.at) for judged in self.judged]
        return tuple(None if pair is None else reliability(*pair) for pair in pairs)

    @cached_property
    def wrong(self) -> list[WrongDocument]:
        """The subject's most wrong documents."""
        return most_wrong(self.judged[0], k=self.at, most=self.worst) if self.worst else []

    @cached_property
    def labels(self) -> ReportLabels:
        """How well each label is predicted."""
        return label_table(self.judged, k=self.at)

    def to_dict(self) -> JsonObject:
        """The main numbers per run, for JSON; without texts of documents."""
        runs = []
        for number, run in enumerate(self.runs):
            scores = self.calibrations[number]
            entry: JsonObject = {"name": run.name, **self.evaluations[number].to_dict()}
            entry["expected_calibration_error"] = None if scores is None else scores.ece
            if run.seconds is not None:
                entry["seconds"], entry["cpu_seconds"] = run.seconds, run.cpu_seconds
            if number:
                compared = self.comparisons[number - 1]
                entry["subject_minus_this"] = {
                    name: [json_number(v) for v in (value, *compared.intervals.get(name, ()))]
                    for name, value in compared.differences.items()
                }
            runs.append(entry)
        about = {"title": self.title, "data": self.data_name, "at": self.at}
        return about | {"runs": runs}
