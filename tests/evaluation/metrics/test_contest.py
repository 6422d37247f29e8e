"""Several runs at once: the numbers of evaluate, and intervals of differences."""

from itertools import combinations

import numpy as np
import pytest

from labelgrove import LabelIndex, Predictions
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics import compare_all, evaluate

INDEX = LabelIndex(map(str, range(8)))
NAMES = ["P@1", "P@3", "nDCG@3", "R@3", "micro-P@3", "PSP@3"]
TRAINING = {"train_frequencies": np.arange(8), "n_train": 40}


def runs(n, *helps, seed=0):
    rng = np.random.default_rng(seed)
    truth = (rng.random((n, 8)) < 0.3).astype(float)
    made = [
        Predictions.from_scores(rng.random((n, 8)) + help * truth, k=4, index=INDEX)
        for help in helps
    ]
    return truth, made


def test_values_and_intervals_are_those_of_evaluate_and_of_differences():
    truth, made = runs(60, 0.1, 0.3, 0.6)
    found = compare_all(made, truth, metrics=NAMES, intervals=40, **TRAINING)
    for run, evaluation in zip(made, found.evaluations, strict=True):
        alone = evaluate(run, truth, metrics=NAMES, intervals=40, **TRAINING)
        assert evaluation.values == alone.values
        for name in NAMES:
            np.testing.assert_allclose(evaluation.intervals[name], alone.intervals[name])
    assert list(found.pairs) == list(combinations(range(3), 2))
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 60, size=60) for _ in range(40)]
    drawn = [
        [evaluate(run.of_rows(d), truth[d], metrics=["R@3"])["R@3"] for d in draws] for run in made
    ]
    for (i, j), pair in found.pairs.items():
        assert (pair.first, pair.second) == (found.evaluations[j], found.evaluations[i])
        for name in NAMES:
            assert pair.differences[name] == pair.second[name] - pair.first[name]
        expected = np.quantile(np.subtract(drawn[i], drawn[j]), [0.025, 0.975])
        np.testing.assert_allclose(pair.intervals["R@3"], expected)


def test_pairing_sees_a_small_but_steady_gain():
    # The better run is right wherever the other is, and on 15 of 300 more documents. Pairing leaves
    # only those to vary; two separate intervals would overlap by far.
    truth, right = np.eye(8)[np.zeros(300, int)], np.arange(300) % 2 == 0
    hits = right | (np.arange(300) % 20 == 1), right
    answers = [np.outer(np.where(hit, 1.0, -1.0), np.eye(8)[0]) for hit in hits]
    made = [Predictions.from_scores(scores, k=1, index=INDEX) for scores in answers]
    found = compare_all(made, truth, metrics=["P@1"], intervals=500)
    pair = found.pairs[0, 1]
    low, high = pair.intervals["P@1"]
    assert pair.differences["P@1"] == pytest.approx(0.05)
    assert 0.02 < low < 0.05 < high < 0.08
    assert pair.first.intervals["P@1"].high > pair.second.intervals["P@1"].low


def test_what_is_equal_or_cannot_be_compared():
    truth, made = runs(30, 0.5)
    pair = compare_all([*made, *made], truth, metrics=NAMES[:4], intervals=5).pairs[0, 1]
    assert set(pair.differences.values()) == {0.0}

    truth, made = runs(10, 0.5, 0.5)
    with pytest.raises(ConfigError, match="an average over labels"):
        compare_all(made, truth, metrics=["macro-F1@3"])
    pytest.raises(ConfigError, compare_all, [], truth, metrics=["P@1"]).match("at least one run")
