"""How reports look: the colours of the shared stylesheet, numbers and names in words."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

# The service's page and the report share this file; it is the only place that knows the colours.
LOOK = Path(__file__).parents[2] / "serve" / "page" / "look.css"

# Control characters and lone surrogates are not allowed in HTML or XML, escaped or not.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@cache
def colours() -> dict[str, str]:
    """The light colours of the stylesheet by their names."""
    css = LOOK.read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}),", css))


def printable(text: str) -> str:
    """The text with a replacement character for every character that a page may not contain."""
    return _UNPRINTABLE.sub("\ufffd", text)


def shortened(text: str, length: int) -> str:
    """At most ``length`` characters of a text, with white space turned into single spaces."""
    # A text may be megabytes long: only look at as much as could be shown.
    words = " ".join(text[: 4 * length].split())
    if len(words) <= length and len(text) <= 4 * length:
        return words
    return words[:length].rstrip() + "…"


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in percent, without the percent sign; a dash where it is undefined."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def duration(seconds: float) -> str:
    """A time that is easy to read, such as 12 ms, 12.3 s, 1 min 15 s or 2 h 30 min."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
