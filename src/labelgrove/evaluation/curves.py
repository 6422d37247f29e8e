"""Curves from scores in [0, 1] to probabilities, and how reliable probabilities are.

Curves are learnt from scores and whether they were right. Both kinds rise strictly: labels keep
their order, and different scores stay different.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Bools, Float64, Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.late import expit
from labelgrove.core.logistic import fit_logistic
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import ScoreKind

CurveKind = Literal["isotonic", "beta"]

PAIRS_PER_STEP, MOST_STEPS = 20, 1000  # of an isotonic curve
SLOPE = 1e-3  # share of the way to 0 and 1 that a curve goes beyond its first and last step
WIDEST = 12.0  # a sigmoid hardly distinguishes margins beyond; below, margins stay as they are
LOWEST, HIGHEST = 1e-12, 1 - 1e-7  # outside, a beta curve does not distinguish scores


class Scale(NamedTuple):
    """How raw scores become numbers in [0, 1] in the same order.

    Products stay as they are. Everything else (margins, sums of ranks) goes through a sigmoid,
    after ``center`` and ``spread`` bring it to where a sigmoid distinguishes scores.
    """

    sigmoid: bool
    center: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, scores: npt.ArrayLike, kind: ScoreKind) -> Scale:
        """The scale for scores like these."""
        values = np.asarray(scores, np.float64)
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        if kind != "margin" and low >= 0 and high <= 1:
            return cls(False)
        if max(-low, high) <= WIDEST:
            return cls(True)
        center = (low + high) / 2
        return cls(True, float(center), float(max(1.0, (high - center) / WIDEST)))

    def __call__(self, scores: npt.ArrayLike) -> Float64:
        values = np.asarray(scores, np.float64)
        if self.sigmoid:
            return np.asarray(expit((values - self.center) / self.spread))
        return np.clip(values, 0.0, 1.0)


@dataclass(frozen=True)
class Curve:
    """A curve and its numbers.

    ``isotonic``: scores and probabilities of the corners (2 x corners), with straight lines between
    them. ``beta``: a, b and c of sigmoid(a ln s - b ln(1 - s) + c).
    """

    kind: CurveKind
    numbers: Float64

    def __call__(self, units: Float64) -> Float64:
        """Probabilities of scores in [0, 1]."""
        if self.kind == "isotonic":
            return np.interp(units, *self.numbers)
        a, b, c = self.numbers
        low, high = _beta_terms(units)
        return np.asarray(expit(a * low + b * high + c))


def fit_curve(units: Float64, hits: Bools, kind: CurveKind) -> Curve:
    """The curve of the given kind that fits best."""
    return _isotonic(units, hits) if kind == "isotonic" else _beta(units, hits)


def _isotonic(units: Float64, hits: Bools) -> Curve:
    """Steps that never fall, joined by straight lines between their middles.

    The steps themselves would give many labels the same probability. The lines rise everywhere and
    have the same mean.
    """
    from sklearn.isotonic import IsotonicRegression

    bins = int(np.clip(len(units) // PAIRS_PER_STEP, 1, MOST_STEPS))
    counts, middles, shares = equal_mass_means(units, hits, bins)
    sizes = counts.astype(np.float64)
    fitted = IsotonicRegression().fit(middles, shares, sample_weight=sizes).predict(middles)
    step = np.cumsum(np.diff(fitted, prepend=fitted[0]) > 1e-12)
    weights = np.bincount(step, sizes)
    x = np.bincount(step, sizes * middles) / weights
    # Never quite 0 or 1: that would take more evidence.
    least = 0.5 / (len(units) + 1)
    y = np.clip(np.bincount(step, sizes * fitted) / weights, least, 1 - least)
    if x[0] > 0:
        x, y = np.append(0.0, x), np.append(y[0] * (1 - SLOPE), y)
    if x[-1] < 1:
        x, y = np.append(x, 1.0), np.append(y, y[-1] + (1 - y[-1]) * SLOPE)
    return Curve("isotonic", np.stack([x, y]))


def _beta(units: Float64, hits: Bools) -> Curve:
    """Maximum likelihood with a, b >= 0, so that the curve rises (Kull et al., 2017)."""
    low, high = _beta_terms(units)
    one = np.ones_like(low)
    a, b, c = _logistic(np.stack([low, high, one], 1), hits)
    if a < 0:
        a, (b, c) = 0.0, _logistic(np.stack([high, one], 1), hits)
    elif b < 0:
        b, (a, c) = 0.0, _logistic(np.stack([low, one], 1), hits)
    # Scores without information still keep their order.
    return Curve("beta", np.array([max(a, SLOPE), max(b, 0.0), c]))


def _beta_terms(units: Float64) -> tuple[Float64, Float64]:
    inside = np.clip(units, LOWEST, HIGHEST)
    return np.log(inside), -np.log1p(-inside)


def _logistic(terms: Float64, hits: Bools) -> Float64:
    """Weights of a logistic regression of ``hits``."""
    # One artificial outcome of each kind keeps weights finite where scores separate all hits.
    right = int(hits.sum())
    targets = np.where(hits, (right + 1.0) / (right + 2.0), 1.0 / (len(hits) - right + 2.0))
    return fit_logistic(terms, targets, 1e-9)


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: per bin the mean probability, the share that was true, and the count.

    ``ece`` is the expected calibration error, the mean gap between the two weighted by count;
    ``brier`` is the mean squared error of single probabilities.
    """

    claimed: Float64
    true: Float64
    counts: Int64
    ece: float
    brier: float

    def to_json(self) -> JsonObject:
        """For reports and files."""
        return {
            "ece": round(self.ece, 6),
            "brier": round(self.brier, 6),
            "claimed": [round(value, 6) for value in self.claimed.tolist()],
            "true": [round(value, 6) for value in self.true.tolist()],
            "counts": self.counts.tolist(),
        }


def reliability(
    probabilities: npt.ArrayLike, hits: npt.ArrayLike, *, bins: int = 15
) -> Reliability:
    """Probabilities compared with outcomes, in bins with the same number of labels each.

    Most labels are unlikely: bins of equal width would put nearly all into the first one.
    """
    claimed = np.asarray(probabilities, np.float64).ravel()
    true = np.asarray(hits, bool).ravel()
    if len(claimed) != len(true) or len(claimed) == 0:
        raise DataError(f"{len(claimed)} probabilities for {len(true)} outcomes")
    if not ((claimed >= 0) & (claimed <= 1)).all():
        raise DataError("probabilities must lie between 0 and 1")
    counts, mean_claimed, share_true = equal_mass_means(claimed, true, bins)
    sizes = counts.astype(np.float64)
    return Reliability(
        mean_claimed,
        share_true,
        counts,
        float((sizes * np.abs(mean_claimed - share_true)).sum() / sizes.sum()),
        float(np.square(claimed - true).mean()),
    )


def equal_mass_means(values: Float64, hits: Bools, bins: int) -> tuple[Int64, Float64, Float64]:
    """Counts, mean values and shares of hits in the bins that are not empty."""
    places = equal_mass(values, bins)
    counts = np.bincount(places)
    used = counts > 0
    sizes = counts[used].astype(np.float64)
    means, shares = (np.bincount(places, each)[used] / sizes for each in (values, hits))
    return counts[used], means, shares


def equal_mass(values: Float64, bins: int) -> Int64:
    """The bin of each value; equal values share one, so bins may differ in size or be empty."""
    arranged = np.sort(values)
    starts = arranged[(np.arange(1, bins) * len(values)) // bins]
    places: Int64 = np.searchsorted(starts, values, side="right")
    return places
