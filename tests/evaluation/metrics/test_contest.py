"""Several runs at once: the numbers of evaluate, and tests that keep their promise."""

from itertools import combinations, product

import numpy as np
import pytest

import labelgrove.evaluation.metrics.contest as contest
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


def test_p_is_that_of_all_swaps(monkeypatch):
    """Eight documents: every swap can be tried, and random ones come close to that."""
    truth, made = runs(8, 0.2, 0.5, seed=5)
    monkeypatch.setattr(contest, "FLIPS", 20_000)
    found = compare_all(made, truth, metrics=["nDCG@3", "micro-P@3"], intervals=5)
    first, second = made
    for name, p in found.pairs[0, 1].p.items():
        differences = []
        for swaps in product([False, True], repeat=8):
            swap = np.array(swaps)[:, None]
            mixed = [
                Predictions(
                    np.where(swap, b.columns, a.columns),
                    np.where(swap, b.scores, a.scores),
                    np.where(swap[:, 0], b.counts, a.counts),
                    INDEX,
                )
                for a, b in ((first, second), (second, first))
            ]
            values = [evaluate(run, truth, metrics=[name])[name] for run in mixed]
            differences.append(abs(values[0] - values[1]))
        exact = np.mean(np.array(differences) >= differences[0] - 1e-12)
        assert 0.01 < exact < 0.9  # the example is one where p is neither nothing nor all
        assert p == pytest.approx(exact, abs=0.02)


def test_equal_runs_differ_by_chance_alone(monkeypatch):
    monkeypatch.setattr(contest, "FLIPS", 200)
    p = [
        compare_all(made, truth, metrics=["nDCG@3"], intervals=1).pairs[0, 1].p["nDCG@3"]
        for truth, made in (runs(40, 0.3, 0.3, seed=seed) for seed in range(200))
    ]
    assert 0.05 < np.mean(np.array(p) < 0.1) < 0.16
    assert 0.4 < np.median(p) < 0.6


def test_p_is_adjusted_for_the_number_of_pairs():
    truth, made = runs(200, 0.2, 0.2, 0.22, 0.9)
    alone = compare_all(made[:2], truth, metrics=["P@3"], intervals=1).pairs[0, 1].p["P@3"]
    among = compare_all(made, truth, metrics=["P@3"], intervals=1).pairs
    assert among[0, 1].p["P@3"] >= alone
    assert max(pair.p["P@3"] for pair in among.values()) <= 1
    p = np.array([[0.01], [0.04], [0.03], [np.nan]])
    np.testing.assert_allclose(contest._holm(p)[:, 0], [0.04, 0.09, 0.09, np.nan])


def test_blocks_do_not_change_p(monkeypatch):
    truth, made = runs(50, 0.2, 0.5)
    whole = compare_all(made, truth, metrics=["R@3"], intervals=1).pairs[0, 1].p
    monkeypatch.setattr(contest, "_SIGNS_AT_ONCE", 350)
    parts = compare_all(made, truth, metrics=["R@3"], intervals=1).pairs[0, 1].p
    assert whole == parts


def test_what_is_equal_or_cannot_be_compared():
    truth, made = runs(30, 0.5)
    pair = compare_all([*made, *made], truth, metrics=NAMES[:4], intervals=5).pairs[0, 1]
    assert set(pair.differences.values()) == {0.0} and set(pair.p.values()) == {1.0}

    truth, made = runs(10, 0.5, 0.5)
    with pytest.raises(ConfigError, match="an average over labels"):
        compare_all(made, truth, metrics=["macro-F1@3"])
    pytest.raises(ConfigError, compare_all, [], truth, metrics=["P@1"]).match("at least one run")
