"""Which labels are worth returning: for the best F1 of three kinds, or for a given precision."""

from __future__ import annotations

from typing import Literal

import numpy as np

from labelgrove.core.arrays import Array, Bools, Float32, Float64, Int32, Int64
from labelgrove.errors import ConfigError

Target = Literal["micro-F1", "macro-F1", "document-F1", "f1"] | float
F1_TARGETS = ("micro-F1", "macro-F1", "document-F1")  # "f1" is an older name of the first

# The shared threshold counts as much as this many documents. Without it, the labels' own thresholds
# did worse than the shared one on unseen documents.
DRAWN = 100


def check_target(target: object) -> None:
    """Refuses anything but the names of F1 or a precision."""
    number = isinstance(target, (int, float)) and not isinstance(target, bool) and 0 < target <= 1
    if target not in (*F1_TARGETS, "f1") and not number:
        raise ConfigError(
            f"target: must be {', '.join(F1_TARGETS)} or a precision above 0 and up to 1, "
            f"got {target!r}"
        )


def best_threshold(scores: Float64, hits: Bools, true: int, target: Target) -> float:
    """The threshold at which labels reach the target; the documents have ``true`` labels.

    For an F1 it is the threshold with the largest F1 over all labels. For a precision it is the
    lowest that reaches it, to return as many labels as possible, or else the one that comes
    nearest. It lies halfway between two scores.

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
    ends = _ends(arranged)
    if isinstance(target, str):
        chosen = int(np.argmax(2 * right[ends] / (given[ends] + max(true, 1))))
    else:
        precision = right[ends] / given[ends]
        reached = np.flatnonzero(precision >= target)
        chosen = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    return _after(arranged, ends, chosen)


def _ends(arranged: Float64) -> Int64:
    """Where falling scores may be cut: labels of equal scores are returned together or not."""
    return np.append(np.flatnonzero(np.diff(arranged)), len(arranged) - 1)


def _after(arranged: Float64, ends: Int64, chosen: int) -> float:
    """The threshold between the chosen end and the next score."""
    above = float(arranged[ends[chosen]])
    below = float(arranged[ends[chosen + 1]]) if chosen + 1 < len(ends) else 0.0
    return (above + min(below, above)) / 2


def label_thresholds(
    columns: Int32,
    scores: Float64,
    hits: Bools,
    true: Int64,
    target: Target,
    *,
    shared: float | Float32,
    fewest: int,
) -> Float32:
    """A threshold per label for labels with at least ``fewest`` true documents, NaN for others.

    ``true`` has the number of documents of each label. The fewer they are, the nearer a threshold
    is to the ``shared`` one (or to the label's among several): halfway for a label with 100
    documents.
    """
    chosen = np.full(len(true), np.nan, np.float32)
    towards = np.broadcast_to(np.asarray(shared, np.float64), len(true))
    order = np.argsort(columns, kind="stable")
    bounds = np.searchsorted(columns[order], np.arange(len(true) + 1))
    for label in np.flatnonzero(true >= fewest).tolist():
        rows = order[bounds[label] : bounds[label + 1]]
        if len(rows):
            own = best_threshold(scores[rows], hits[rows], int(true[label]), target)
            weight = true[label] / (true[label] + DRAWN)
            chosen[label] = weight * own + (1 - weight) * towards[label]
    return chosen


def macro_thresholds(
    columns: Int32,
    scores: Float64,
    hits: Bools,
    true: Int64,
    bins: Array,
    *,
    fewest: int,
) -> tuple[float, Float32]:
    """The threshold with the best mean F1 over labels, and a better one for each label's bin.

    ``true`` has the number of documents of each label, ``bins`` its bin. A bin with fewer than
    ``fewest`` hits uses the common threshold. A label's F1 does not depend on other labels, so
    every bin can be cut for itself. Labels without documents do not count, as in macro-F1.
    """
    gains = _label_gains(columns, scores, hits, true)
    shared = _best_sum(scores, gains)
    chosen = np.full(len(true), shared, np.float32)
    for number in np.unique(bins).tolist():
        here = bins[columns] == number
        if hits[here].sum() >= fewest:
            chosen[bins == number] = _best_sum(scores[here], gains[here])
    return shared, chosen


def _label_gains(columns: Int32, scores: Float64, hits: Bools, true: Int64) -> Float64:
    """By how much each entry changes the F1 of its label, after those with better scores."""
    gains = np.zeros(len(columns))
    if len(columns) == 0:
        return gains
    order = np.lexsort((-scores, columns))
    labels, right = columns[order], np.cumsum(hits[order])
    starts = np.append(0, np.flatnonzero(np.diff(labels)) + 1)
    first = np.repeat(starts, np.diff(np.append(starts, len(labels))))
    before = right[first] - hits[order][first]
    f1 = 2 * (right - before) / (np.arange(len(labels)) - first + 1 + true[labels])
    f1[true[labels] == 0] = 0.0
    changes = np.diff(f1, prepend=0.0)
    changes[starts] = f1[starts]
    gains[order] = changes
    return gains


def _best_sum(scores: Float64, gains: Float64) -> float:
    """The threshold above which the gains have the largest sum."""
    if len(scores) == 0:
        return 0.0
    order = np.argsort(-scores, kind="stable")
    arranged = scores[order]
    ends = _ends(arranged)
    return _after(arranged, ends, int(np.argmax(np.cumsum(gains[order])[ends])))


def expected_sizes(probabilities: Array) -> Int64:
    """How many of its likeliest labels give each document (a row) the best expected F1.

    ``probabilities`` are best first. m labels are expected to have the sum of theirs as hits, and
    the document the sum of all as labels: F1 is 2 hits / (m + labels).

    >>> expected_sizes(np.array([[0.9, 0.8, 0.1], [0.3, 0.25, 0.24]]))
    array([2, 3])
    """
    hits = np.cumsum(probabilities, axis=1, dtype=np.float64)
    given = np.arange(1, probabilities.shape[1] + 1)
    sizes: Int64 = np.argmax(2 * hits / (given + hits[:, -1:]), axis=1) + 1
    return sizes
