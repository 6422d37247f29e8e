"""Seconds as a range, because a sample is not the corpus and a machine is not always idle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """Seconds that something will take, as a range."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def around(cls, seconds: float, factor: float) -> Estimate:
        """A range of ``factor`` to both sides."""
        return cls(seconds / factor, seconds * factor)

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Estimate:
        """The same thing several times over."""
        return Estimate(self.low * factor, self.high * factor)

    def __str__(self) -> str:
        low, high = duration(self.low), duration(self.high)
        if self.high < 1:
            return high
        return f"about {high}" if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """With the precision that an estimate has.

    >>> duration(0.2), duration(14.4), duration(200), duration(9000)
    ('under 1 s', '14 s', '3 min', '2.5 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
