"""How reliable probabilities are: predicted and observed shares, in bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Bools, Float64, Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.errors import DataError


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
    """Probabilities compared with outcomes.

    Most labels of a long list are unlikely, so bins of equal width would put nearly all into the
    first one. These bins have the same number of labels each. Empty bins are left out.
    """
    claimed = np.asarray(probabilities, np.float64).ravel()
    true = np.asarray(hits, bool).ravel()
    if len(claimed) != len(true) or len(claimed) == 0:
        raise DataError(f"{len(claimed)} probabilities for {len(true)} outcomes")
    if not ((claimed >= 0) & (claimed <= 1)).all():
        raise DataError("probabilities must lie between 0 and 1")
    if bins < 1:
        raise DataError(f"bins: must be at least 1, got {bins}")
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
