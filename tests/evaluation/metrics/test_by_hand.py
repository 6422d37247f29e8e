"""One small case, worked out on paper."""

import math

import pytest
from scipy import sparse

from labelgrove.data.corpus import LabelIndex
from labelgrove.evaluation.metrics import Propensity, by_frequency, evaluate
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

# A = B = 1 and 1000 training documents: 1/p = 1 + (ln 1000 - 1) * 2 / (N_l + 1)
X = math.log(1000) - 1
W_UNSEEN = 1 + 2 * X
W_ONCE = 1 + X  # labels c and d occur once in training
W_THRICE = 1 + X / 2  # label a occurs three times
L3 = 1 / math.log2(3)  # discount of the second place; of the third: 1 / log2(4) = 1/2

BY_HAND = {
    "P@1": 1 / 3,  # only document 0's first place is right
    "P@3": (2 / 3 + 1 / 3 + 0) / 3,
    "R@1": (1 / 2 + 0 + 0) / 3,
    "R@3": (2 / 2 + 1 / 2 + 0) / 3,
    "RP@1": (1 / 1 + 0 + 0) / 3,
    "RP@3": (2 / 2 + 1 / 2 + 0) / 3,
    "nDCG@1": 1 / 3,
    # hits at places 1 and 3 of two labels; at place 2 of two labels, one of them unknown
    "nDCG@3": ((1 + 1 / 2) / (1 + L3) + L3 / (1 + L3) + 0) / 3,
    # P 2/3, R 1 -> 0.8; P 1/3, R 1/2 -> 0.4
    "F1@3": (0.8 + 0.4 + 0) / 3,
    # 3 hits, 3 + 3 + 1 predicted, 2 + 2 true
    "micro-P@3": 3 / 7,
    "micro-R@3": 3 / 4,
    "micro-F1@3": 2 * 3 / (7 + 4),
    # labels a, c, d occur; a is predicted twice and right once, c and d once and right
    "macro-P@3": (1 / 2 + 1 + 1) / 3,
    "macro-R@3": 1.0,
    "macro-F1@3": (2 / 3 + 1 + 1) / 3,
    "coverage@1": 1 / 3,
    "coverage@3": 1.0,
    # document 0's best single label is c; document 1's is the unknown one
    "PSP@1": W_THRICE / (W_ONCE + W_UNSEEN),
    "PSP@3": (W_THRICE + W_ONCE + W_ONCE) / (W_ONCE + W_THRICE + W_UNSEEN + W_ONCE),
    "PSnDCG@3": (W_THRICE + W_ONCE / 2 + W_ONCE * L3)
    / (W_ONCE + W_THRICE * L3 + W_UNSEEN + W_ONCE * L3),
    # at 0.5: document 0 keeps a b, document 1 b d, document 2 e; 2 hits of 5, 4 true
    "micro-P@t=0.5": 2 / 5,
    "micro-F1@t=0.5": 2 * 2 / (5 + 4),
    "F1@t=0.5": (2 * 1 / (2 + 2) + 2 * 1 / (2 + 2) + 0) / 3,
    # a: 1 of 1 predicted and right; c: never predicted; d: right
    "macro-F1@t=0.5": (1 + 0 + 1) / 3,
    # a score of 0.9 reaches a threshold of 0.9 although float32 stores a little less
    "micro-P@t=0.9": 1 / 1,
}


def test_every_metric_has_its_value_by_hand():
    ev = evaluate(
        PREDICTIONS,
        TRUTH,
        unknown=UNKNOWN,
        metrics=list(BY_HAND),
        train_frequencies=[3, 50, 1, 1, 200],
        n_train=1000,
        propensity=Propensity(a=1, b=1),
    )
    assert ev.values == pytest.approx(BY_HAND, abs=1e-12)
    assert list(ev) == list(BY_HAND)
    assert ev.n == 3


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
