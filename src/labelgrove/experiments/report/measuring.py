"""The numbers of a report, for charts and page: metrics, each label, wrong documents, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import Bools, Float64, Int64, entry_rows
from labelgrove.core.jsonio import JsonObject
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
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
from labelgrove.experiments.report.runs import Run


@dataclass(frozen=True)
class ReportLabels:
    """Labels that are true or predicted in the evaluated documents, the most frequent first.

    ``columns`` are those in the index. ``partners`` are the rows of the labels that the subject
    confuses them with in the most documents (``confusions``), -1 for none.
    """

    columns: Int64
    scores: tuple[LabelScores, ...]
    partners: Int64
    confusions: Int64

    def __len__(self) -> int:
        return len(self.columns)


def label_table(judged: Sequence[Judged], *, k: int) -> ReportLabels:
    """The table over the k best labels of each run; the first run is the subject."""
    metric = Metric("P", k=k)
    scores = [by_label(one, metric) for one in judged]
    occurs = scores[0].true + sum(one.predicted for one in scores) > 0
    columns = np.flatnonzero(occurs)
    columns = columns[np.argsort(-scores[0].true[columns], kind="stable")]
    row_of = np.full(len(occurs), -1, np.int64)
    row_of[columns] = np.arange(len(columns))

    subject = judged[0]
    counted = subject.counted(metric)
    missed_in, missed = missed_labels(subject, k)
    wrong = counted & ~subject.hits
    wrong_in, wrongly = np.nonzero(wrong)[0], subject.predictions.columns[wrong]
    partners, confusions = _confused(
        (missed_in, row_of[missed]), (wrong_in, row_of[wrongly]), len(columns)
    )
    return ReportLabels(
        columns,
        tuple(LabelScores(s.true[columns], s.predicted[columns], s.hits[columns]) for s in scores),
        partners,
        confusions,
    )


def _confused(
    missed: tuple[Int64, Int64], wrong: tuple[Int64, Int64], labels: int
) -> tuple[Int64, Int64]:
    """For each label the one that it is confused with in the most documents, and in how many.

    Two labels are confused in a document if one is missed and the other wrongly predicted. Of
    equals, the label with fewer errors is the partner: it is the more telling one.
    """
    rows, true = missed
    wrong_rows, predicted = wrong  # both in the order of the documents
    # All pairs of a missed and a wrong label of the same document.
    first, last = (np.searchsorted(wrong_rows, rows, side=side) for side in ("left", "right"))
    counts = last - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    left, right = np.repeat(true, counts), predicted[np.repeat(first, counts) + offsets]
    keys = np.concatenate([left * labels + right, right * labels + left])
    pairs, counts = np.unique(keys, return_counts=True)
    one, other = np.divmod(pairs, max(labels, 1))
    errors = np.bincount(true, minlength=labels) + np.bincount(predicted, minlength=labels)
    order = np.lexsort((other, errors[other], -counts, one))
    one, other, counts = one[order], other[order], counts[order]
    begins = np.flatnonzero(np.diff(one, prepend=-1))
    partners, confusions = np.full(labels, -1, np.int64), np.zeros(labels, np.int64)
    partners[one[begins]] = other[begins]
    confusions[one[begins]] = counts[begins]
    return partners, confusions


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
    labels = max(len(judged.predictions.index), 1)
    truth = judged.truth
    rows = entry_rows(truth)
    hits = judged.hits & judged.counted(Metric("P", k=k))
    hit_keys = np.nonzero(hits)[0] * labels + judged.predictions.columns[hits]
    columns = truth.indices.astype(np.int64)
    missed = ~np.isin(rows * labels + columns, hit_keys)
    return rows[missed], columns[missed]


class WrongDocument(NamedTuple):
    """A document (its row) with errors among its k best labels; ``missed`` are columns."""

    row: int
    ndcg: float
    missed: tuple[int, ...]


def most_wrong(judged: Judged, *, k: int, most: int = 20) -> list[WrongDocument]:
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
