"""Propensity-scored precision and nDCG, in which hits on rare labels count more.

The propensity of a label is the probability that an annotator assigns it when it applies, estimated
from how often it occurs in training. Weights are inverse propensities. Both metrics are ratios of
sums over the whole data set, not means of ratios.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float64
from labelgrove.core.late import sparse
from labelgrove.core.topk import top_k
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics.measures import Ratio
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import Judged, discounts

PRESETS = {"wikipedia": (0.5, 0.4), "amazon": (0.6, 2.6), "default": (0.55, 1.5)}


@dataclass(frozen=True)
class Propensity:
    """The two constants of the propensity model; always report them with the metrics.

    Published tables use ``wikipedia`` for Wiki-500K, WikiLSHTC and the LF-Wikipedia sets,
    ``amazon`` for Amazon-670K, Amazon-3M and the LF-Amazon sets, and ``default`` for all others,
    including Wiki10-31K and AmazonCat-13K.

    >>> Propensity.preset("amazon")
    Propensity(a=0.6, b=2.6)
    """

    a: float = 0.55
    b: float = 1.5

    def __post_init__(self) -> None:
        if not (0 <= self.a < float("inf") and 0 < self.b < float("inf")):
            raise ConfigError(f"propensity: A must be >= 0 and B > 0, got {self.a} and {self.b}")

    @classmethod
    def preset(cls, name: str) -> Propensity:
        """The constants used for a family of public data sets."""
        if name.lower() not in PRESETS:
            raise ConfigError(f"propensity: must be one of {', '.join(PRESETS)}, got {name!r}")
        return cls(*PRESETS[name.lower()])

    def inverse(self, frequencies: npt.ArrayLike, n_train: int) -> Float64:
        """1 / p of labels with these training frequencies among ``n_train`` documents.

        ``1 + (ln N - 1) (B + 1)^A / (N_l + B)^A``. A negative ln N - 1, for fewer than three
        documents, counts as zero, so that no label has a weight below one.

        >>> Propensity().inverse([0, 10, 1000], n_train=10_000).round(2).tolist()
        [11.87, 4.55, 1.3]
        """
        if n_train < 1:
            raise ConfigError(f"n_train must be at least 1, got {n_train}")
        counts = np.asarray(frequencies, dtype=np.float64)
        scale = max(float(np.log(n_train)) - 1.0, 0.0) * (self.b + 1.0) ** self.a
        inverse: Float64 = 1.0 + scale * (counts + self.b) ** -self.a
        return inverse

    def costs(self, frequencies: npt.ArrayLike, n_train: int) -> Float64:
        """1 / p of each label, scaled so that all positives together cost as much as before."""
        counts = np.asarray(frequencies, dtype=np.float64)
        inverse = self.inverse(counts, n_train)
        costs: Float64 = inverse * (counts.sum() / (counts @ inverse)) if counts.any() else inverse
        return costs


def propensity_measure(judged: Judged, metric: Metric, weights: Float64) -> Ratio:
    """PSP@k and PSnDCG@k: the weight of the hits over the largest possible weight of k labels.

    ``weights`` are inverse propensities of the columns, and at the end that of an unseen label.
    """
    k = metric.k
    assert k is not None
    discount = discounts(k) if metric.family == "PSnDCG" else np.ones(k)
    hits = np.where(judged.hits[:, :k], weights[judged.predictions.columns[:, :k]], 0.0)
    # Not a product of matrices, whose rounding can depend on where a document is among others.
    gained = (hits * discount[: hits.shape[1]]).sum(axis=1)
    return Ratio(gained, (_best_weights(judged, k, weights) * discount).sum(axis=1))


def _best_weights(judged: Judged, k: int, weights: Float64) -> Float64:
    """The k largest weights of each document's true labels, with zeros after them."""
    truth = judged.truth
    weighted = sparse.csr_array(
        (weights[truth.indices].astype(np.float32), truth.indices, truth.indptr), shape=truth.shape
    )
    columns = top_k(weighted, k).columns
    known = np.zeros((len(judged), k))
    known[:, : columns.shape[1]] = np.where(columns >= 0, weights[columns], 0.0)
    # No label is rarer than an unseen one, so unseen labels come before the known ones.
    rank = np.arange(k) - judged.unknown[:, None]  # among the known ones
    shifted = np.take_along_axis(known, np.maximum(rank, 0), axis=1)
    best: Float64 = np.where(rank < 0, weights[-1], shifted)
    return best
