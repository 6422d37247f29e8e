import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from labelgrove.errors import DataError
from labelgrove.evaluation.curves import Curve, Scale, equal_mass, fit_curve, reliability

# Planted truths: how likely a label with score s really is. All but the first two leave the family
# of beta curves.
TRUTHS = {
    "right already": lambda s: s,
    "overconfident": lambda s: expit(0.5 * np.log(s / (1 - s)) - 1.5),
    "square": lambda s: s**2,
    "bent": lambda s: np.where(s < 0.6, s / 3, 0.2 + 1.5 * (s - 0.6)),
}


def planted(truth, n, seed):
    random = np.random.default_rng(seed)
    scores = np.clip(random.beta(0.5, 1.0, n), 1e-6, 1 - 1e-6)
    probabilities = truth(scores)
    return scores, random.random(n) < probabilities, probabilities


@pytest.mark.parametrize("kind", ["isotonic", "beta"])
@pytest.mark.parametrize("name", list(TRUTHS))
def test_planted_probabilities_are_found_again(name, kind):
    scores, hits, _ = planted(TRUTHS[name], 20_000, seed=1)
    curve = fit_curve(scores, hits, kind)
    fresh, outcomes, probabilities = planted(TRUTHS[name], 20_000, seed=2)
    before, after = reliability(fresh, outcomes), reliability(curve(fresh), outcomes)
    bound = 0.03 if (name, kind) == ("bent", "beta") else 0.012
    assert after.ece < bound
    assert np.abs(curve(fresh) - probabilities).mean() < bound
    if name != "right already":
        assert before.ece > 0.08


@pytest.mark.parametrize("kind", ["isotonic", "beta"])
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 400), ties=st.booleans())
def test_curves_rise_strictly_and_stay_inside(kind, seed, n, ties):
    random = np.random.default_rng(seed)
    scores = random.choice([0.0, 0.2, 0.9, 1.0], n) if ties else random.random(n)
    curve = fit_curve(scores, random.random(n) < random.random(), kind)
    grid = np.linspace(0, 1, 101)
    found = curve(grid)
    assert ((found >= 0) & (found <= 1)).all()
    assert (np.diff(found) >= 0).all()
    inside = (found > 1e-9) & (found < 1 - 1e-9)  # beta curves of few pairs run out of digits
    assert (np.diff(found[inside]) > 0).all()
    if kind == "isotonic":
        assert inside.all()


def test_equal_and_misleading_scores():
    scores, hits, _ = planted(TRUTHS["square"], 5000, seed=3)
    assert fit_curve(scores, hits, "isotonic")(scores).mean() == pytest.approx(
        hits.mean(), abs=0.01
    )
    scores = np.concatenate([np.ones(500), np.linspace(0, 0.5, 500)])
    hits = np.concatenate([np.arange(500) < 400, np.zeros(500, bool)])
    for kind in ("isotonic", "beta"):
        assert fit_curve(scores, hits, kind)(np.ones(1))[0] == pytest.approx(0.8, abs=0.01)
    random = np.random.default_rng(0)
    scores = random.random(2000)
    curve = fit_curve(scores, random.random(2000) < 1 - scores, "beta")
    assert (np.diff(curve(np.linspace(0.01, 0.99, 50))) > 0).all()


def test_scales_keep_the_order():
    margins = np.array([-3.0, -0.5, 0.0, 2.0])
    units = Scale.of(margins, "margin")(margins)
    assert (np.diff(units) > 0).all() and units[2] == 0.5
    scale = Scale.of([0.0, 1.0], "product")
    assert scale([-0.5, 0.25, 1.0, 1.75]).tolist() == [0.0, 0.25, 1.0, 1.0]
    ranks = np.arange(101.0)
    units = Scale.of(ranks, "margin")(ranks)
    assert units[0] == pytest.approx(1 / (1 + np.exp(12)))
    assert (units[0] + units[-1], units[50]) == (pytest.approx(1), 0.5)


@pytest.mark.parametrize("kind", ["margin", "product"])
def test_scores_of_any_size_stay_distinct(kind):
    scores = np.concatenate([-np.logspace(0, 4, 40)[::-1], np.logspace(0, 4, 40)])
    units = Scale.of(scores, kind)(scores)
    assert (np.diff(units) > 0).all() and units[0] > 0 and units[-1] < 1


def test_curves_by_hand():
    line = Curve("isotonic", np.array([[0.0, 0.5, 1.0], [0.0, 0.1, 0.9]]))
    np.testing.assert_allclose(line(np.array([0.25, 0.5, 0.75, 2.0])), [0.05, 0.1, 0.5, 0.9])
    beta = Curve("beta", np.array([2.0, 1.0, 0.5]))
    expected = expit(2 * np.log(0.3) - np.log(0.7) + 0.5)
    assert beta(np.array([0.3]))[0] == pytest.approx(expected)


def test_curves_of_few_pairs_and_of_clear_ones():
    scores, hits = np.linspace(0, 1, 200), np.arange(200) >= 100
    curve = fit_curve(scores, hits, "isotonic")
    ends, least = curve(np.array([0.0, 1.0])), 0.5 / 201
    assert least * 0.99 <= ends[0] <= least
    assert 1 - least <= ends[1] < 1
    scores = np.concatenate([np.full(50, 0.1), np.full(50, 0.9)])
    curve = fit_curve(scores, scores > 0.5, "beta")
    np.testing.assert_allclose(curve(np.array([0.1, 0.9])), [1 / 52, 51 / 52], atol=1e-3)

    scores = np.linspace(0.1, 0.9, 39)
    curve = fit_curve(scores, scores > 0.5, "isotonic")
    assert curve(np.array([0.5]))[0] == pytest.approx(19 / 39)
    np.testing.assert_allclose(curve(np.array([0.1, 0.9])), 19 / 39, rtol=2e-3)
    assert (curve.numbers[0, 0], curve.numbers[0, -1]) == (0.0, 1.0)
    assert fit_curve(scores, scores > 0.5, "beta")(np.array([0.1]))[0] < 0.1


def test_by_hand():
    claimed = [0.05, 0.15, 0.85, 0.95]
    hits = [False, True, True, True]
    found = reliability(claimed, hits, bins=2)
    assert found.counts.tolist() == [2, 2]
    np.testing.assert_allclose(found.claimed, [0.1, 0.9])
    np.testing.assert_allclose(found.true, [0.5, 1.0])
    assert found.ece == pytest.approx(0.25)
    assert found.brier == pytest.approx((0.05**2 + 0.85**2 + 0.15**2 + 0.05**2) / 4)
    found = reliability([0.0, 1.0], [False, True], bins=10)
    assert found.counts.tolist() == [1, 1] and found.ece == 0


@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]), min_size=1), st.integers(1, 9))
def test_bins_of_equal_mass_keep_equal_values_together_and_in_order(values, bins):
    array = np.array(values)
    places = equal_mass(array, bins)
    assert places.min() >= 0 and places.max() < bins
    order = np.argsort(array, kind="stable")
    assert (np.diff(places[order]) >= 0).all()
    assert all(len(set(places[array == value])) == 1 for value in set(values))


@pytest.mark.parametrize(
    ("claimed", "hits", "message"),
    [([0.5], [], "1 probabilities for 0"), ([], [], "0 prob"), ([1.5], [True], "between 0 and 1")],
)
def test_bad_input(claimed, hits, message):
    pytest.raises(DataError, reliability, claimed, hits).match(message)
