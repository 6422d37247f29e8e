import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.errors import DataError
from labelgrove.evaluation.reliability import equal_mass, reliability


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
