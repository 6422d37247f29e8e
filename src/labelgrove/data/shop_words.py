"""The words and sentences of the made-up shop, read from shop_words.txt."""

from __future__ import annotations

from pathlib import Path

Pairs = tuple[tuple[str, str], ...]


def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("shop_words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = lines = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _pairs(lines: list[str]) -> Pairs:
    """Comma-separated ``word=paraphrase`` items; without a paraphrase, a word is its own."""
    items = (item.strip().split("=") for item in " ".join(lines).strip(", ").split(","))
    return tuple((parts[0], parts[-1]) for parts in items)


def _words(name: str) -> tuple[str, ...]:
    return tuple(" ".join(_SECTIONS[name]).split())


def _departments(lines: list[str]) -> tuple[tuple[str, tuple[str, ...], Pairs], ...]:
    """The name, the hints and the products of each department."""
    starts = [number for number, line in enumerate(lines) if ";" in line]
    departments = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        name, hints = lines[start].split("; ")
        departments.append((name, tuple(hints.split(", ")), _pairs(lines[start + 1 : end])))
    return tuple(departments)


_SECTIONS = _sections()
DEPARTMENTS = _departments(_SECTIONS["departments"])
PRODUCTS_PER_DEPARTMENT = 14
FEATURES, EXTRAS = _pairs(_SECTIONS["features"]), _pairs(_SECTIONS["extras"])
# Words of an attribute, and the modifiers that multiply them; the first modifier is none.
COLOURS, SHADES = _pairs(_SECTIONS["colours"]), ("", *_words("shades"))
MATERIALS, FINISHES = _pairs(_SECTIONS["materials"]), ("", *_words("finishes"))
USES, SEASONS = _pairs(_SECTIONS["uses"]), ("", *_words("seasons"))
AUDIENCES, GROUPS = _pairs(_SECTIONS["audiences"]), ("", *_words("groups"))
STYLES, MOODS = _pairs(_SECTIONS["styles"]), ("", *_words("moods"))
THEME_ADJECTIVES, THEME_NOUNS = _words("theme adjectives"), _words("theme nouns")
CUES, SERIES = _words("cues"), _words("series")
BRAND_STARTS, BRAND_MIDDLES = _words("brand starts"), _words("brand middles")
BRAND_ENDS = _words("brand ends")

LEADS = tuple(_SECTIONS["leads"])
LEADS_WITHOUT_BRAND = tuple(_SECTIONS["leads without brand"])
VAGUE_NOUNS = tuple(noun for noun, _ in _pairs(_SECTIONS["vague nouns"]))
SENTENCES = {
    kind: tuple(sentences.split(" / "))
    for kind, _, sentences in (line.partition(": ") for line in _SECTIONS["sentences"])
}
DISTRACTORS = tuple(
    (kind, sentence)
    for kind, _, sentence in (line.partition(": ") for line in _SECTIONS["distractors"])
)
FILLERS = tuple(_SECTIONS["fillers"])
