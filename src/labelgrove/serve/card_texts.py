"""Texts to try, from a model's card."""

from __future__ import annotations

import json
import re
from pathlib import Path

from labelgrove.serve.copies import read_plain

# Of the card: bytes and lines to read, texts to take, and their characters.
CARD_BYTES, CARD_LINES, EXAMPLES, EXAMPLE_CHARS = 1 << 16, 1000, 6, 2000


def card_examples(folder: Path) -> list[str]:
    """Texts to try, from the model's card; none if anything is wrong with it.

    The front matter of README.md may have them as the Hugging Face Hub does::

        widget:
        - text: a chopping board of oak

    It is not read as YAML, whose aliases and tags let a stranger's card work without end.
    """
    card = (read_plain(folder / "README.md", most=CARD_BYTES) or b"").decode("utf-8", "replace")
    first, *lines = card.splitlines()[:CARD_LINES] or [""]
    values: list[str] = []
    inside, column = False, CARD_BYTES
    for line in lines if first == "---" else ():
        if line == "---":
            break
        if line[:1] not in (" ", "-", "#"):
            inside = line.rstrip() == "widget:"
        elif len(line) - len(line.lstrip()) > column:  # a long text goes on
            values[-1] += f" {line.strip()}"
        elif entry := _CARD_TEXT.fullmatch(line) if inside else None:
            values.append(entry[2].rstrip())
            column = len(entry[1])
        else:
            column = CARD_BYTES
    texts = [text for text in map(_scalar, values) if 0 < len(text) <= EXAMPLE_CHARS]
    return texts[:EXAMPLES]


_CARD_TEXT = re.compile(r"( *(?:- +)?)text: +(\S.*)")


def _scalar(value: str) -> str:
    """A string of YAML; empty if it is something else."""
    if value[0] == value[-1] == '"':
        try:
            return str(json.loads(value))
        except (ValueError, RecursionError):
            return ""
    if value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    return "" if value[0] in "\"'[]{}>|*&!%#@`," else value.partition(" #")[0].rstrip()
