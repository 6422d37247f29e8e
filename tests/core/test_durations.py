"""Durations as people write them."""

import pytest

from labelgrove.core.durations import format_duration, parse_duration
from labelgrove.errors import ConfigError


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        ("90s", 90),
        ("10m", 600),
        ("2 min", 120),
        ("1.5 h", 5400),
        ("2D", 172_800),
        ("30", 30),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_spans(span, seconds):
    assert parse_duration(span, name="budget") == seconds


@pytest.mark.parametrize(
    "span", ["", "soon", "-5m", "0s", "5 weeks", 0, -1, True, float("nan"), float("inf"), None]
)
def test_what_is_no_span_is_refused(span):
    pytest.raises(ConfigError, parse_duration, span, name="budget").match("budget: must be a time")


def test_for_people():
    shown = [format_duration(seconds) for seconds in (0.25, 9.999, 14.4, 59.6, 75, 9000)]
    assert shown == ["0.25 s", "10.00 s", "14 s", "60 s", "1 min 15 s", "2 h 30 min"]
