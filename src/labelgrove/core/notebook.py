"""Short HTML for notebooks: everything is escaped and cut, so that a cell never grows large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST = 60  # characters of a cell


def cut(text: str, longest: int = LONGEST) -> str:
    """A text on one line, with dots where it is too long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"


def table(
    title: str,
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> str:
    """A title, a table whose first column is its head, and notes below it.

    >>> table("<b>", [["P", "5"]])
    '<div><p><b>&lt;b&gt;</b></p><table><tbody><tr><th>P</th><td>5</td></tr></tbody></table></div>'
    """
    from html import escape  # people at notebooks wait for it, not every prediction

    def cells(kind: str, texts: Iterable[str]) -> str:
        return "".join(f"<{kind}>{escape(cut(text))}</{kind}>" for text in texts)

    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if head else ""
    body = "".join(f"<tr>{cells('th', row[:1])}{cells('td', row[1:])}</tr>" for row in rows)
    below = "".join(f"<p>{escape(cut(note, 500))}</p>" for note in notes)
    shown = f"<table>{top}<tbody>{body}</tbody></table>" if body else ""
    return f"<div><p><b>{escape(cut(title, 300))}</b></p>{shown}{below}</div>"
