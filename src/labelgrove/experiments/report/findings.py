"""What a report shows beyond metrics: calibration, confused siblings, wrong documents, the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import Bools, Float64, Int64, entry_rows
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import BinScore, Judged, bin_scores, ranking_measure
from labelgrove.labels.tree import LabelTree

Point = tuple[float, float]


def best_scores(judged: Judged, *, k: int) -> tuple[Float64, Bools] | None:
    """The k best labels' scores and which of them are right; None if the scores cannot be
    probabilities (margins, a score outside [0, 1], or no label at all)."""
    counted = judged.counted(Metric("P", k=k))
    scores = judged.predictions.scores[counted].astype(np.float64)
    if judged.predictions.score_kind == "margin" or not len(scores):
        return None
    if not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
        return None
    return np.minimum(scores, 1.0), judged.hits[counted]


class Confusion(NamedTuple):
    """Documents with the label ``true`` (a column) that got its sibling ``predicted`` instead.

    ``missed`` is the number of all documents whose label ``true`` is not among the k best.
    """

    true: int
    predicted: int
    documents: int
    missed: int


@dataclass(frozen=True)
class SiblingConfusion:
    """How many wrong labels share a leaf with a label that the document misses, and which."""

    pairs: tuple[Confusion, ...]
    wrong: int
    beside_missed: int
    leaves: int


def sibling_confusion(
    judged: Judged, tree: LabelTree, *, k: int, most: int = 20
) -> SiblingConfusion:
    """Pairs of labels in one leaf, of which one is true and not among the k best, the other is
    among them and wrong."""
    columns = tree.labels
    # Columns beyond the tree's are labels that only other runs know; they have no leaf.
    leaf = np.full(len(judged.predictions.index), -1, np.int64)
    leaf[tree.leaf_labels] = tree.parents[-1]
    leaves = int(tree.parents[-1][-1]) + 1
    rows, missed = missed_labels(judged, k)
    inside = missed < columns
    rows, missed = rows[inside], missed[inside]
    wrong_ranks = judged.counted(Metric("P", k=k)) & ~judged.hits
    wrong_rows = np.nonzero(wrong_ranks)[0]
    wrong = judged.predictions.columns[wrong_ranks].astype(np.int64)
    total = len(wrong)
    inside = wrong < columns
    wrong_rows, wrong = wrong_rows[inside], wrong[inside]

    # A key is a document and a leaf: a wrong label is confused with the missed ones of its key.
    keys = rows * leaves + leaf[missed]
    order = np.argsort(keys, kind="stable")
    left, right = equal_pairs(keys[order], wrong_rows * leaves + leaf[wrong])
    pairs, counts = np.unique(missed[order[left]] * columns + wrong[right], return_counts=True)
    best = np.lexsort((pairs, -counts))[:most]
    all_missed = np.bincount(missed, minlength=columns)
    confusions = [
        Confusion(int(t), int(p), int(n), int(all_missed[t]))
        for t, p, n in zip(*np.divmod(pairs[best], columns), counts[best], strict=True)
    ]
    return SiblingConfusion(tuple(confusions), total, len(np.unique(right)), leaves)


def equal_pairs(left: Int64, right: Int64) -> tuple[Int64, Int64]:
    """Where the same value is in both arrays, for all such pairs; ``left`` is sorted."""
    first, last = (np.searchsorted(left, right, side=side) for side in ("left", "right"))
    counts = last - first
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(first, counts) + offsets, np.repeat(np.arange(len(right)), counts)


def missed_labels(judged: Judged, k: int) -> tuple[Int64, Int64]:
    """(document, column) of the true labels that are not among the k best."""
    labels = max(len(judged.predictions.index), 1)
    truth = judged.truth
    rows = entry_rows(truth)
    hits = judged.hits & judged.counted(Metric("P", k=k))
    hit_keys = np.nonzero(hits)[0] * labels + judged.predictions.columns[hits]
    columns = truth.indices.astype(np.int64)
    missed = ~np.isin(rows * labels + columns, hit_keys)
    return rows[missed], columns[missed]


class WrongDocument(NamedTuple):
    """A document (its row) with errors among its k best labels; ``missed`` are columns."""

    row: int
    ndcg: float
    missed: tuple[int, ...]


def most_wrong(judged: Judged, *, k: int, most: int = 20) -> list[WrongDocument]:
    """Documents with the lowest nDCG@k; among equals, those whose wrong labels scored highest.

    Documents without labels or without errors are left out.
    """
    ndcg = ranking_measure(judged, Metric("nDCG", k=k)).numerators
    wrong = judged.counted(Metric("P", k=k)) & ~judged.hits
    confidence = np.where(wrong, judged.predictions.scores, -np.inf).max(axis=1, initial=-np.inf)
    candidates = np.flatnonzero((judged.sizes > 0) & (ndcg < 1 - 1e-9))
    order = np.lexsort((candidates, -confidence[candidates], ndcg[candidates]))
    chosen = candidates[order[:most]]
    rows, missed = missed_labels(judged, k)
    return [
        WrongDocument(int(row), float(ndcg[row]), tuple(missed[rows == row].tolist()))
        for row in chosen
    ]


def frequency_bands(judged: Judged, frequencies: Int64, *, k: int) -> list[BinScore]:
    """Recall of the k best labels by their number of training documents: 0, 1, 2–3, 4–7, ..."""
    band_of = np.where(frequencies > 0, np.frexp(np.maximum(frequencies, 1))[1], 0)  # 1 + log2
    tops = range(2, int(band_of.max(initial=0)) + 1)
    names = ["0", "1", *(f"{2 ** (b - 1):,}–{2**b - 1:,}" for b in tops)]
    bands = bin_scores(judged, band_of, names, k=k, unseen=0)
    return [band for band in bands if band.labels or band.occurrences]


def tail_curve(frequencies: Int64, *, points: int = 120) -> list[tuple[int, int]]:
    """(rank, training documents) of labels from the most to the least frequent, at ranks that are
    even on a logarithmic scale; labels without documents are left out."""
    counts = np.sort(frequencies)[::-1]
    counts = counts[counts > 0]
    if not len(counts):
        return []
    ranks = np.unique(np.geomspace(1, len(counts), points).round().astype(np.int64))
    return [(int(rank), int(counts[rank - 1])) for rank in ranks]


def thinned(points: Sequence[Point], most: int = 300) -> list[Point]:
    """At most ``most`` of many points, including the first and the last."""
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]
