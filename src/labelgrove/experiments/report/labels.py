"""What a report shows beyond metrics: each label by itself, the most wrong documents, scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import Bools, Float64, Int64, entry_rows
from labelgrove.core.jsonio import JsonObject
from labelgrove.evaluation.metrics import LabelScores, by_label
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import Judged, ranking_measure


@dataclass(frozen=True)
class ReportLabels:
    """Labels that are true or predicted in the evaluated documents, the most frequent first.

    ``columns`` are those in the index. ``partners`` are the rows of the labels that the subject
    confuses them with in the most documents (``confusions``), -1 for none.
    """

    columns: Int64
    scores: tuple[LabelScores, ...]
    partners: Int64
    confusions: Int64

    def __len__(self) -> int:
        return len(self.columns)


def label_table(judged: Sequence[Judged], *, k: int) -> ReportLabels:
    """The table over the k best labels of each run; the first run is the subject."""
    metric = Metric("P", k=k)
    scores = [by_label(one, metric) for one in judged]
    occurs = scores[0].true + sum(one.predicted for one in scores) > 0
    columns = np.flatnonzero(occurs)
    columns = columns[np.argsort(-scores[0].true[columns], kind="stable")]
    row_of = np.full(len(occurs), -1, np.int64)
    row_of[columns] = np.arange(len(columns))

    subject = judged[0]
    counted = subject.counted(metric)
    missed_in, missed = missed_labels(subject, k)
    wrong = counted & ~subject.hits
    wrong_in, wrongly = np.nonzero(wrong)[0], subject.predictions.columns[wrong]
    partners, confusions = _confused(
        (missed_in, row_of[missed]), (wrong_in, row_of[wrongly]), len(columns)
    )
    return ReportLabels(
        columns,
        tuple(LabelScores(s.true[columns], s.predicted[columns], s.hits[columns]) for s in scores),
        partners,
        confusions,
    )


def _confused(
    missed: tuple[Int64, Int64], wrong: tuple[Int64, Int64], labels: int
) -> tuple[Int64, Int64]:
    """For each label the one that it is confused with in the most documents, and in how many.

    Two labels are confused in a document if one is missed and the other wrongly predicted. Of
    equals, the label with fewer errors is the partner: it is the more telling one.
    """
    rows, true = missed
    wrong_rows, predicted = wrong  # both in the order of the documents
    wrong_places, missed_places = equal_pairs(wrong_rows, rows)
    left, right = true[missed_places], predicted[wrong_places]
    keys = np.concatenate([left * labels + right, right * labels + left])
    pairs, counts = np.unique(keys, return_counts=True)
    one, other = np.divmod(pairs, max(labels, 1))
    errors = np.bincount(true, minlength=labels) + np.bincount(predicted, minlength=labels)
    order = np.lexsort((other, errors[other], -counts, one))
    one, other, counts = one[order], other[order], counts[order]
    begins = np.flatnonzero(np.diff(one, prepend=-1))
    partners, confusions = np.full(labels, -1, np.int64), np.zeros(labels, np.int64)
    partners[one[begins]] = other[begins]
    confusions[one[begins]] = counts[begins]
    return partners, confusions


def as_json(table: ReportLabels, data: JsonObject) -> str:
    """The table for the page's script, without characters that end a script or a string there."""
    data = data | {
        "support": table.scores[0].true.tolist(),
        "runs": [
            {"predicted": s.predicted.tolist(), "hits": s.hits.tolist()} for s in table.scores
        ],
        "partners": table.partners.tolist(),
        "confusions": table.confusions.tolist(),
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def best_scores(judged: Judged, *, k: int) -> tuple[Float64, Bools] | None:
    """The k best labels' scores and which are right; None if they cannot be probabilities."""
    counted = judged.counted(Metric("P", k=k))
    scores = judged.predictions.scores[counted].astype(np.float64)
    if judged.predictions.score_kind == "margin" or not len(scores):
        return None
    if not (scores.min() >= 0 and scores.max() <= 1 + 1e-6):
        return None
    return np.minimum(scores, 1.0), judged.hits[counted]


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
