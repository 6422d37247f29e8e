import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.calibrating.thresholds import DRAWN, best_threshold, check_target, label_thresholds
from labelgrove.errors import ConfigError

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
    chosen = best_threshold(scores, hits, true, "f1")
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


def test_labels_with_few_documents_have_no_threshold_of_their_own():
    columns = np.array([0] * 4 + [1] * 2, np.int32)
    scores = np.array([0.9, 0.8, 0.3, 0.2, 0.5, 0.4])
    hits = np.array([True, True, False, False, True, False])
    true = np.array([2, 1, 5])
    found = label_thresholds(columns, scores, hits, true, "f1", shared=0.3, fewest=2)
    assert found[0] == pytest.approx((2 * 0.55 + DRAWN * 0.3) / (2 + DRAWN))
    assert np.isnan(found[1]) and np.isnan(found[2])  # label 2 was never predicted


@pytest.mark.parametrize("target", ["recall", 0, 1.1, True, None])
def test_targets_are_checked(target):
    with pytest.raises(ConfigError, match="target: must be"):
        check_target(target)


def test_without_any_label_the_threshold_is_zero():
    assert best_threshold(np.zeros(0), np.zeros(0, bool), 0, "f1") == 0.0
