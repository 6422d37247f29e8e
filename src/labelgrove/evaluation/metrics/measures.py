"""What metrics are computed from, stored per document, and bootstrap intervals from that.

Documents are drawn with replacement. A resample is a weight per document that all metrics share, so
the numerator and denominator of a ratio change together, and so do two systems that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from labelgrove.core.arrays import Float64, Int64
from labelgrove.errors import ConfigError


@dataclass(frozen=True)
class Ratio:
    """A metric that is a ratio of two sums over documents; in a mean, all denominators are one."""

    numerators: Float64
    denominators: Float64

    def value(self) -> float:
        """The metric over all documents, from exact sums; NaN if the denominator is zero."""
        denominator = math.fsum(self.denominators)
        return math.fsum(self.numerators) / denominator if denominator else float("nan")


def mean(values: Float64) -> Ratio:
    """The mean over documents as a ratio."""
    return Ratio(values, np.ones(len(values)))


@dataclass(frozen=True)
class LabelScores:
    """Per label, how many documents have it, get it, and both; undefined ratios are NaN."""

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


Measure: TypeAlias = Ratio | PerLabel


_WEIGHTS_AT_ONCE = 4_000_000  # 32 MB of weights for any number of documents


class Interval(NamedTuple):
    """The range of the middle part of the resampled values, 95 % by default."""

    low: float
    high: float


def bootstrap(measures: Sequence[Ratio], n: int, *, times: int, seed: int) -> Float64:
    """The measures over ``times`` resamples of n documents, as a times x measures array."""
    if times < 1:
        raise ConfigError(f"intervals must be at least 1 resample, got {times}")
    numerators = _stacked([measure.numerators for measure in measures], n)
    denominators = _stacked([measure.denominators for measure in measures], n)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, as in Ratio.value
        blocks = [
            (weights @ numerators) / (weights @ denominators)
            for weights in _resamples(n, times, seed)
        ]
    return np.concatenate(blocks)


def interval(values: Float64, level: float = 0.95) -> Interval:
    """The percentile interval of resampled values, without the NaN among them."""
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}")
    defined = values[~np.isnan(values)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def widest(value: float, documents: int) -> float:
    """How far a mean over so many other documents may lie from this one, in 19 of 20 cases.

    The spread is that of values of 0 or 1, as P@1 has them; other means vary less.

    >>> round(widest(0.8, 1600), 4)
    0.0196
    """
    return 1.96 * math.sqrt(max(0.0, value * (1 - value)) / documents)


def _stacked(columns: list[Float64], n: int) -> Float64:
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def _resamples(n: int, times: int, seed: int) -> Iterator[Float64]:
    """How often each document was drawn, for one block of resamples at a time."""
    rng = np.random.default_rng(seed)
    block = max(1, _WEIGHTS_AT_ONCE // n)
    for start in range(0, times, block):
        draws = (rng.integers(0, n, size=n) for _ in range(min(block, times - start)))
        yield np.stack([np.bincount(draw, minlength=n) for draw in draws]).astype(np.float64)
