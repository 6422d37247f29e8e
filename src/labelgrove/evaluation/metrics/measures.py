"""What metrics are computed from, stored per document so that documents can be resampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        """The metric over all documents; NaN if the denominator is zero.

        Sums are exact before they are rounded, so that those of parts of the documents can be added
        up to the same value, see :class:`Sums`.
        """
        return self.sums().value()

    def sums(self) -> Sums:
        """What a part of the documents adds to the metric."""
        return Sums(_exact(self.numerators), _exact(self.denominators))

    @staticmethod
    def joined(parts: Sequence[Ratio]) -> Ratio:
        """The documents of all parts."""
        return Ratio(
            np.concatenate([part.numerators for part in parts]),
            np.concatenate([part.denominators for part in parts]),
        )


@dataclass(frozen=True)
class Sums:
    """The sums of a ratio, each as a few numbers that add up to it without any error."""

    numerator: tuple[float, ...]
    denominator: tuple[float, ...]

    def value(self) -> float:
        """The ratio of the rounded sums; NaN if the denominator is zero."""
        denominator = math.fsum(self.denominator)
        return math.fsum(self.numerator) / denominator if denominator else float("nan")

    @staticmethod
    def joined(parts: Sequence[Sums]) -> Sums:
        """The sums over the documents of all parts."""
        return Sums(
            _exact(np.array([number for part in parts for number in part.numerator])),
            _exact(np.array([number for part in parts for number in part.denominator])),
        )


def _exact(values: Float64) -> tuple[float, ...]:
    """A few numbers with the sum of these: the rounded sum, then what rounding has left out."""
    numbers: list[float] = values.tolist()
    found: list[float] = []
    while rest := math.fsum([*numbers, *(-part for part in found)]):
        found.append(rest)
    return tuple(found)


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
        return self.counts(weights).value()

    def counts(self, weights: Float64 | None = None) -> LabelCounts:
        """What the documents add to the metric."""
        return LabelCounts(
            self.kind,
            self.true.counts(self.size, weights),
            self.predicted.counts(self.size, weights),
            self.hit.counts(self.size, weights),
        )


@dataclass(frozen=True)
class LabelCounts:
    """How often each label is true, predicted, and both; only those that are true count."""

    kind: str
    true: Float64
    predicted: Float64
    hit: Float64

    def value(self) -> float:
        """The mean over the labels."""
        occurs = self.true > 0
        if not occurs.any():
            return float("nan")
        true, predicted, hit = self.true[occurs], self.predicted[occurs], self.hit[occurs]
        if self.kind == "coverage":
            per_label = (hit > 0).astype(np.float64)
        elif self.kind == "R":
            per_label = hit / np.maximum(true, 1)
        elif self.kind == "P":
            per_label = hit / np.maximum(predicted, 1)
        else:
            per_label = 2 * hit / np.maximum(predicted + true, 1)
        return float(per_label.mean())

    @staticmethod
    def joined(parts: Sequence[LabelCounts]) -> LabelCounts:
        """The counts over the documents of all parts."""
        return LabelCounts(
            parts[0].kind,
            sum(part.true for part in parts),  # type: ignore[arg-type]
            sum(part.predicted for part in parts),  # type: ignore[arg-type]
            sum(part.hit for part in parts),  # type: ignore[arg-type]
        )


Measure: TypeAlias = Ratio | PerLabel
