"""Variety in a list of labels: further labels of a cluster count less than its first."""

from __future__ import annotations

import numpy as np

from labelgrove.core.arrays import Int32
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.tree import LabelTree


def label_clusters(tree: LabelTree | None, method: str) -> Int32:
    """The cluster of each label: the node above its leaf."""
    if tree is None or len(tree.parents) < 2:
        raise ConfigError(
            f"diversity: this {method} model has no clusters of labels (its label set is small, or "
            "it was trained without a tree)"
        )
    clusters: Int32 = tree.parents[-1][tree.leaf_positions]
    return clusters


def diversify(predictions: Predictions, clusters: Int32, strength: float) -> Predictions:
    """Labels in the order of score x (1 - strength)^(labels of the same cluster before them).

    These products are the new scores. 0 changes nothing; with 1, a second label of a cluster comes
    only after the first of all others.
    """
    if predictions.score_kind == "margin":
        raise ConfigError("diversity: needs scores between 0 and 1, and these are margins")
    ranks = np.arange(predictions.k)
    cluster = np.where(predictions.used, clusters[predictions.columns], -1)
    # Lists are sorted, so the number of labels of a cluster before a label is a count in the list.
    order = np.argsort(cluster, axis=1, kind="stable")
    arranged = np.take_along_axis(cluster, order, 1)
    starts = np.where(np.diff(arranged, axis=1, prepend=-2) != 0, ranks, 0)
    before = np.empty_like(order)
    np.put_along_axis(before, order, ranks - np.maximum.accumulate(starts, axis=1), 1)
    return predictions.with_scores(predictions.scores * np.float32(1 - strength) ** before)
