"""What metrics are computed from, stored per document so that documents can be resampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from labelgrove.core.arrays import Float64, Int64


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
    sums: list[float] = []
    while rest := math.fsum([*numbers, *(-part for part in sums)]):
        sums.append(rest)
    return tuple(sums)


def mean(values: Float64) -> Ratio:
    """The mean over documents as a ratio."""
    return Ratio(values, np.ones(len(values)))


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


def _ratio(numerators: Int64, denominators: Int64) -> Float64:
    with np.errstate(invalid="ignore"):
        shares: Float64 = numerators / denominators
    return shares


@dataclass(frozen=True)
class PerLabel:
    """A mean over the labels that are true somewhere: a macro average, or coverage."""

    kind: str  # P, R, F1 or coverage
    scores: LabelScores

    def value(self) -> float:
        """The metric over all documents; NaN if no label is true."""
        scores = self.scores
        occurs = scores.true > 0
        if not occurs.any():
            return float("nan")
        if self.kind == "coverage":
            return float((scores.hits > 0)[occurs].mean())
        per_label = {"P": scores.precision, "R": scores.recall, "F1": scores.f1}[self.kind]
        return float(np.nan_to_num(per_label[occurs]).mean())  # NaN: true, but never predicted

    @staticmethod
    def joined(parts: Sequence[PerLabel]) -> PerLabel:
        """The counts over the documents of all parts."""
        true, predicted, hits = (
            np.sum([getattr(part.scores, name) for part in parts], axis=0)
            for name in ("true", "predicted", "hits")
        )
        return PerLabel(parts[0].kind, LabelScores(true, predicted, hits))


Measure: TypeAlias = Ratio | PerLabel
