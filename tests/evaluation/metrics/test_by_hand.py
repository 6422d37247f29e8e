"""Bins and filtered pairs of one small case, worked out on paper."""

import math

import pytest
from scipy import sparse

from labelgrove.data.corpus import LabelIndex
from labelgrove.evaluation.metrics import by_frequency, evaluate
from labelgrove.evaluation.predictions import Predictions

# document   predicted        true          further labels without a column
#        0   a b c            a c           0
#        1   b d a            d             1
#        2   e                (none)        0
INDEX = LabelIndex("abcde")
SCORES = sparse.csr_array(
    [[0.9, 0.6, 0.3, 0.0, 0.0], [0.2, 0.8, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 0.7]]
)
PREDICTIONS = Predictions.from_csr(SCORES, k=3, index=INDEX)
TRUTH = sparse.csr_array([[1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
UNKNOWN = [0, 1, 0]
L3 = 1 / math.log2(3)  # discount of the second place


def test_bins_by_hand():
    # a is head, b torso, c and d tail, e unseen; hits: a and c in document 0, d in document 1
    rows = {
        row.name: row
        for row in by_frequency(
            PREDICTIONS, TRUTH, unknown=UNKNOWN, train_frequencies=[101, 100, 10, 1, 0], k=3
        )
    }
    assert [(r.labels, r.occurrences, r.hits) for r in rows.values()] == [
        (1, 1, 1),
        (1, 0, 0),
        (2, 2, 2),
        (1, 1, 0),  # the occurrence is document 1's unknown label
    ]
    assert rows["tail"].precision_share == pytest.approx(2 / 9)
    assert rows["tail"].recall == 1.0
    assert rows["unseen"].recall == 0.0
    assert math.isnan(rows["torso"].recall)


def test_filter_pairs_move_the_next_label_up_and_keep_the_truth():
    # Without (0, a) document 0 predicts b c: c moves to place 2, and a stays a label to find.
    ev = evaluate(
        PREDICTIONS, TRUTH, metrics=["P@1", "R@2", "nDCG@2"], filter_pairs=[(0, 0), (2, 1)]
    )
    assert ev["P@1"] == 0
    assert ev["R@2"] == pytest.approx((1 / 2 + 1 / 1 + 0) / 3)
    assert ev["nDCG@2"] == pytest.approx((L3 / (1 + L3) + L3 / 1 + 0) / 3)
    assert "the filter removed 1 predicted labels" in ev.notes
