"""Texts to try, from a model's card.

The front matter of README.md in the model folder may have them as the Hugging Face Hub does::

    widget:
    - text: a chopping board of oak
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labelgrove.errors import MissingExtraError
from labelgrove.serve.copies import read_plain

MOST, LONGEST = 6, 2000  # texts, characters
CARD_BYTES = 1 << 16


def card_examples(folder: Path) -> list[str]:
    """The texts, or none if there is no card or anything is wrong with it."""
    head = _front_matter(folder / "README.md")
    if "widget:" not in head:
        return []
    try:
        import yaml  # type: ignore[import-untyped]  # few models have a card
    except ModuleNotFoundError as error:
        raise MissingExtraError("serve", "reading a model card") from error
    try:
        entries: Any = yaml.safe_load(head).get("widget")
    except (yaml.YAMLError, AttributeError, RecursionError, ValueError):
        return []
    if not isinstance(entries, list):
        return []
    texts = [entry.get("text") for entry in entries if isinstance(entry, dict)]
    return [text for text in texts if isinstance(text, str) and 0 < len(text) <= LONGEST][:MOST]


def _front_matter(card: Path) -> str:
    text = (read_plain(card, most=CARD_BYTES) or b"").decode("utf-8", "replace")
    text = text.replace("\r\n", "\n")
    return text[4:].partition("\n---")[0] if text.startswith("---\n") else ""
