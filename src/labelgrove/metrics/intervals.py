"""Bootstrap confidence intervals: how much would a metric move with other test documents?

Documents are drawn with replacement. Every draw is a weight per document, shared by all metrics, so
numerators and denominators of a ratio move together, and so do two systems that are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from labelgrove.errors import ConfigError
from labelgrove.metrics.measures import Float64, Measure, PerLabel, Ratio

_WEIGHTS_AT_ONCE = 4_000_000  # 32 MB of weights, however many documents there are


class Interval(NamedTuple):
    """The middle part (95 % unless asked otherwise) of the resampled values."""

    low: float
    high: float


def has_interval(measure: Measure) -> bool:
    """Whether differences of two systems can be resampled: for all but coverage.

    Of macro averages too, because the shift that resampling causes is the same for both systems.

    >>> has_interval(Ratio(np.ones(1), np.ones(1)))
    True
    """
    return not (isinstance(measure, PerLabel) and measure.kind == "coverage")


def bootstrap(measures: Sequence[Measure], n: int, *, times: int, seed: int) -> Float64:
    """Values of the measures over ``times`` resamples of n documents, as a times x measures array.

    >>> hits = Ratio(np.array([1.0, 0.0, 1.0]), np.ones(3))
    >>> bootstrap([hits], 3, times=4, seed=0).shape
    (4, 1)
    """
    if times < 1:
        raise ConfigError(f"intervals must be at least 1 resample, got {times}")
    ratios = [i for i, measure in enumerate(measures) if isinstance(measure, Ratio)]
    numerators = _stacked([measures[i].numerators for i in ratios], n)  # type: ignore[union-attr]
    denominators = _stacked([measures[i].denominators for i in ratios], n)  # type: ignore[union-attr]
    blocks = []
    for weights in _resamples(n, times, seed):
        block = np.empty((len(weights), len(measures)))
        with np.errstate(invalid="ignore"):  # nothing over nothing: NaN, as in Ratio.value
            block[:, ratios] = (weights @ numerators) / (weights @ denominators)
        for i, measure in enumerate(measures):
            if isinstance(measure, PerLabel):
                block[:, i] = [measure.value(row) for row in weights]
        blocks.append(block)
    return np.concatenate(blocks)


def interval(values: Float64, level: float = 0.95) -> Interval:
    """The percentile interval of resampled values; NaN values are left out.

    >>> interval(np.arange(101.0), level=0.5)
    Interval(low=25.0, high=75.0)
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, got {level}")
    defined = values[~np.isnan(values)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def _stacked(columns: list[Float64], n: int) -> Float64:
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def _resamples(n: int, times: int, seed: int) -> Iterator[Float64]:
    """How often each document was drawn, a block of resamples at a time."""
    rng = np.random.default_rng(seed)
    rows_at_once = max(1, _WEIGHTS_AT_ONCE // n)
    for start in range(0, times, rows_at_once):
        rows = min(rows_at_once, times - start)
        drawn = (rng.integers(0, n, size=n) for _ in range(rows))
        yield np.stack([np.bincount(d, minlength=n) for d in drawn]).astype(np.float64)
