import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.errors import ConfigError
from labelgrove.evaluation.calibration import (
    best_threshold,
    check_target,
    expected_sizes,
    macro_thresholds,
)

pairs = st.lists(
    st.tuples(st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.7, 0.95]), st.booleans()), min_size=1
)


def f1_at(scores, hits, true, threshold):
    given = scores >= threshold
    return 2 * (hits & given).sum() / (given.sum() + max(true, 1))


def precision_at(scores, hits, threshold):
    given = scores >= threshold
    return (hits & given).sum() / max(given.sum(), 1)


@settings(max_examples=150)
@given(pairs, st.integers(0, 5))
def test_no_threshold_has_a_better_f1(rows, missed):
    scores, hits = (np.array(part) for part in zip(*rows, strict=True))
    true = int(hits.sum()) + missed
    chosen = best_threshold(scores, hits, true, "micro-F1")
    assert chosen == best_threshold(scores, hits, true, "f1")  # the older name
    tried = [f1_at(scores, hits, true, t) for t in np.unique(scores)]
    assert f1_at(scores, hits, true, chosen) == pytest.approx(max(tried))


@settings(max_examples=150)
@given(pairs, st.floats(0.05, 1.0))
def test_a_wanted_precision_is_reached_with_as_many_labels_as_possible(rows, wanted):
    scores, hits = (np.array(part) for part in zip(*rows, strict=True))
    chosen = best_threshold(scores, hits, int(hits.sum()), wanted)
    tried = {t: precision_at(scores, hits, t) for t in np.unique(scores)}
    enough = [t for t, precision in tried.items() if precision >= wanted]
    if enough:
        assert (scores >= chosen).sum() == (scores >= min(enough)).sum()
    else:
        assert precision_at(scores, hits, chosen) == max(tried.values())


entries = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from([0.05, 0.1, 0.3, 0.5, 0.9]), st.booleans()),
    min_size=1,
)


def mean_f1(columns, scores, hits, true, thresholds):
    """Literally: label by label, those with documents alone."""
    values = []
    for label in np.flatnonzero(true):
        given = (columns == label) & (scores >= thresholds[label])
        values.append(2 * (hits & given).sum() / (given.sum() + true[label]))
    return np.mean(values) if values else 0.0


@settings(max_examples=150)
@given(entries, st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_no_threshold_has_a_better_mean_f1_over_labels(rows, missed):
    columns, scores, hits = (np.array(part) for part in zip(*rows, strict=True))
    columns = columns.astype(np.int32)
    true = np.bincount(columns[hits], minlength=5) + np.array(missed)
    bins = np.array([0, 0, 1, 1, 2])
    shared, binned = macro_thresholds(columns, scores, hits, true, bins, fewest=0)

    def at(thresholds):
        return mean_f1(columns, scores, hits, true, thresholds)

    every = np.unique(scores)
    assert at([shared] * 5) == pytest.approx(max(at([t] * 5) for t in every))
    combinations = itertools.product(every, repeat=3)
    assert at(binned) == pytest.approx(max(at(np.array(each)[bins]) for each in combinations))


def test_a_bin_with_few_hits_has_the_common_threshold():
    columns = np.array([0, 0, 1, 1], np.int32)
    scores, hits = np.array([0.9, 0.2, 0.6, 0.5]), np.array([True, False, False, True])
    true, bins = np.array([1, 1]), np.array([0, 1])
    shared, binned = macro_thresholds(columns, scores, hits, true, bins, fewest=2)
    assert binned.tolist() == pytest.approx([shared, shared])
    shared, binned = macro_thresholds(columns, scores, hits, true, bins, fewest=1)
    assert binned.tolist() == pytest.approx([0.55, 0.25])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_no_other_number_of_labels_has_a_better_expected_f1(probabilities):
    row = sorted(probabilities, reverse=True)
    (size,) = expected_sizes(np.array([row]))
    expected = [2 * sum(row[:m]) / (m + sum(row)) for m in range(1, len(row) + 1)]
    assert expected[size - 1] == pytest.approx(max(expected))


def test_targets_are_checked_and_without_any_label_the_threshold_is_zero():
    for target in ("recall", "macro-f1", "F1", 0, 1.1, True, None):
        pytest.raises(ConfigError, check_target, target).match("target: must be")
    assert best_threshold(np.zeros(0), np.zeros(0, bool), 0, "f1") == 0.0
