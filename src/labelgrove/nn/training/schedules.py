"""Learning rates as functions of the update's number, so there is no state to store."""

from __future__ import annotations

import math

from labelgrove.nn.training.params import LoopParams

_CASCADE_START, _CASCADE_END = 0.1, 0.001


def share_of_steps(amount: float, total: int) -> int:
    """A parameter as a number of steps: below 1 it is a fraction of all steps."""
    return min(total, round(amount * total) if amount < 1 else round(amount))


def rate_factor(step: int, total: int, params: LoopParams) -> float:
    """The factor on the learning rates in update ``step`` (0 .. total - 1).

    >>> params = LoopParams(schedule="linear", warmup=2)
    >>> [round(rate_factor(step, 6, params), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    warmup = share_of_steps(params.warmup, total)
    if params.schedule == "cascade":
        floor = _CASCADE_START if step < warmup else _CASCADE_END
        return floor + (1 - floor) * _plateau(step, total, params)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(total - warmup, 1)
    if params.schedule == "linear":
        return 1 - done
    if params.schedule == "cosine":
        return _falling(done)
    return 1.0


def first_beta(step: int, total: int, params: LoopParams) -> float:
    """The first moment's decay in update ``step``: with cascade, low while the rate is high.

    >>> params = LoopParams(schedule="cascade", beta1=0.95, beta1_low=0.85, warmup=2, cooldown=2)
    >>> [round(first_beta(step, 6, params), 2) for step in range(6)]
    [0.95, 0.9, 0.85, 0.85, 0.9, 0.95]
    """
    if params.beta1_low is None or params.schedule != "cascade":
        return params.beta1
    return params.beta1 + (params.beta1_low - params.beta1) * _plateau(step, total, params)


def _plateau(step: int, total: int, params: LoopParams) -> float:
    """Half a cosine from 0 to 1 over the warm-up, then flat, then half a cosine down to 0."""
    warmup = share_of_steps(params.warmup, total)
    cooldown = min(share_of_steps(params.cooldown, total), total - warmup)
    if step < warmup:
        return 1 - _falling(step / warmup)
    past_flat = step - (total - cooldown) + 1
    return _falling(past_flat / cooldown) if past_flat > 0 else 1.0


def _falling(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2
