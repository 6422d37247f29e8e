"""Blocks of the pages, and whether a page shows what its commands print.

A fence names a language, and perhaps why its block does not run. ``bash`` and ``python`` run.
``text`` and ``json`` are all that one command of the last block printed, or a Python block. A line
``...`` leaves lines out. Words must be equal, in order. Whole numbers must be equal; others may
differ by 2 %, or by 0.02 if that is more. Spaces, line breaks, the length of bars and the lines of
tables do not count. Values that no run repeats must have the same form (``FORMS``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from textwrap import wrap

BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# "sh setup" prepares a machine (clone, make, pip); "shown: ..." gives any other reason.
NOTE = re.compile(r"setup|shown: \S.*")
OUTPUTS = ("text", "json")
SKIP = "..."
WIDTH = 98

_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?"
_AMOUNT = rf"{_NUMBER}\s?(?:ms|s|min|h|bytes|[KMGT]i?B)\b(?!/)"
FORMS = {
    "DATE": r"\d{4}-\d\d-\d\dT[\d:.+]+",
    "HASH": r"\b(?=[a-f]*\d)[0-9a-f]{12,}\b",
    "AMOUNT": rf"(?:\b(?:under|about)\s)?{_AMOUNT}(?:\s(?:to\s)?{_AMOUNT})*",
    "SPEED": rf"{_NUMBER}\s\w+/s\b",
    "MILLISECONDS": rf'(?<=ms"): ?{_NUMBER}',
    "VERSION": r"\b\d+\.\d+\.\d+\S*",
    "FOLDER": r"(?<!\S)/tmp/\S+",
}
_TOKEN = re.compile(
    "|".join(f"(?P<{name}>{form})" for name, form in FORMS.items())
    + rf"|(?P<number>{_NUMBER})|(?P<ruler>[\u2500-\u257f]+)|(?P<bar>[\u2580-\u259f]+)"
    + r"|[^\W\d]\w*|\S"
)


def refreshed(page: str, run: Callable[[str, str], Sequence[str] | None]) -> str:
    """The page, with what is printed now in place of every output that it no longer shows.

    ``run`` takes the language and the source of a block; it returns what each command printed, or
    None if it cannot run that language.
    """
    printed: Sequence[str] = ()

    def visit(block: re.Match[str]) -> str:
        nonlocal printed
        language, _, note = block[1].strip().partition(" ")
        if note:
            if not NOTE.fullmatch(note):
                raise ValueError(f"{block[1]!r} is neither 'setup' nor 'shown: REASON'")
        elif language in OUTPUTS:
            return f"```{block[1]}\n{current(block[2], printed)}```"
        else:
            outputs = run(language, block[2])
            if outputs is None:
                raise ValueError(f"{block[1]!r} does not run; write 'shown: REASON' after it")
            printed = outputs
        return block[0]

    return BLOCK.sub(visit, page)


def current(shown: str, printed: Sequence[str]) -> str:
    """``shown`` if one of the outputs is what it shows; otherwise the whole output most like it."""
    if any(shows(shown, output) for output in printed):
        return shown
    outputs = [output for output in printed if output.strip()]
    if not outputs:
        raise ValueError(f"no command before this block prints anything:\n{shown}")
    output = max(outputs, key=lambda output: _likeness(shown, output))
    return "".join(f"{line}\n" for line in _wrapped(output.strip("\n").splitlines()))


def shows(shown: str, output: str) -> bool:
    """Whether ``shown`` is ``output``, except for lines that it leaves out."""
    first, *others = (_tokens("\n".join(lines)) for lines in _segments(shown))
    tokens = _tokens(output)
    if not others:
        return len(first) == len(tokens) and _starts(tokens, first)
    *inner, last = others
    rest, tail = tokens[: len(tokens) - len(last)], tokens[len(tokens) - len(last) :]
    if not (len(last) <= len(tokens) and _starts(rest, first) and _starts(tail, last)):
        return False
    rest = rest[len(first) :]
    for segment in inner:
        while not _starts(rest, segment):
            if not rest:
                return False
            rest = rest[1:]
        rest = rest[len(segment) :]
    return True


def _segments(shown: str) -> list[list[str]]:
    segments: list[list[str]] = [[]]
    for line in shown.splitlines():
        if line.strip() == SKIP:
            segments.append([])
        else:
            segments[-1].append(line)
    return segments


def _tokens(text: str) -> list[tuple[str, str]]:
    """Each word, number and sign with its kind; only numbers and words keep their text."""
    kinds = ((match.lastgroup or "", match[0]) for match in _TOKEN.finditer(text))
    return [(kind, word if kind in ("", "number") else "") for kind, word in kinds]


def _starts(tokens: list[tuple[str, str]], segment: list[tuple[str, str]]) -> bool:
    return len(tokens) >= len(segment) and all(map(_equal, segment, tokens))


def _equal(shown: tuple[str, str], printed: tuple[str, str]) -> bool:
    if shown == printed:
        return True
    words = [shown[1], printed[1]]
    if shown[0] != "number" or printed[0] != "number" or not any("." in word for word in words):
        return False
    numbers = [float(word.replace(",", "")) for word in words]
    return abs(numbers[0] - numbers[1]) <= max(0.02, 0.02 * abs(numbers[1]))


def _likeness(shown: str, output: str) -> float:
    first, second = ([w if k == "" else k for k, w in _tokens(text)] for text in (shown, output))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def _wrapped(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with those folded that are too long for a page; JSON between its members."""
    for line in lines:
        if len(line) <= WIDTH:
            yield line
        elif not line.startswith("{"):
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            yield from wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
        else:
            spaced = json.dumps(json.loads(line), ensure_ascii=False)
            row, *members = re.split(r'(?<=,) (?=\{|"[^"]*":)', spaced)
            for member in members:
                if len(row) + 1 + len(member) > WIDTH:
                    yield row
                    row = ""
                row += f" {member}"
            yield row
