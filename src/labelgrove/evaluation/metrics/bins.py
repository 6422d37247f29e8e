"""Metrics split by how often a label occurs in training, from head to tail."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float64, entry_rows
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
    hits = _hits_in_bin(judged, metric, bin_of, position)
    if family == "P":
        assert metric.k is not None
        return Ratio(hits, np.full(len(hits), float(metric.k)))
    return Ratio(hits, _true_in_bin(judged, bin_of, position))


def _hits_in_bin(
    judged: Judged, metric: Metric, bin_of: npt.NDArray[np.int8], position: int
) -> Float64:
    in_bin = bin_of[judged.predictions.columns] == position
    hits: Float64 = (judged.hits & judged.counted(metric) & in_bin).sum(axis=1, dtype=np.float64)
    return hits


def _true_in_bin(judged: Judged, bin_of: npt.NDArray[np.int8], position: int) -> Float64:
    rows = entry_rows(judged.truth)[bin_of[judged.truth.indices] == position]
    true = np.bincount(rows, minlength=len(judged)).astype(np.float64)
    return true + judged.unknown if BIN_NAMES[position] == "unseen" else true


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
    rows = []
    for position, name in enumerate(BIN_NAMES):
        hits = int(_hits_in_bin(judged, Metric("P", k=k), bin_of, position).sum())
        true = int(_true_in_bin(judged, bin_of, position).sum())
        labels = int((bin_of == position).sum())
        recall = hits / true if true else float("nan")
        rows.append(BinScore(name, labels, true, hits, recall, hits / (k * len(judged))))
    return rows
