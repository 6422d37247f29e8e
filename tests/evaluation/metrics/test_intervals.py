import math

import numpy as np
import pytest

from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics import Propensity, evaluate
from labelgrove.evaluation.metrics.measures import Ratio, bootstrap, interval, mean
from labelgrove.evaluation.metrics.names import parse_metric
from labelgrove.evaluation.metrics.ranking import judge, per_label_measure
from labelgrove.evaluation.predictions import Predictions
from reference import metrics as reference

LABELS = 12
INDEX = LabelIndex([str(i) for i in range(LABELS)])


def case(n, seed):
    rng = np.random.default_rng(seed)
    truth = rng.random((n, LABELS)) < 0.2
    scores = rng.random((n, LABELS)) + 0.4 * truth
    return predictions_of(scores), truth.astype(np.float32), rng.integers(0, 2, n)


def predictions_of(scores):
    return Predictions.from_scores(scores, k=5, index=INDEX)


def test_every_draw_is_the_metric_of_the_documents_drawn():
    n, times, k = 15, 20, 3
    p, truth, unknown = case(n, 0)
    frequency = list(range(LABELS))
    rng = np.random.default_rng(5)
    draws = [rng.integers(0, n, size=n) for _ in range(times)]
    ranked = p.columns.tolist()
    true = [set(np.flatnonzero(row).tolist()) for row in truth]
    expected = []
    for draw in draws:
        args = ([ranked[i] for i in draw], [true[i] for i in draw], unknown[draw].tolist(), k)
        expected.append(
            [
                reference.precision(*args),
                reference.ndcg(*args),
                reference.psp(*args, frequency, 100, 0.55, 1.5, discounted=False),
                reference.micro(*args)[2],
            ]
        )
    names = ["P@3", "nDCG@3", "PSP@3", "micro-F1@3"]
    ev = evaluate(
        p,
        truth,
        unknown=unknown,
        metrics=names,
        train_frequencies=frequency,
        n_train=100,
        propensity=Propensity(),
        intervals=times,
        level=0.8,
        seed=5,
    )
    low, high = np.quantile(expected, [0.1, 0.9], axis=0)
    for i, name in enumerate(names):
        assert ev.intervals[name] == pytest.approx((low[i], high[i]))


def test_seed_decides_and_blocks_do_not(monkeypatch):
    p, truth, _ = case(40, 1)
    a, b, c = (
        evaluate(p, truth, metrics=["P@1", "nDCG@5"], intervals=50, seed=seed).intervals
        for seed in (1, 1, 2)
    )
    assert a == b != c
    for weights in (40 * 7, 1):
        monkeypatch.setattr("labelgrove.evaluation.metrics.measures._WEIGHTS_AT_ONCE", weights)
        d = evaluate(p, truth, metrics=["P@1", "nDCG@5"], intervals=50, seed=1).intervals
        assert d["P@1"] == pytest.approx(a["P@1"])
        assert d["nDCG@5"] == pytest.approx(a["nDCG@5"])


def test_width_is_that_of_the_normal_approximation():
    hits = (np.arange(2000) % 4 == 0).astype(float)
    low, high = interval(bootstrap([mean(hits)], 2000, times=2000, seed=0)[:, 0])
    error = math.sqrt(0.25 * 0.75 / 2000)
    assert low == pytest.approx(0.25 - 1.96 * error, abs=0.002)
    assert high == pytest.approx(0.25 + 1.96 * error, abs=0.002)
    sizes = np.random.default_rng(0).random(30)
    draws = bootstrap([Ratio(sizes / 2, sizes)], 30, times=50, seed=0)
    np.testing.assert_allclose(draws, 0.5)


def test_averages_over_labels_have_no_interval_and_undefined_draws_are_left_out():
    p, truth, _ = case(10, 2)
    ev = evaluate(p, truth, metrics=["coverage@5", "macro-F1@5", "P@5"], intervals=10)
    assert list(ev.intervals) == ["P@5"]
    draws = bootstrap([Ratio(np.array([1.0, 0, 0]), np.array([1.0, 0, 0]))], 3, times=50, seed=0)
    assert np.isnan(draws).any()
    assert interval(draws[:, 0]) == (1.0, 1.0)
    assert all(math.isnan(bound) for bound in interval(np.array([math.nan])))
    pytest.raises(ConfigError, interval, np.ones(3), level=95).match("level")
    p, truth, _ = case(3, 3)
    measure = per_label_measure(judge(p, truth * 0), parse_metric("macro-F1@5"))
    assert math.isnan(measure.value())

    p, truth, _ = case(10, 2)
    ev = evaluate(p, truth, metrics=["P@1"], intervals=10)
    low, high = ev.intervals["P@1"]
    assert f"{100 * ev['P@1']:.2f} [{100 * low:.2f}, {100 * high:.2f}]" in ev.table()
    assert ev.to_dict()["intervals"] == {"P@1": [low, high]}
