"""Learning rates against their closed forms, and the shape that each promises."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.nn.training.params import LoopParams
from labelgrove.nn.training.schedules import first_beta, rate_factor, share_of_steps

pytestmark = pytest.mark.slow


def rates(total, **settings):
    params = LoopParams(**settings).validate()
    return [rate_factor(step, total, params) for step in range(total)]


def test_every_schedule_is_its_closed_form():
    rising = [(s + 1) / 10 for s in range(10)]
    linear = rising + [(100 - s) / 90 for s in range(10, 100)]
    assert rates(100, schedule="linear", warmup=0.1) == pytest.approx(linear)
    cosine = rising + [0.5 * (1 + math.cos(math.pi * (s - 10) / 90)) for s in range(10, 100)]
    assert rates(100, schedule="cosine", warmup=10) == pytest.approx(cosine)
    assert rates(7, schedule="constant", warmup=0) == [1.0] * 7
    rising = [0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi * s / 20)) for s in range(20)]
    falling = [0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * s / 30)) for s in range(1, 31)]
    cascade = rates(100, schedule="cascade", warmup=0.2, cooldown=30)
    assert cascade == pytest.approx(rising + [1.0] * 50 + falling)
    assert (cascade[0], cascade[-1]) == pytest.approx((0.1, 0.001))


def test_the_first_moment_moves_against_the_rate_in_cascade_only():
    settings = {"beta1": 0.95, "beta1_low": 0.85, "warmup": 5, "cooldown": 5}
    cascade = LoopParams(schedule="cascade", **settings)
    betas = [first_beta(step, 20, cascade) for step in range(20)]
    assert betas[0] == betas[-1] == 0.95
    assert betas[5:15] == [pytest.approx(0.85)] * 10
    linear = LoopParams(schedule="linear", **settings)
    assert first_beta(10, 20, linear) == 0.95
    assert [share_of_steps(x, 40) for x in (0, 0.25, 1, 30, 99)] == [0, 10, 1, 30, 40]


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
