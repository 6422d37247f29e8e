"""Precision, recall and F1 of each label by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labelgrove.evaluation.metrics.measures import Float64, Int64
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import Judged


@dataclass(frozen=True)
class LabelScores:
    """Per label, in how many documents it is true, predicted, and both; undefined ratios are NaN.

    >>> scores = LabelScores(np.array([4, 0]), np.array([2, 0]), np.array([1, 0]))
    >>> scores.precision.tolist(), scores.recall.tolist()
    ([0.5, nan], [0.25, nan])
    """

    true: Int64
    predicted: Int64
    hits: Int64

    @property
    def precision(self) -> Float64:
        """The share of a label's predictions that are right."""
        return _ratio(self.hits, self.predicted)

    @property
    def recall(self) -> Float64:
        """The share of a label's documents that got it."""
        return _ratio(self.hits, self.true)

    @property
    def f1(self) -> Float64:
        """The harmonic mean of both; NaN for labels that are neither true nor predicted."""
        return _ratio(2 * self.hits, self.predicted + self.true)


def by_label(judged: Judged, metric: Metric) -> LabelScores:
    """The scores of all labels over the ranks that count for a metric."""
    labels = len(judged.predictions.index)
    counted = judged.counted(metric)

    def count(columns: npt.NDArray[Any]) -> Int64:
        return np.bincount(columns, minlength=labels).astype(np.int64)

    return LabelScores(
        count(judged.truth.indices),
        count(judged.predictions.columns[counted]),
        count(judged.predictions.columns[counted & judged.hits]),
    )


def _ratio(numerators: Int64, denominators: Int64) -> Float64:
    with np.errstate(invalid="ignore"):
        shares: Float64 = numerators / denominators
    return shares
