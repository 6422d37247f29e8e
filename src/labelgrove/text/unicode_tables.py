"""The class and the lower case of every Unicode character, as the running Python defines them.

The text kernels know ASCII. For everything else they use tables made here from Python's own ``re``,
``str.lower`` and ``unicodedata``, so that a word is what ``\\w`` matches and lower case is that of
``str.lower``, whatever version of Unicode this Python has. Making the tables takes about 25
milliseconds, once per process, and only if a text is not ASCII. What lower-casing a sigma needs
takes 70 more, and is only made if a text has one.
"""

from __future__ import annotations

import atexit
import re
import unicodedata
from collections.abc import Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.core.strings import StringTable
from labelgrove.data.languages import UNSPACED_RANGES

CODE_POINTS = 0x110000
PLANE = 0x10000
# Planes with characters. The others are for private use or, so far, for nothing.
PLANES = (0, 1, 2, 3, 14)
BLOCK = 256  # most blocks have no changes, and one comparison shows that
# Bits of a character's class; the kernels' text_unicode.hpp has the same.
WORD, SPACE, CASED, IGNORABLE, UNSPACED = 1, 2, 4, 8, 16


@cache
def char_tables(
    *, lowercase: bool, strip_accents: bool, sigmas: bool = False
) -> _native.CharTables:
    """The tables for one way of folding; a capital sigma needs more of them (``sigmas``)."""
    changes = _changes(lowercase, strip_accents)
    outputs = StringTable.from_strings(changes.values())
    changed = np.fromiter(changes.keys(), np.int32, len(changes))
    classes = _classes() | _sigma_classes() if sigmas else _classes()
    return _native.CharTables(classes, changed, outputs.blob, outputs.offsets)


# torch with CUDA keeps modules alive to the very end, where nanobind reports tables as leaks.
atexit.register(char_tables.cache_clear)


def _changes(lowercase: bool, strip_accents: bool) -> dict[int, str]:
    """The code points that folding replaces, and what replaces them."""
    changes: dict[int, str] = {}
    for start, block in _blocks():
        if (lowercase and block.lower() != block) or (strip_accents and _has_marks(block)):
            for code_point, char in enumerate(block, start):
                lower = char.lower() if lowercase else char
                folded = strip_marks(lower) if strip_accents else lower
                if folded != char:
                    changes[code_point] = folded
    return changes


def strip_marks(text: str) -> str:
    """Compatibility decomposition without combining marks: no accents, no ligatures."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def _has_marks(block: str) -> bool:
    return unicodedata.normalize("NFKD", block) != block or any(map(unicodedata.combining, block))


@cache
def _classes() -> npt.NDArray[np.uint8]:
    """WORD, SPACE and UNSPACED of each code point."""
    classes = np.zeros(CODE_POINTS, dtype=np.uint8)
    for start, plane in _planes():
        for run in re.finditer(r"\w+", plane):
            classes[start + run.start() : start + run.end()] |= WORD
        classes[start : start + PLANE] |= SPACE
        for run_of_others in plane.split():  # at what \s matches, in a tenth of its time
            classes[ord(run_of_others[0]) : ord(run_of_others[-1]) + 1] &= ~SPACE & 0xFF
    for first, last in UNSPACED_RANGES:
        classes[first : last + 1] |= UNSPACED
    return classes


@cache
def _sigma_classes() -> npt.NDArray[np.uint8]:
    """CASED and IGNORABLE of each code point, which decide how a capital sigma is lower-cased.

    Python does not expose them, but str.lower shows them: a sigma becomes final after a cased
    character, and case-ignorable ones in between do not matter.
    """
    cased = _makes_sigma_final(" ")
    ignorable = _makes_sigma_final("a") & ~cased
    return cased * np.uint8(CASED) | ignorable * np.uint8(IGNORABLE)


def _makes_sigma_final(before: str) -> npt.NDArray[np.bool_]:
    """For each character, whether ``before``, it and a capital sigma end in a final sigma."""
    final = np.zeros(CODE_POINTS, dtype=np.bool_)
    for start, block in _blocks(before, "Σ "):
        if "ς" in block.lower():
            for code_point in range(start, start + BLOCK):
                final[code_point] = f"{before}{chr(code_point)}Σ".lower().endswith("ς")
    return final


def _planes(before: str = "", after: str = "") -> Iterator[tuple[int, str]]:
    """The code points of PLANES, each between ``before`` and ``after``; all at once take 100 MB."""
    for number in PLANES:
        start = number * PLANE
        points = np.arange(start, start + PLANE, dtype="<u4")
        columns = [
            points if c is None else np.full_like(points, ord(c)) for c in (*before, None, *after)
        ]
        yield start, np.column_stack(columns).tobytes().decode("utf-32-le", "surrogatepass")


def _blocks(before: str = "", after: str = "") -> Iterator[tuple[int, str]]:
    """The same in pieces of BLOCK code points."""
    width = len(before) + 1 + len(after)
    for start, plane in _planes(before, after):
        for at in range(0, PLANE, BLOCK):
            yield start + at, plane[at * width : (at + BLOCK) * width]
