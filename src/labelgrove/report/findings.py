"""What a report tells beyond metrics: calibration, confused siblings, wrong documents, the tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.labels.tree import LabelTree
from labelgrove.metrics.names import Metric
from labelgrove.metrics.ranking import Judged, ranking_measure

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


class ScoreBin(NamedTuple):
    """Predicted labels whose scores lie between ``low`` and ``high``: how many of them are right.

    ``score`` is their mean score, ``right`` the share of right ones; both NaN where there are none.
    """

    low: float
    high: float
    labels: int
    score: float
    right: float


@dataclass(frozen=True)
class Calibration:
    """How far scores, read as probabilities, are from the share of right labels.

    ``error`` is the expected calibration error: the mean distance of ``score`` and ``right`` over
    the bins, each counting as often as labels lie in it.
    """

    bins: tuple[ScoreBin, ...]
    error: float


def calibration(judged: Judged, *, k: int, bins: int = 10) -> Calibration | None:
    """Reliability of the k best labels' scores as they are; None where they cannot be probabilities
    (margins, a score outside [0, 1], or no label at all).

    >>> from labelgrove.data.corpus import LabelIndex; from labelgrove.metrics.ranking import judge
    >>> from labelgrove.scores.predictions import Predictions
    >>> p = Predictions.from_scores([[0.75], [0.75]], k=1, index=LabelIndex("a"))
    >>> calibration(judge(p, [[1], [0]]), k=1).error
    0.25
    """
    counted = judged.counted(Metric("P", k=k))
    scores = judged.predictions.scores[counted].astype(np.float64)
    right = judged.hits[counted].astype(np.float64)
    if judged.predictions.score_kind == "margin" or not len(scores):
        return None
    if not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
        return None
    position = np.minimum((scores * bins).astype(np.int64), bins - 1)
    count = np.bincount(position, minlength=bins)
    with np.errstate(invalid="ignore"):
        score = np.bincount(position, weights=scores, minlength=bins) / count
        share = np.bincount(position, weights=right, minlength=bins) / count
    filled = count > 0
    error = float((count[filled] * np.abs(score - share)[filled]).sum() / len(scores))
    rows = (
        ScoreBin(b / bins, (b + 1) / bins, int(count[b]), float(score[b]), float(share[b]))
        for b in range(bins)
    )
    return Calibration(tuple(rows), error)


class Confusion(NamedTuple):
    """Documents that bear ``true`` (a column) and got its sibling ``predicted`` in its place.

    ``missed`` is the number of all documents whose label ``true`` was not among the k best.
    """

    true: int
    predicted: int
    documents: int
    missed: int


@dataclass(frozen=True)
class SiblingConfusion:
    """How many of the wrong labels stand beside a missed label of the same leaf, and which."""

    pairs: tuple[Confusion, ...]
    wrong: int
    beside_missed: int
    leaves: int


def sibling_confusion(
    judged: Judged, tree: LabelTree, *, k: int, most: int = 20
) -> SiblingConfusion:
    """Labels of one leaf that were taken for each other: one is true and not among the k best,
    the other is among them and wrong.

    >>> from labelgrove.data.corpus import LabelIndex; from labelgrove.metrics.ranking import judge
    >>> from labelgrove.scores.predictions import Predictions
    >>> p = Predictions.from_scores([[0.1, 0.9, 0]], k=1, index=LabelIndex("abc"))
    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    >>> sibling_confusion(judge(p, [[1, 0, 0]]), tree, k=1).pairs[0]
    Confusion(true=0, predicted=1, documents=1, missed=1)
    """
    columns = tree.labels
    # Columns behind those of the tree are labels that only other runs know: they have no leaf.
    leaf = np.full(len(judged.predictions.index), -1, np.int64)
    leaf[tree.leaf_labels] = tree.parents[-1]
    leaves = int(tree.parents[-1][-1]) + 1
    rows, missed = missed_labels(judged, k)
    inside = missed < columns
    rows, missed = rows[inside], missed[inside]
    wrong_places = judged.counted(Metric("P", k=k)) & ~judged.hits
    wrong_rows = np.nonzero(wrong_places)[0]
    wrong = judged.predictions.columns[wrong_places].astype(np.int64)
    total = len(wrong)
    inside = wrong < columns
    wrong_rows, wrong = wrong_rows[inside], wrong[inside]

    # A (document, leaf) is one number; each wrong label meets the missed ones with its number.
    keys = rows * leaves + leaf[missed]
    order = np.argsort(keys, kind="stable")
    keys, missed_sorted = keys[order], missed[order]
    wanted = wrong_rows * leaves + leaf[wrong]
    first, last = (np.searchsorted(keys, wanted, side=side) for side in ("left", "right"))
    met = last - first
    confused = np.repeat(wrong, met)
    offsets = np.arange(len(confused)) - np.repeat(np.cumsum(met) - met, met)
    true = missed_sorted[np.repeat(first, met) + offsets]
    pairs, counts = np.unique(true * columns + confused, return_counts=True)
    best = np.lexsort((pairs, -counts))[:most]
    all_missed = np.bincount(missed, minlength=columns)
    return SiblingConfusion(
        tuple(
            Confusion(int(t), int(p), int(n), int(all_missed[t]))
            for t, p, n in zip(
                pairs[best] // columns, pairs[best] % columns, counts[best], strict=True
            )
        ),
        total,
        int((met > 0).sum()),
        leaves,
    )


def missed_labels(judged: Judged, k: int) -> tuple[Int64, Int64]:
    """(document, column) of the true labels that are not among the k best.

    >>> from labelgrove.data.corpus import LabelIndex; from labelgrove.metrics.ranking import judge
    >>> from labelgrove.scores.predictions import Predictions
    >>> p = Predictions.from_scores([[0.1, 0.9]], k=1, index=LabelIndex("ab"))
    >>> [array.tolist() for array in missed_labels(judge(p, [[1, 1]]), 1)]
    [[0], [0]]
    """
    labels = max(len(judged.predictions.index), 1)
    truth = judged.truth
    rows = np.repeat(np.arange(len(judged), dtype=np.int64), np.diff(truth.indptr))
    found = judged.hits & judged.counted(Metric("P", k=k))
    found_keys = np.nonzero(found)[0] * labels + judged.predictions.columns[found]
    columns = truth.indices.astype(np.int64)
    missed = ~np.isin(rows * labels + columns, found_keys)
    return rows[missed], columns[missed]


class WrongDocument(NamedTuple):
    """A document (its row) by how wrong its k best labels are; ``missed`` are columns."""

    row: int
    ndcg: float
    missed: tuple[int, ...]


def most_wrong(judged: Judged, *, k: int, most: int = 20) -> list[WrongDocument]:
    """Documents with the lowest nDCG@k, among equals those whose wrong labels scored highest.

    Documents without labels are left out, and so are those without an error.

    >>> from labelgrove.data.corpus import LabelIndex; from labelgrove.metrics.ranking import judge
    >>> from labelgrove.scores.predictions import Predictions
    >>> p = Predictions.from_scores([[0.9, 0], [0.3, 0], [0, 1]], k=1, index=LabelIndex("ab"))
    >>> [d.row for d in most_wrong(judge(p, [[0, 1], [0, 1], [0, 1]]), k=1)]
    [0, 1]
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


