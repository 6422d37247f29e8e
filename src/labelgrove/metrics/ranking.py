"""Precision, recall, R-precision, nDCG and F1 of ranked labels, from one table of hits.

A document without any label scores zero everywhere and stays in the mean. Labels that training
never saw (``unknown``) stay in the number of labels there were to find.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, as_csr
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.errors import DataError
from labelgrove.metrics.measures import Entries, Float64, Int64, PerLabel, Ratio, mean
from labelgrove.metrics.names import Metric
from labelgrove.scores.predictions import Predictions

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """Predictions beside the truth: ``hits[i, j]`` says whether document i's place j is right."""

    predictions: Predictions
    truth: CSR
    unknown: Int64
    hits: Bools

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def sizes(self) -> Int64:
        """How many labels each document has, known or not."""
        known: Int64 = np.diff(self.truth.indptr).astype(np.int64)
        return known + self.unknown

    def counted(self, metric: Metric) -> Bools:
        """Which places a metric looks at: the k best, or those that reach the threshold."""
        places = np.arange(self.predictions.k)
        used: Bools = places < self.predictions.counts[:, None]
        if metric.k is not None:
            return used & (places < metric.k)
        assert metric.threshold is not None
        # In the scores' own precision, so that a threshold of 0.3 keeps a score of 0.3.
        return used & (self.predictions.scores >= np.float32(metric.threshold))

    def hits_within(self, metric: Metric) -> Float64:
        """Right places per document among those that the metric looks at."""
        hits: Float64 = (self.hits & self.counted(metric)).sum(axis=1, dtype=np.float64)
        return hits


def judge(predictions: Predictions, truth: Any, *, unknown: Any = None) -> Judged:
    """Looks every predicted label up in the truth; stored values above zero are labels.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> p = Predictions.from_scores([[0.1, 0.9]], k=2, index=LabelIndex("ab"))
    >>> judge(p, [[1, 0]]).hits.tolist()
    [[False, True]]
    """
    truth, unknown = as_truth(truth, predictions.index, unknown)
    truth = _binary(truth)
    n, labels = len(predictions), len(predictions.index)
    if n == 0:
        raise DataError("there are no documents to evaluate")
    if truth.shape != (n, labels):
        raise DataError(
            f"the truth is {truth.shape[0]} documents x {truth.shape[1]} labels, "
            f"the predictions are {n} x {labels}"
        )
    unseen = np.zeros(n, np.int64) if unknown is None else np.asarray(unknown, np.int64)
    if unseen.shape != (n,) or (unseen < 0).any():
        raise DataError(f"unknown must hold {n} counts, one per document, none negative")
    _refuse_repeats(predictions)
    documents = np.arange(n, dtype=np.int64)
    # Both sides as one sorted list of numbers: document * labels + column.
    true_keys = np.repeat(documents, np.diff(truth.indptr)) * labels + truth.indices
    used = np.arange(predictions.k) < predictions.counts[:, None]
    keys = documents[:, None] * labels + predictions.columns
    if len(true_keys):
        at = np.minimum(np.searchsorted(true_keys, keys), len(true_keys) - 1)
        hits = used & (true_keys[at] == keys)
    else:
        hits = np.zeros_like(used)
    return Judged(predictions, truth, unseen, hits)


def as_truth(truth: Any, index: LabelIndex, unknown: Any) -> tuple[Any, Any]:
    """Truth in whatever form callers have it, as a matrix, and counts of unknown labels.

    A Corpus or label lists know themselves which labels the index lacks; a matrix does not.

    >>> as_truth([["a", "z"]], LabelIndex("ab"), None)[1].tolist()
    [1]
    """
    if isinstance(truth, Corpus):
        moved = truth.reindex(index)
        return moved.labels, moved.unknown
    if isinstance(truth, (list, tuple)) and _holds_labels(truth):
        return index.encode(truth)
    return truth, unknown


