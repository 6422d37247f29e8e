"""Variety in lists: later labels of a cluster lose score, and only those."""

import numpy as np

from labelgrove import LabelIndex
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.requests import diversify

CLUSTERS = np.array([0, 0, 1, 1], np.int32)
SCORES = np.array([[0.9, 0.8, 0.5, 0.4], [0.1, 0.6, 0.7, 0.2]])


def predicted():
    return Predictions.from_scores(SCORES, k=4, index=LabelIndex("abcd"))


def test_later_labels_of_a_cluster_are_multiplied_down():
    diverse = diversify(predicted(), CLUSTERS, 0.5)
    assert diverse.names() == [["a", "c", "b", "d"], ["c", "b", "d", "a"]]
    np.testing.assert_allclose(diverse.scores, [[0.9, 0.5, 0.4, 0.2], [0.7, 0.6, 0.1, 0.05]])
    assert diverse.score_kind == "product"


def test_none_and_full_strength():
    same = diversify(predicted(), CLUSTERS, 0.0)
    assert same.names() == predicted().names()
    assert np.array_equal(same.scores, predicted().scores)
    diverse = diversify(predicted(), CLUSTERS, 1.0)
    assert [row[:2] for row in diverse.names()] == [["a", "c"], ["c", "b"]]
    assert (diverse.scores[:, 2:] == 0).all()


def test_padding_stays_at_the_end():
    short = predicted().above(0.45)
    diverse = diversify(short, CLUSTERS, 0.5)
    assert diverse.counts.tolist() == [3, 2]
    assert diverse.names() == [["a", "c", "b"], ["c", "b"]]
    assert diverse.columns[0, 3] == -1 and diverse.scores[0, 3] == -np.inf
