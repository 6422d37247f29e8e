"""Findings beside slow twins that count with loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.data.corpus import LabelIndex
from labelgrove.evaluation.metrics.ranking import Judged, judge
from labelgrove.evaluation.predictions import Predictions
from labelgrove.experiments.report.findings import (
    best_scores,
    frequency_bands,
    missed_labels,
    most_wrong,
    sibling_confusion,
    tail_curve,
    thinned,
)
from labelgrove.labels.tree import LabelTree
from support.judgements import LABELS, best, judgements, true


@given(judgements(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_missed_labels_are_those_that_are_not_among_the_best(judged: Judged, k: int) -> None:
    rows, columns = missed_labels(judged, k)
    expected = [
        (row, label)
        for row in range(len(judged))
        for label in true(judged, row)
        if label not in best(judged, row, k)
    ]
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


@given(judgements(), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_sibling_confusion_counts_what_loops_count(judged: Judged, k: int) -> None:
    tree = LabelTree([[0, 0, 0], [0, 0, 1, 1, 1, 2, 2]], [3, 1, 0, 6, 2, 5, 4])
    leaf = {int(c): int(p) for c, p in zip(tree.leaf_labels, tree.parents[-1], strict=True)}
    pairs: dict[tuple[int, int], int] = {}
    wrong_ranks = beside = 0
    for row in range(len(judged)):
        missed = [c for c in true(judged, row) if c not in best(judged, row, k)]
        for label in best(judged, row, k):
            if label in true(judged, row):
                continue
            wrong_ranks += 1
            siblings = [c for c in missed if leaf[c] == leaf[label]]
            beside += bool(siblings)
            for sibling in siblings:
                pairs[sibling, label] = pairs.get((sibling, label), 0) + 1
    result = sibling_confusion(judged, tree, k=k, most=1000)
    assert {(p.true, p.predicted): p.documents for p in result.pairs} == pairs
    assert (result.wrong, result.beside_missed, result.leaves) == (wrong_ranks, beside, 3)
    counts = [pair.documents for pair in result.pairs]
    assert counts == sorted(counts, reverse=True)
    assert len(sibling_confusion(judged, tree, k=k, most=1).pairs) == min(1, len(pairs))


def test_labels_that_only_other_runs_know_have_no_siblings() -> None:
    tree = LabelTree([[0, 0]], [0, 1])
    p = Predictions.from_scores([[0.1, 0.2, 0.9]], k=1, index=LabelIndex("abz"))
    result = sibling_confusion(judge(p, [[1, 0, 0]]), tree, k=1)
    assert (result.pairs, result.wrong) == ((), 1)


def test_scores_of_the_best_labels_are_taken_for_probabilities_if_they_can_be() -> None:
    index = LabelIndex("ab")
    p = Predictions.from_scores([[0.25, 0.5], [1 + 1e-7, 0.125]], k=2, index=index)
    found = best_scores(judge(p, [[1, 0], [0, 1]]), k=1)
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([0.5, 1.0], [False, False])
    for outside in (-0.5, 1.5):
        p = Predictions.from_scores([[outside, 0.5]], k=2, index=index)
        assert best_scores(judge(p, [[1, 0]]), k=2) is None
    margins = Predictions.from_scores([[0.5, 0]], k=1, index=index, score_kind="margin")
    assert best_scores(judge(margins, [[1, 0]]), k=1) is None


@given(judgements(), st.lists(st.integers(0, 40), min_size=LABELS, max_size=LABELS))
@settings(max_examples=60, deadline=None)
def test_frequency_bands_add_up(judged: Judged, frequencies: list[int]) -> None:
    bands = frequency_bands(judged, np.array(frequencies), k=3)
    for band in bands:
        low, high = (int(end) for end in (band.name.split("–") * 2)[:2])
        inside = [c for c in range(LABELS) if low <= frequencies[c] <= high]
        occurrences = sum(c in inside for row in range(len(judged)) for c in true(judged, row))
        hits = sum(
            c in inside and c in true(judged, row)
            for row in range(len(judged))
            for c in best(judged, row, 3)
        )
        unknown = int(judged.unknown.sum()) if low == 0 else 0
        assert (band.labels, band.occurrences, band.hits) == (
            len(inside),
            occurrences + unknown,
            hits,
        )
    assert sum(band.labels for band in bands) == LABELS
    assert sum(band.occurrences for band in bands) == judged.sizes.sum()


@given(judgements())
@settings(max_examples=60, deadline=None)
def test_most_wrong_documents_come_first_and_right_ones_never(judged: Judged) -> None:
    result = most_wrong(judged, k=3, most=100)
    values = [document.ndcg for document in result]
    assert values == sorted(values)
    rows = {document.row for document in result}
    for row in range(len(judged)):
        size = int(judged.sizes[row])
        places = judged.hits[row, : min(3, size)]
        perfect = len(places) == min(3, size) and bool(places.all())
        assert (row in rows) == (size > 0 and not perfect)
    for document in result:
        expected = [c for c in true(judged, document.row) if c not in best(judged, document.row, 3)]
        assert list(document.missed) == expected


def test_among_equally_wrong_documents_the_most_confident_comes_first() -> None:
    p = Predictions.from_scores([[0.3, 0], [0.9, 0], [0, 1]], k=1, index=LabelIndex("ab"))
    assert [d.row for d in most_wrong(judge(p, [[0, 1]] * 3), k=1)] == [1, 0]


def test_bands_have_names_and_recall() -> None:
    p = Predictions.from_scores([[0.9, 0.5, 0.1]], k=1, index=LabelIndex("abc"))
    bands = frequency_bands(judge(p, [[1, 1, 0]]), np.array([7, 1, 0]), k=1)
    assert [band.name for band in bands] == ["0", "1", "4–7"]
    assert np.isnan(bands[0].recall) and [band.recall for band in bands[1:]] == [0, 1]


def test_tail_curve_is_short_for_any_number_of_labels() -> None:
    curve = tail_curve(np.arange(300_000), points=50)
    assert len(curve) <= 50
    assert curve[0] == (1, 299_999) and curve[-1] == (299_999, 1)
    assert tail_curve(np.array([0, 0])) == []


def test_thinned_keeps_both_ends() -> None:
    assert thinned(range(1000), 10)[0] == 0 and thinned(range(1000), 10)[-1] == 999
    assert len(thinned(range(1000), 10)) == 10
