"""Variety in a list of labels: the next label of a cluster counts for less than the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from labelgrove.core.arrays import Int32
from labelgrove.errors import ConfigError
from labelgrove.labels.tree import LabelTree
from labelgrove.scores.predictions import Predictions


def label_clusters(model: Any) -> Int32:
    """The cluster of each label in a fitted model's tree: the node above its leaf."""
    tree = label_tree(model)
    if tree is None or len(tree.parents) < 2:
        raise ConfigError(
            f"diversity: this {model.method} model has no clusters of labels (its label set is "
            "small, or it was trained without a tree)"
        )
    clusters: Int32 = tree.parents[-1][tree.leaf_positions]
    return clusters


def label_tree(model: Any) -> LabelTree | None:
    """The tree that a fitted model, or the first of its members that has one, searches."""
    for owner in (model, getattr(model, "linear_", None), *getattr(model, "members_", ())):
        for holder in (owner, getattr(owner, "ranker_", None)):
            for name in ("tree_", "tree"):
                tree = getattr(holder, name, None)
                if isinstance(tree, LabelTree):
                    return tree
    return None


def diversify(found: Predictions, clusters: Int32, strength: float) -> Predictions:
    """Labels in the order of score x (1 - strength)^(labels of the same cluster before them).

    These products are the new scores. 0 changes nothing; with 1, a second label of a cluster comes
    only after the first of all others.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> found = Predictions.from_scores([[0.8, 0.7, 0.6]], k=3, index=LabelIndex("abc"))
    >>> diversify(found, np.array([0, 0, 1], np.int32), 0.5).names()
    [['a', 'c', 'b']]
    """
    if found.score_kind == "margin":
        raise ConfigError("diversity: needs scores between 0 and 1, and these are margins")
    rows = np.arange(len(found))[:, None]
    used = np.arange(found.k) < found.counts[:, None]
    cluster = np.where(used, clusters[found.columns], -1)
    # Lists are sorted, so how many of a cluster came before is a count within the list.
    order = np.argsort(cluster, axis=1, kind="stable")
    arranged = np.take_along_axis(cluster, order, 1)
    starts = np.where(np.diff(arranged, axis=1, prepend=-2) != 0, np.arange(found.k), 0)
    before = np.empty_like(order)
    before[rows, order] = np.arange(found.k) - np.maximum.accumulate(starts, axis=1)
    scores = np.where(used, found.scores * np.float32(1 - strength) ** before, -np.inf)
    best = np.lexsort((found.columns, -scores), axis=1)
    return Predictions(
        np.take_along_axis(found.columns, best, 1),
        np.take_along_axis(scores, best, 1).astype(np.float32),
        found.counts,
        found.index,
        found.score_kind,
    )
