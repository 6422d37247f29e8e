"""Spans of time as people write and read them."""

from __future__ import annotations

import re

from labelgrove.errors import ConfigError

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|)")
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_duration(span: str | float, *, name: str) -> float:
    """Seconds of "10m", "1.5h", "90s" or a plain number."""
    seconds = 0.0
    if isinstance(span, str) and (match := _SPAN.fullmatch(span.strip().lower())):
        seconds = float(match[1]) * _SECONDS[match[2]]
    elif isinstance(span, (int, float)) and not isinstance(span, bool):
        seconds = float(span)
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"{name}: must be a time such as 90s, 10m or 2h, got {span!r}")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration for people, such as 0.25 s, 1 min 15 s or 2 h 30 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
