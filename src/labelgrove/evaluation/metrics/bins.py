"""Metrics split by how often a label occurs in training, from head to tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array, Float64, entry_rows
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics.measures import Ratio
from labelgrove.evaluation.metrics.names import BIN_NAMES, Metric
from labelgrove.evaluation.metrics.ranking import Counts, Judged, Truth, judge
from labelgrove.evaluation.predictions import Predictions

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


def bin_scores(
    judged: Judged, bin_of: Array, names: Sequence[str], *, k: int, unseen: int
) -> list[BinScore]:
    """The hits of the k best labels in each bin; ``unseen`` has the labels without a column."""
    counted = judged.hits & judged.counted(Metric("P", k=k))
    columns = np.arange(len(bin_of)), judged.truth.indices, judged.predictions.columns[counted]
    labels, true, hits = (np.bincount(bin_of[each], minlength=len(names)) for each in columns)
    true[unseen] += judged.unknown.sum()
    rows = []
    for place, name in enumerate(names):
        size, occurrences, right = int(labels[place]), int(true[place]), int(hits[place])
        recall = right / occurrences if occurrences else float("nan")
        rows.append(BinScore(name, size, occurrences, right, recall, right / (k * len(judged))))
    return rows


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
    return bin_scores(judged, bin_of, BIN_NAMES, k=k, unseen=BIN_NAMES.index("unseen"))