class FrequencyBand(NamedTuple):
    """Labels with ``low`` to ``high`` training documents, and how many occurrences were found."""

    low: int
    high: int
    labels: int
    occurrences: int
    hits: int

    @property
    def recall(self) -> float:
        """The share of occurrences that were found; NaN where there are none.

        >>> FrequencyBand(0, 0, 5, 4, 1).recall
        0.25
        """
        return self.hits / self.occurrences if self.occurrences else float("nan")

    @property
    def name(self) -> str:
        """The range in words.

        >>> FrequencyBand(4, 7, 0, 0, 0).name
        '4–7'
        """
        return str(self.low) if self.low == self.high else f"{self.low:,}–{self.high:,}"


def frequency_bands(judged: Judged, frequencies: Any, *, k: int) -> list[FrequencyBand]:
    """Recall of the k best labels by how often labels occur in training: 0, 1, 2-3, 4-7, and so on.

    >>> from labelgrove.data.corpus import LabelIndex; from labelgrove.metrics.ranking import judge
    >>> from labelgrove.scores.predictions import Predictions
    >>> p = Predictions.from_scores([[0.9, 0.5]], k=1, index=LabelIndex("ab"))
    >>> [(b.name, b.recall) for b in frequency_bands(judge(p, [[1, 1]]), [3, 1], k=1)]
    [('1', 0.0), ('2–3', 1.0)]
    """
    counts = np.asarray(frequencies, dtype=np.int64)
    band_of = np.where(counts > 0, np.frexp(np.maximum(counts, 1))[1], 0)  # 0, then 1 + log2
    size = int(band_of.max(initial=0)) + 1
    labels = np.bincount(band_of, minlength=size)
    true = np.bincount(band_of[judged.truth.indices], minlength=size)
    true[0] += int(judged.unknown.sum())
    found = judged.hits & judged.counted(Metric("P", k=k))
    hits = np.bincount(band_of[judged.predictions.columns[found]], minlength=size)
    bounds = [(0, 0), *((2 ** (b - 1), 2**b - 1) for b in range(1, size))]
    return [
        FrequencyBand(*bounds[b], int(labels[b]), int(true[b]), int(hits[b]))
        for b in range(size)
        if labels[b] or true[b]
    ]


def tail_curve(frequencies: Any, *, points: int = 120) -> list[tuple[int, int]]:
    """(rank, training documents) of labels from the most to the least frequent, at a few ranks that
    lie evenly on a logarithmic scale; labels without documents are left out.

    >>> tail_curve([5, 0, 20])
    [(1, 20), (2, 5)]
    """
    counts = np.sort(np.asarray(frequencies, dtype=np.int64))[::-1]
    counts = counts[counts > 0]
    if not len(counts):
        return []
    ranks = np.unique(np.geomspace(1, len(counts), points).round().astype(np.int64))
    return [(int(rank), int(counts[rank - 1])) for rank in ranks]


def thinned(points: Sequence[Any], most: int = 300) -> list[Any]:
    """At most ``most`` of many points, the first and the last among them.

    >>> thinned([1, 2, 3, 4, 5], most=3)
    [1, 3, 5]
    """
    if len(points) <= most:
        return list(points)
    return [points[i] for i in np.linspace(0, len(points) - 1, most).round().astype(int)]
