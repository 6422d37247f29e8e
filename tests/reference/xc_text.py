"""Slow twin of the svmlight parser: the same grammar written as regular expressions."""

from __future__ import annotations

import math
import re

import numpy as np

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SPACE = r"[ \t\r\v\f]"
_LABELS = rf"\d+(?:(?:{_SPACE}*,{_SPACE}*|{_SPACE}+)\d+)*"
_FEATURES = rf"\d+:{_NUMBER}(?:{_SPACE}+\d+:{_NUMBER})*"
_LINE = re.compile(
    rf"{_SPACE}*((?P<labels>{_LABELS})(?![\d:]))?{_SPACE}*(?P<features>{_FEATURES})?{_SPACE}*",
    re.ASCII,
)

Row = tuple[list[int], list[tuple[int, float]]]


def parse_line(line: str, *, label_limit: int, feature_limit: int) -> Row | None:
    """(labels, features) of a line, None for a line at fault."""
    # A comment begins where a token could begin.
    match = re.fullmatch(r"(.*?)(?<![^ \t\r\v\f])#.*", line, re.DOTALL)
    match = _LINE.fullmatch(line if match is None else match[1])
    if match is None:
        return None
    labels = [int(number) for number in re.findall(r"\d+", match["labels"] or "")]
    features = []
    for pair in (match["features"] or "").split():
        index, value = pair.split(":")
        with np.errstate(over="ignore"):
            features.append((int(index), float(np.float32(float(value)))))
    if any(label >= label_limit for label in labels):
        return None
    if any(index >= feature_limit or not math.isfinite(value) for index, value in features):
        return None
    return labels, features
