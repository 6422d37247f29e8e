"""Precision, recall, R-precision, nDCG and F1 of ranked labels, from one table of hits.

Also split by how often a label occurs in training, from head to tail.
A document without labels has a score of zero in every mean. Labels that are not in the training
data (``unknown``) count among the true labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Bools, Float64, Int64, MatrixLike, as_csr, entry_rows
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.frames import label_column
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics.measures import LabelScores, PerLabel, Ratio, mean
from labelgrove.evaluation.metrics.names import BIN_NAMES, Metric
from labelgrove.evaluation.predictions import Predictions

# A matrix has a row per document and a column per label; label lists may be a column or a frame.
Truth: TypeAlias = Corpus | Sequence[Sequence[str]] | MatrixLike
Counts: TypeAlias = npt.ArrayLike | None


@dataclass(frozen=True)
class Judged:
    """Predictions and truth; ``hits[i, j]`` says whether document i's label at rank j is true."""

    predictions: Predictions
    truth: CSR
    unknown: Int64
    hits: Bools

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def sizes(self) -> Int64:
        """The number of true labels of each document, known or not."""
        known: Int64 = np.diff(self.truth.indptr).astype(np.int64)
        return known + self.unknown

    def counted(self, metric: Metric) -> Bools:
        """Which ranks count for a metric: the k best, or those that reach the threshold."""
        used = self.predictions.used
        if metric.k is not None:
            return used & (np.arange(self.predictions.k) < metric.k)
        assert metric.threshold is not None
        # In the precision of the scores, so that a score of 0.3 reaches a threshold of 0.3.
        return used & (self.predictions.scores >= np.float32(metric.threshold))

    def hits_within(self, metric: Metric) -> Float64:
        """The number of hits per document among the ranks that count for the metric."""
        hits: Float64 = (self.hits & self.counted(metric)).sum(axis=1, dtype=np.float64)
        return hits


def notes_on(judged: Judged, frequencies: Float64 | None, k: int) -> list[str]:
    """Sentences on what may be counted in an unexpected way; ``k`` is the last rank that counts."""
    unseen = int(judged.unknown.sum())
    if frequencies is not None:
        unseen += int((frequencies[judged.truth.indices] == 0).sum())
    empty, predicted = int((judged.sizes == 0).sum()), int(judged.predictions.counts.max())
    notes = []
    if unseen:
        what = f"{unseen:,} true label occurrences are of labels that were unseen in training"
        notes.append(f"{what}; they count as misses unless predicted")
    if empty:
        notes.append(f"{empty:,} documents without labels count as zero")
    if predicted < k:
        notes.append(f"at most {predicted} labels were predicted; ranks up to {k} count as misses")
    return notes


def judge(predictions: Predictions, truth: Truth, *, unknown: Counts = None) -> Judged:
    """Compares predictions with the truth, in which stored values above zero are labels."""
    truth, unknown = _as_matrix(truth, predictions.index, unknown)
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
        raise DataError(f"unknown must be {n} counts, one per document, none negative")
    _refuse_repeats(predictions)
    # Both sides as sorted numbers, document * labels + column, and a last one that is no key.
    true_keys = np.append(entry_rows(truth) * labels + truth.indices, -1)
    keys = np.arange(n, dtype=np.int64)[:, None] * labels + predictions.columns
    hits = predictions.used & (true_keys[np.searchsorted(true_keys[:-1], keys)] == keys)
    return Judged(predictions, truth, unseen, hits)


def _as_matrix(truth: Truth, index: LabelIndex, unknown: Counts) -> tuple[MatrixLike, Counts]:
    """The truth as a matrix, and counts of unknown labels, which only a matrix needs."""
    if isinstance(truth, Corpus):
        moved = truth.reindex(index)
        return moved.labels, moved.unknown
    if (column := label_column(truth)) is not None:
        return index.encode(column)
    if isinstance(truth, (list, tuple)) and _holds_labels(truth):
        return index.encode(truth)
    return truth, unknown


def _holds_labels(truth: Sequence[object]) -> bool:
    numbers = (isinstance(row, np.ndarray) and row.dtype.kind not in "OU" for row in truth)
    rows = (row for row, known in zip(truth, numbers, strict=True) if not known)
    return any(isinstance(label, str) for row in rows if isinstance(row, Iterable) for label in row)


def _binary(truth: MatrixLike) -> CSR:
    truth = as_csr(truth, name="truth")
    if len(truth.data) and not truth.data.min() > 0:
        truth = truth.copy()
        truth.data = (truth.data > 0).astype(np.float32)
        truth.eliminate_zeros()
    return truth


def _refuse_repeats(predictions: Predictions) -> None:
    """A label that is predicted twice for a document would count as two hits."""
    rows = np.sort(predictions.columns, axis=1)
    twice = (rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] >= 0)
    if twice.any():
        row, rank = (int(i) for i in np.argwhere(twice)[0])
        label = predictions.index.ids[rows[row, rank]]
        raise DataError(f"the predictions of document {row} have label {label!r} twice")


