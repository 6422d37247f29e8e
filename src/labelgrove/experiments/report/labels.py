"""What a report shows beyond metrics: each label by itself, the most wrong documents, scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import Array, Bools, Float64, Int64, entry_rows
from labelgrove.core.jsonio import JsonObject
from labelgrove.evaluation.metrics import LabelScores, by_label
from labelgrove.evaluation.metrics.names import Metric
from labelgrove.evaluation.metrics.ranking import Judged, ranking_measure

EXAMPLES = 3


class Example(NamedTuple):
    """A document (its row) with a wrong label: missed, or predicted though it is not true."""

    row: int
    missed: bool


@dataclass(frozen=True)
class ReportLabels:
    """Labels that are true or predicted in the evaluated documents, the most frequent first.

    ``columns`` are those in the index. ``partners`` are the rows of the labels that the subject
    confuses them with in the most documents (``confusions``), -1 for none. ``right`` and ``wrong``
    are up to three documents each.
    """

    columns: Int64
    scores: tuple[LabelScores, ...]
    partners: Int64
    confusions: Int64
    right: list[list[int]]
    wrong: list[list[Example]]

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
    hits = counted & subject.hits
    right_in, right = np.nonzero(hits)[0], row_of[subject.predictions.columns[hits]]
    best = _first_of_each(right, right_in, -subject.predictions.scores[hits])
    misses = _first_of_each(row_of[missed], missed_in, missed_in)
    alarms = _first_of_each(row_of[wrongly], wrong_in, -subject.predictions.scores[wrong])
    errors = [
        # Missed and wrongly predicted documents take turns.
        [e for turn in zip_longest(misses_of, alarms_of) for e in turn if e][:EXAMPLES]
        for misses_of, alarms_of in zip(
            ([Example(row, True) for row in rows] for rows in _lists(misses, len(columns))),
            ([Example(row, False) for row in rows] for rows in _lists(alarms, len(columns))),
            strict=True,
        )
    ]
    return ReportLabels(
        columns,
        tuple(LabelScores(s.true[columns], s.predicted[columns], s.hits[columns]) for s in scores),
        partners,
        confusions,
        _lists(best, len(columns)),
        errors,
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


def _first_of_each(labels: Int64, documents: Int64, order: Array) -> tuple[Int64, Int64]:
    """The first few documents of every label, by ``order``: (label, document), sorted by label."""
    order = np.lexsort((documents, order, labels))
    labels, documents = labels[order], documents[order]
    begins = np.searchsorted(labels, labels)
    chosen = np.arange(len(labels)) - begins < EXAMPLES
    return labels[chosen], documents[chosen]


def _lists(pairs: tuple[Int64, Int64], labels: int) -> list[list[int]]:
    ends = np.cumsum(np.bincount(pairs[0], minlength=labels)).tolist()
    documents = pairs[1].tolist()
    return [documents[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def as_json(table: ReportLabels, data: JsonObject, describe: Callable[[int], list[str]]) -> str:
    """The table for the page's script, without characters that end a script or a string there.

    ``describe`` says what the page shows of a document, which is in it once.
    """
    rows = sorted(
        {row for one in table.right for row in one} | {e.row for one in table.wrong for e in one}
    )
    place = {row: number for number, row in enumerate(rows)}
    data = data | {
        "support": table.scores[0].true.tolist(),
        "runs": [
            {"predicted": s.predicted.tolist(), "hits": s.hits.tolist()} for s in table.scores
        ],
        "partners": table.partners.tolist(),
        "confusions": table.confusions.tolist(),
        "right": [[place[row] for row in one] for one in table.right],
        # Odd numbers are missed labels.
        "wrong": [[2 * place[e.row] + e.missed for e in one] for one in table.wrong],
        "documents": [describe(row) for row in rows],
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
