"""The words and sentences of the made-up shop, read from shop_words.txt."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

Wording = tuple[str, str]  # a label's own words, and other words that mean the same


def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("shop_words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = lines = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _pairs(lines: list[str]) -> tuple[Wording, ...]:
    """Comma-separated ``word=paraphrase`` items; without a paraphrase, a word is its own."""
    items = (item.strip().split("=") for item in " ".join(lines).strip(", ").split(","))
    return tuple((parts[0], parts[-1]) for parts in items)


def _words(name: str) -> list[str]:
    return " ".join(LINES[name]).split()


def _by_kind(name: str) -> list[tuple[str, str]]:
    return [(line.partition(": ")[0], line.partition(": ")[2]) for line in LINES[name]]


LINES = _sections()
_STARTS = [number for number, line in enumerate(LINES["departments"]) if ";" in line]
# Of each department: its name, hints that give it away without naming it, and its products.
DEPARTMENT_WORDS = [
    (name, tuple(hints.split(", ")), _pairs(LINES["departments"][first + 1 : last]))
    for first, last in zip(_STARTS, [*_STARTS[1:], None], strict=True)
    for name, hints in [LINES["departments"][first].split("; ")]
]
FEATURES, EXTRAS = _pairs(LINES["features"]), _pairs(LINES["extras"])
SERIES, CUES = _words("series"), _words("cues")
THEMES = _words("theme adjectives"), _words("theme nouns")
BRANDS = [_words(f"brand {part}") for part in ("starts", "middles", "ends")]
SENTENCES = {kind: tuple(sentences.split(" / ")) for kind, sentences in _by_kind("sentences")}
DISTRACTORS, FILLERS = tuple(_by_kind("distractors")), tuple(LINES["fillers"])
LEADS, LEADS_WITHOUT_BRAND = tuple(LINES["leads"]), tuple(LINES["leads without brand"])
VAGUE_NOUNS = tuple(noun for noun, _ in _pairs(LINES["vague nouns"]))


class Attribute(NamedTuple):
    """A kind of label, in percent: its share of all labels, and of products that have one."""

    words: tuple[Wording, ...]
    modifiers: list[str]  # they multiply the words; the first is none
    share: int
    frequency: int
    follows: str  # the kind of thing on which it often depends


# Brands take 22 % of all labels, themes 6 %, and categories everything else.
ATTRIBUTES = {
    kind: Attribute(_pairs(LINES[words]), ["", *_words(modifiers)], share, frequency, follows)
    for kind, words, modifiers, share, frequency, follows in (
        ("colour", "colours", "shades", 3, 60, "theme"),
        ("material", "materials", "finishes", 3, 60, "product"),
        ("use", "uses", "seasons", 3, 40, "department"),
        ("audience", "audiences", "groups", 2, 35, "department"),
        ("style", "styles", "moods", 2, 30, "theme"),
    )
}


def plural(noun: str) -> str:
    """The plural of an English noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]