def discounts(k: int) -> Float64:
    """1 / log2(rank + 1) for ranks 1 to k."""
    return 1.0 / np.log2(np.arange(2, k + 2, dtype=np.float64))


def ranking_measure(judged: Judged, metric: Metric) -> Ratio:
    """P, R, RP, nDCG and F1, as means over documents.

    P@k divides by k even if fewer labels were predicted or are true, and F1@k is computed from this
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
    """Precision, recall or F1 over all pairs of a document and a label that counts."""
    hits = judged.hits_within(metric)
    predicted = judged.counted(metric).sum(axis=1, dtype=np.float64)
    sizes = judged.sizes.astype(np.float64)
    if metric.family == "micro-P":
        return Ratio(hits, predicted)
    if metric.family == "micro-R":
        return Ratio(hits, sizes)
    return Ratio(2 * hits, predicted + sizes)


def per_label_measure(judged: Judged, metric: Metric) -> PerLabel:
    """Macro averages, and coverage (the share of distinct true labels predicted at least once).

    Both use the labels that occur in the truth and have a column, because only the number per
    document of other labels is known.
    """
    return PerLabel(metric.family.removeprefix("macro-"), by_label(judged, metric))


def by_label(judged: Judged, metric: Metric) -> LabelScores:
    """Precision, recall and F1 of each label over the ranks that count for a metric."""
    labels, columns = len(judged.predictions.index), judged.predictions.columns
    counted = judged.counted(metric)
    true, predicted, hits = (
        np.bincount(each, minlength=labels).astype(np.int64)
        for each in (judged.truth.indices, columns[counted], columns[counted & judged.hits])
    )
    return LabelScores(true, predicted, hits)


HEAD_ABOVE = 100
TAIL_UP_TO = 10


def frequency_bin(frequencies: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Positions in ``BIN_NAMES``: head above 100, torso 11 to 100, tail 1 to 10, unseen 0."""
    counts = np.asarray(frequencies)
    return np.select(
        [counts > HEAD_ABOVE, counts > TAIL_UP_TO, counts > 0], [0, 1, 2], default=3
    ).astype(np.int8)


def check_frequencies(frequencies: npt.ArrayLike, labels: int) -> Float64:
    """Training frequencies as numbers, one per label."""
    counts = np.asarray(frequencies, dtype=np.float64)
    if counts.shape != (labels,):
        raise DataError(f"train_frequencies has shape {counts.shape}, expected ({labels},)")
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise DataError("train_frequencies must be finite and not negative")
    return counts


def bin_measure(judged: Judged, metric: Metric, bin_of: npt.NDArray[np.int8]) -> Ratio:
    """A bin's share of P@k (the shares of all bins add up to it), or the recall of its labels."""
    name, _, family = metric.family.partition("-")
    position = BIN_NAMES.index(name)
    counted = judged.hits & judged.counted(metric)
    hits = (counted & (bin_of[judged.predictions.columns] == position)).sum(1, dtype=np.float64)
    if family == "P":
        assert metric.k is not None
        return Ratio(hits, np.full(len(hits), float(metric.k)))
    rows = entry_rows(judged.truth)[bin_of[judged.truth.indices] == position]
    true = np.bincount(rows, minlength=len(judged)).astype(np.float64)
    return Ratio(hits, true + judged.unknown if name == "unseen" else true)


class BinScore(NamedTuple):
    """A frequency bin: its labels, their true occurrences, and how many were predicted (hits).

    ``precision_share`` is the bin's share of P@k; ``recall`` is NaN without occurrences.
    """

    name: str
    labels: int
    occurrences: int
    hits: int
    recall: float
    precision_share: float


def by_frequency(
    predictions: Predictions,
    truth: Truth,
    *,
    train_frequencies: npt.ArrayLike,
    k: int = 5,
    unknown: Counts = None,
) -> list[BinScore]:
    """The hits of the k best labels in each frequency bin, from head to unseen.

    ``labels`` counts columns; how many distinct labels ``unknown`` stands for is not known.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> p = Predictions.from_scores([[0.9, 0.5]], k=1, index=LabelIndex("ab"))
    >>> for row in by_frequency(p, [[1, 1]], train_frequencies=[200, 3], k=1):
    ...     print(row.name, row.hits, "of", row.occurrences)
    head 1 of 1
    torso 0 of 0
    tail 0 of 1
    unseen 0 of 0
    """
    judged = judge(predictions.top(k), truth, unknown=unknown)
    bin_of = frequency_bin(check_frequencies(train_frequencies, len(predictions.index)))
    hit = judged.predictions.columns[judged.hits]
    labels, true, hits = (
        np.bincount(bin_of[columns], minlength=len(BIN_NAMES))
        for columns in (np.arange(len(bin_of)), judged.truth.indices, hit)
    )
    true[BIN_NAMES.index("unseen")] += judged.unknown.sum()
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        columns = labels, true, hits, hits / true, hits / (k * len(judged))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [BinScore(name, *row) for name, row in zip(BIN_NAMES, rows, strict=True)]
