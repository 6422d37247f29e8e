"""Pieces of HTML. Whatever comes from data goes through :func:`escape`, without exception."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

# Control characters and lone surrogates have no place in HTML, escaped or not.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def escape(value: object) -> str:
    """Text that is safe between tags and inside quoted attributes.

    >>> escape("<b title='x'>")
    '&lt;b title=&#x27;x&#x27;&gt;'
    """
    return html.escape(_UNPRINTABLE.sub("\ufffd", str(value)), quote=True)


def foreign(value: str) -> str:
    """Text of the data, kept apart so that its writing direction cannot turn the page around it.

    >>> foreign("a & b")
    '<bdi>a &amp; b</bdi>'
    """
    return f"<bdi>{escape(value)}</bdi>"


def shortened(text: str, length: int) -> str:
    """At most ``length`` characters of a text, its white space made single spaces.

    >>> shortened("one  two three", 8)
    'one two…'
    """
    # A text may be megabytes long: no more of it is looked at than could be shown.
    words = " ".join(text[: 4 * length].split())
    if len(words) <= length and len(text) <= 4 * length:
        return words
    return words[:length].rstrip() + "…"


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction as tables print it, in percent without the sign; a dash where undefined.

    >>> percent(0.5), percent(0.012, signed=True), percent(float("nan"))
    ('50.00', '+1.20', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def duration(seconds: float) -> str:
    """A time as a reader takes it in at a glance.

    >>> duration(0.012), duration(12.3), duration(75), duration(9000)
    ('12 ms', '12.3 s', '1 min 15 s', '2 h 30 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, words: Sequence[int] = ()
) -> str:
    """A table in a box that scrolls by itself, for pointers and keys alike.

    Cells are HTML already. The first column names the row; the columns in ``words`` hold text
    and are set to the left, all others are numbers.

    >>> "<th scope='row'>P</th>" in table(["", "@1"], [["P", "50.00"]], caption="Precision")
    True
    """
    left = {0, *words}

    def kind(column: int) -> str:
        return " class='words'" if column in left else ""

    def cell(column: int, value: str) -> str:
        return f"<th scope='row'>{value}</th>" if column == 0 else f"<td{kind(column)}>{value}</td>"

    titles = "".join(
        f"<th scope='col'{kind(column)}>{value}</th>" for column, value in enumerate(head)
    )
    body = "".join(
        f"<tr>{''.join(cell(column, value) for column, value in enumerate(row))}</tr>"
        for row in rows
    )
    return (
        f"<div class='scroll' role='region' aria-label='{escape(caption)}' tabindex='0'>"
        f"<table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def details(summary: str, inside: str) -> str:
    """Something that is folded away until asked for.

    >>> details("Numbers", "<p>1</p>")
    '<details><summary>Numbers</summary><p>1</p></details>'
    """
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>"


def paragraph(sentence: str) -> str:
    """A sentence that needs escaping, as a paragraph.

    >>> paragraph("1 < 2")
    '<p>1 &lt; 2</p>'
    """
    return f"<p>{escape(sentence)}</p>"
