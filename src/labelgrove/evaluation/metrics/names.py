"""Metric names, such as ``P@5``, ``micro-F1@t=0.3``, ``macro-F1@set`` and ``tail-R@5``."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass

from labelgrove.errors import ConfigError

BIN_NAMES = ("head", "torso", "tail", "unseen")

RANKING = ("P", "R", "RP", "nDCG", "F1")
PROPENSITY_SCORED = ("PSP", "PSnDCG")
MICRO = ("micro-P", "micro-R", "micro-F1")
MACRO = ("macro-P", "macro-R", "macro-F1")
PER_BIN = tuple(f"{bin_name}-{what}" for what in ("P", "R") for bin_name in BIN_NAMES)
FAMILIES = (*RANKING, *PROPENSITY_SCORED, *MICRO, *MACRO, "coverage", *PER_BIN)

_WITH_THRESHOLD = ("F1", *MICRO, *MACRO)
_BY_LOWER_NAME = {family.lower(): family for family in FAMILIES}
_ALIASES = {"precision": "P", "recall": "R", "r-precision": "RP"}


@dataclass(frozen=True)
class Metric:
    """What to measure, over the ``k`` best labels or those that reach a score of ``threshold``.

    All labels of the predictions (``@set``) reach a threshold of minus infinity.
    """

    family: str
    k: int | None = None
    threshold: float | None = None

    @property
    def cutoff(self) -> str:
        """The part of the name after the @."""
        if self.of_set:
            return "set"
        return f"t={self.threshold:g}" if self.k is None else str(self.k)

    @property
    def of_set(self) -> bool:
        """Whether all labels of the predictions count, however many a document has."""
        return self.threshold == -math.inf

    def __str__(self) -> str:
        return f"{self.family}@{self.cutoff}"


def parse_metric(name: str) -> Metric:
    """The metric with this name, in upper or lower case; the error suggests the nearest name.

    >>> str(parse_metric("NDCG@5")), str(parse_metric("Micro-F1@t=0.50"))
    ('nDCG@5', 'micro-F1@t=0.5')
    """
    written, _, cutoff = name.strip().lower().partition("@")
    family = _ALIASES.get(written) or _BY_LOWER_NAME.get(written)
    if family is None:
        near = difflib.get_close_matches(written, [*_BY_LOWER_NAME, *_ALIASES], n=1)
        advice = f"choose one of {', '.join(FAMILIES)}, each with @k"
        if near:
            likely = _ALIASES.get(near[0]) or _BY_LOWER_NAME[near[0]]
            advice = f"did you mean {likely}@{cutoff or 5}?"
        raise ConfigError(f"unknown metric {name!r}; {advice}")
    if cutoff == "set" or cutoff.startswith("t="):
        if family not in _WITH_THRESHOLD:
            raise ConfigError(
                f"metric {name!r}: only {', '.join(_WITH_THRESHOLD)} can have a threshold or a set"
            )
        least = -math.inf if cutoff == "set" else _threshold(name, cutoff[2:])
        return Metric(family, threshold=least)
    if not (cutoff.isascii() and cutoff.isdigit() and int(cutoff) >= 1):
        raise ConfigError(f"metric {name!r}: add the number of labels, as in {family}@5")
    return Metric(family, k=int(cutoff))


def _threshold(name: str, text: str) -> float:
    try:
        threshold = float(text)
    except ValueError:
        threshold = math.nan
    if not math.isfinite(threshold):
        raise ConfigError(f"metric {name!r}: the threshold must be a number, got {text!r}")
    return threshold
