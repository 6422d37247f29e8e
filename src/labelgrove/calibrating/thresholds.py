"""The score from which labels are worth returning: for the best F1, or for a given precision."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelgrove.errors import ConfigError

Float64 = npt.NDArray[np.float64]
Target = Literal["f1"] | float

# The shared threshold counts as much as this many documents. Without it, the labels' own thresholds
# did worse than the shared one on unseen documents.
DRAWN = 100


def check_target(target: Any) -> None:
    """Refuses anything but "f1" or a precision."""
    number = isinstance(target, (int, float)) and not isinstance(target, bool)
    if target != "f1" and not (number and 0 < target <= 1):
        raise ConfigError(
            f"target: must be 'f1' or a precision above 0 and up to 1, got {target!r}"
        )


def best_threshold(
    scores: Float64, hits: npt.NDArray[np.bool_], true: int, target: Target
) -> float:
    """The threshold at which labels reach the target; the documents have ``true`` labels.

    For "f1" it is the threshold with the largest F1. For a precision it is the lowest that reaches
    it, to return as many labels as possible, or else the one that comes nearest. It lies halfway
    between two scores.

    >>> scores, hits = np.array([0.9, 0.8, 0.4, 0.2]), np.array([True, True, False, True])
    >>> round(best_threshold(scores, hits, 3, 0.9), 3)
    0.6
    >>> round(best_threshold(scores, hits, 3, "f1"), 3)
    0.1
    """
    if len(scores) == 0:
        return 0.0
    order = np.argsort(-scores, kind="stable")
    arranged = scores[order]
    right = np.cumsum(hits[order])
    given = np.arange(1, len(scores) + 1)
    # Labels of equal scores are returned together or not at all.
    ends = np.append(np.flatnonzero(np.diff(arranged)), len(scores) - 1)
    if target == "f1":
        chosen = int(np.argmax(2 * right[ends] / (given[ends] + max(true, 1))))
    else:
        precision = right[ends] / given[ends]
        reached = np.flatnonzero(precision >= target)
        chosen = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    above = float(arranged[ends[chosen]])
    below = float(arranged[ends[chosen + 1]]) if chosen + 1 < len(ends) else 0.0
    return (above + min(below, above)) / 2


def label_thresholds(
    columns: npt.NDArray[np.int32],
    scores: Float64,
    hits: npt.NDArray[np.bool_],
    true: npt.NDArray[np.int64],
    target: Target,
    *,
    shared: float,
    fewest: int,
) -> npt.NDArray[np.float32]:
    """A threshold per label for labels with at least ``fewest`` true documents, NaN for others.

    ``true`` has the number of documents of each label. The fewer they are, the nearer a threshold
    is to the ``shared`` one: halfway for a label with 100 documents.
    """
    chosen = np.full(len(true), np.nan, np.float32)
    order = np.argsort(columns, kind="stable")
    bounds = np.searchsorted(columns[order], np.arange(len(true) + 1))
    for label in np.flatnonzero(true >= fewest).tolist():
        rows = order[bounds[label] : bounds[label + 1]]
        if len(rows):
            own = best_threshold(scores[rows], hits[rows], int(true[label]), target)
            weight = true[label] / (true[label] + DRAWN)
            chosen[label] = weight * own + (1 - weight) * shared
    return chosen
