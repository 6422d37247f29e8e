"""Scores per label: counted by hand, and their mean is the macro average."""

import numpy as np
import pytest

from labelgrove import LabelIndex, Predictions
from labelgrove.evaluation.metrics import Metric, by_label, evaluate
from labelgrove.evaluation.metrics.ranking import judge


def test_scores_are_those_counted_by_hand():
    index = LabelIndex("abcd")
    p = Predictions.from_scores([[3, 2, 0, 0], [3, 0, 2, 0], [0, 3, 2, 0]], k=2, index=index)
    truth = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]]
    scores = by_label(judge(p, truth), Metric("P", k=2))
    assert scores.true.tolist() == [2, 2, 1, 0]
    assert scores.predicted.tolist() == [2, 2, 2, 0]
    assert scores.hits.tolist() == [2, 1, 1, 0]
    np.testing.assert_allclose(scores.precision, [1, 0.5, 0.5, np.nan])
    np.testing.assert_allclose(scores.recall, [1, 0.5, 1, np.nan])
    np.testing.assert_allclose(scores.f1, [1, 0.5, 2 / 3, np.nan])
    assert by_label(judge(p, truth), Metric("P", k=1)).predicted.tolist() == [2, 1, 0, 0]


@pytest.mark.parametrize("k", [1, 3, 9])
def test_their_means_are_the_macro_averages(k):
    rng = np.random.default_rng(k)
    truth = rng.random((50, 12)) < 0.2
    truth[:, 5] = False
    index = LabelIndex(map(str, range(12)))
    p = Predictions.from_scores(rng.random((50, 12)) + truth / 2, k=5, index=index)
    scores = by_label(judge(p, truth), Metric("P", k=k))
    occurs = scores.true > 0
    names = [f"macro-{family}@{k}" for family in ("P", "R", "F1")]
    macro = evaluate(p, truth, metrics=names)
    means = [np.nan_to_num(s)[occurs].mean() for s in (scores.precision, scores.recall, scores.f1)]
    np.testing.assert_allclose([macro[name] for name in names], means)