def _holds_labels(truth: Sequence[Any]) -> bool:
    rows = (row for row in truth if isinstance(row, Iterable) and not isinstance(row, np.ndarray))
    return any(isinstance(label, str) for row in rows for label in row)


def _binary(truth: Any) -> CSR:
    truth = as_csr(truth, name="truth")
    if len(truth.data) and not truth.data.min() > 0:
        truth = truth.copy()
        truth.data = (truth.data > 0).astype(np.float32)
        truth.eliminate_zeros()
    return truth


def _refuse_repeats(predictions: Predictions) -> None:
    """A label that stands twice in a row would be counted as two hits."""
    rows = np.sort(predictions.columns, axis=1)
    twice = (rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)
    if twice.any():
        row, place = (int(i) for i in np.argwhere(twice)[0])
        label = predictions.index.ids[rows[row, place]]
        raise DataError(f"document {row} has label {label!r} twice among its predictions")


def discounts(k: int) -> Float64:
    """1 / log2(place + 1) for places 1 to k.

    >>> discounts(3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    return 1.0 / np.log2(np.arange(2, k + 2, dtype=np.float64))


def ranking_measure(judged: Judged, metric: Metric) -> Ratio:
    """P, R, RP, nDCG and F1, the means over documents.

    P@k divides by k even when fewer labels were predicted or exist, and F1@k is built from that
    P@k. F1 at a threshold divides by the number of labels that reach it.
    """
    hits = judged.hits_within(metric)
    sizes = judged.sizes
    if metric.family == "P":
        assert metric.k is not None
        return Ratio(hits, np.full(len(hits), float(metric.k)))
    if metric.family == "R":
        return mean(hits / np.maximum(sizes, 1))
    if metric.family == "F1":
        predicted = judged.counted(metric).sum(axis=1) if metric.k is None else metric.k
        return mean(2 * hits / np.maximum(predicted + sizes, 1))
    assert metric.k is not None
    reachable = np.minimum(metric.k, sizes)
    if metric.family == "RP":
        return mean(hits / np.maximum(reachable, 1))
    gains = np.where(judged.hits[:, : metric.k], discounts(metric.k)[: judged.predictions.k], 0.0)
    best = np.cumsum(discounts(metric.k))[np.maximum(reachable, 1) - 1]
    return mean(gains.sum(axis=1) / best)


def micro_measure(judged: Judged, metric: Metric) -> Ratio:
    """Precision, recall or F1 over all (document, label) pairs that the cutoff lets through."""
    hits = judged.hits_within(metric)
    predicted = judged.counted(metric).sum(axis=1, dtype=np.float64)
    sizes = judged.sizes.astype(np.float64)
    if metric.family == "micro-P":
        return Ratio(hits, predicted)
    if metric.family == "micro-R":
        return Ratio(hits, sizes)
    return Ratio(2 * hits, predicted + sizes)


def per_label_measure(judged: Judged, metric: Metric) -> PerLabel:
    """Macro averages, and coverage (the share of distinct true labels found at least once).

    Both run over the labels that occur in the truth and have a column; of labels unseen in
    training only their number per document is known, not which they are.
    """
    columns = np.unique(judged.truth.indices).astype(np.int64)
    position = np.full(len(judged.predictions.index), -1, np.int64)
    position[columns] = np.arange(len(columns))
    counted = judged.counted(metric)

    def entries(places: Bools) -> Entries:
        rows = np.nonzero(places)[0]
        labels = position[judged.predictions.columns[places]]
        return Entries(rows[labels >= 0], labels[labels >= 0])

    true_rows = np.repeat(np.arange(len(judged)), np.diff(judged.truth.indptr))
    kind: Literal["P", "R", "F1", "coverage"]
    match metric.family:
        case "macro-P":
            kind = "P"
        case "macro-R":
            kind = "R"
        case "macro-F1":
            kind = "F1"
        case _:
            kind = "coverage"
    return PerLabel(
        kind,
        len(columns),
        Entries(true_rows, position[judged.truth.indices]),
        entries(counted),
        entries(counted & judged.hits),
    )
