"""Learning rates against their closed forms, and the shape that each promises."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.nn.training.params import LoopParams
from labelgrove.nn.training.schedules import first_beta, rate_factor, share_of_steps


def rates(total, **settings):
    params = LoopParams(**settings).validate()
    return [rate_factor(step, total, params) for step in range(total)]


def test_linear_rises_over_the_warm_up_and_falls_to_just_above_zero():
    expected = [(s + 1) / 10 if s < 10 else (100 - s) / 90 for s in range(100)]
    assert rates(100, schedule="linear", warmup=0.1) == pytest.approx(expected)


def test_cosine_after_the_warm_up():
    expected = [(s + 1) / 10 for s in range(10)]
    expected += [0.5 * (1 + math.cos(math.pi * (s - 10) / 90)) for s in range(10, 100)]
    assert rates(100, schedule="cosine", warmup=10) == pytest.approx(expected)


def test_constant_without_warm_up_is_the_full_rate_from_the_first_update():
    assert rates(7, schedule="constant", warmup=0) == [1.0] * 7


def test_cascade_starts_at_a_tenth_is_flat_and_ends_at_a_thousandth():
    factors = rates(100, schedule="cascade", warmup=0.2, cooldown=30)
    rising = [0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi * s / 20)) for s in range(20)]
    falling = [0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * s / 30)) for s in range(1, 31)]
    assert factors == pytest.approx(rising + [1.0] * 50 + falling)
    assert factors[0] == pytest.approx(0.1)
    assert factors[-1] == pytest.approx(0.001)


def test_the_first_moment_moves_against_the_rate_in_cascade_only():
    settings = {"beta1": 0.95, "beta1_low": 0.85, "warmup": 5, "cooldown": 5}
    cascade = LoopParams(schedule="cascade", **settings)
    betas = [first_beta(step, 20, cascade) for step in range(20)]
    assert betas[0] == betas[-1] == 0.95
    assert betas[5:15] == [pytest.approx(0.85)] * 10
    linear = LoopParams(schedule="linear", **settings)
    assert first_beta(10, 20, linear) == 0.95


@given(
    st.sampled_from(["linear", "cosine", "constant", "cascade"]),
    st.integers(1, 60),
    st.floats(0, 80),
    st.floats(0, 80),
)
def test_any_setting_gives_rates_within_bounds(schedule, total, warmup, cooldown):
    factors = rates(total, schedule=schedule, warmup=warmup, cooldown=cooldown)
    assert all(0 < rate <= 1 for rate in factors)
    peak = factors.index(max(factors))
    assert factors[:peak] == sorted(factors[:peak])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)


def test_shares_are_fractions_below_one_and_steps_from_one_on():
    assert [share_of_steps(x, 40) for x in (0, 0.25, 1, 30, 99)] == [0, 10, 1, 30, 40]
