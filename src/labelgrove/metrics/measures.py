"""What metrics are computed from, stored per document so that documents can be resampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ratio:
    """A metric that is a ratio of two sums over documents; in a mean, all denominators are one."""

    numerators: Float64
    denominators: Float64

    def value(self) -> float:
        """The metric over all documents; NaN if the denominator is zero."""
        denominator = float(self.denominators.sum())
        return float(self.numerators.sum()) / denominator if denominator else float("nan")


def mean(values: Float64) -> Ratio:
    """The mean over documents as a ratio."""
    return Ratio(values, np.ones(len(values)))


@dataclass(frozen=True)
class Entries:
    """(document, label) pairs; labels are numbered from zero in the order of :class:`PerLabel`."""

    documents: Int64
    labels: Int64

    def counts(self, size: int, weights: Float64 | None) -> Float64:
        """The number of documents of each label; a document counts as often as its weight says."""
        per_entry = None if weights is None else weights[self.documents]
        return np.bincount(self.labels, weights=per_entry, minlength=size).astype(np.float64)


@dataclass(frozen=True)
class PerLabel:
    """A metric over the labels that occur in the truth: a macro average, or coverage."""

    kind: str  # P, R, F1 or coverage
    size: int
    true: Entries
    predicted: Entries
    hit: Entries

    def value(self, weights: Float64 | None = None) -> float:
        """The metric over all documents, each counted ``weights`` times (once by default)."""
        true = self.true.counts(self.size, weights)
        hit = self.hit.counts(self.size, weights)
        occurs = true > 0
        if not occurs.any():
            return float("nan")
        if self.kind == "coverage":
            per_label = (hit > 0).astype(np.float64)
        elif self.kind == "R":
            per_label = hit / np.maximum(true, 1)
        else:
            predicted = self.predicted.counts(self.size, weights)
            if self.kind == "P":
                per_label = hit / np.maximum(predicted, 1)
            else:
                per_label = 2 * hit / np.maximum(predicted + true, 1)
        return float(per_label[occurs].mean())


Measure: TypeAlias = Ratio | PerLabel
