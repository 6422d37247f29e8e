"""Masked pretraining as it is written in papers: one token and one number at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

WORD = (1 << 64) - 1
CHOICE, KIND, TOKEN, CUT = range(4)


def number(seed: int, epoch: int, stream: int, place: int) -> float:
    """SplitMix64 of the place, as a number from 0 to 1."""
    state = np.random.SeedSequence([seed, epoch, stream]).generate_state(1, np.uint64)[0]
    x = ((place + (int(state) >> 1)) * 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return ((x ^ (x >> 31)) >> 11) / 2**53


def hidden(
    token: int,
    place: int,
    *,
    seed: int,
    epoch: int,
    share: float,
    mask_id: int,
    special: Collection[int],
    vocabulary: int,
) -> tuple[int, bool]:
    """What is shown of a token, and whether it is to be guessed."""
    if token in special or number(seed, epoch, CHOICE, place) >= share:
        return token, False
    kind = number(seed, epoch, KIND, place)
    if kind < 0.8:
        return mask_id, True
    if kind < 0.9:
        others = [token for token in range(vocabulary) if token not in special]
        return others[int(number(seed, epoch, TOKEN, place) * len(others))], True
    return token, True


def views(
    document: Sequence[int], row: int, *, frames: tuple[int, int], seed: int, epoch: int
) -> tuple[list[int], list[int]]:
    """The two parts of a document, each between the special tokens that frame it."""
    first, last = frames
    begin, end = list(document[:first]), list(document[len(document) - last :])
    body = list(document[first : len(document) - last])
    if len(body) < 16:
        return list(document), []
    cut = int((0.25 + 0.5 * number(seed, epoch, CUT, row)) * len(body))
    return begin + body[:cut] + end, begin + body[cut:] + end


def spelling(piece: str, vocabulary: Mapping[str, int], unknown: int) -> list[int]:
    """The longest known beginning, then the same for the rest, marked as a continuation."""
    numbers: list[int] = []
    inside = piece.startswith("##") and piece != "##"
    rest = piece[2:] if inside else piece
    while rest:
        for length in range(len(rest), 0, -1):
            name = ("##" if inside else "") + rest[:length]
            if name in vocabulary:
                numbers.append(vocabulary[name])
                rest, inside = rest[length:], True
                break
        else:
            return [unknown]
    return numbers


def guess_loss(
    state: Sequence[float],
    target: int,
    *,
    dense: Sequence[Sequence[float]],
    dense_bias: Sequence[float],
    scale: Sequence[float],
    shift: Sequence[float],
    table: Sequence[Sequence[float]],
    bias: Sequence[float],
    activates: bool,
) -> float:
    """Cross-entropy of one hidden token, from its state."""
    inner = [_dot(row, state) + b for row, b in zip(dense, dense_bias, strict=True)]
    if activates:
        inner = [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in inner]
    mean = sum(inner) / len(inner)
    spread = math.sqrt(sum((x - mean) ** 2 for x in inner) / len(inner) + 1e-12)
    normed = [(x - mean) / spread * a + b for x, a, b in zip(inner, scale, shift, strict=True)]
    scores = [_dot(row, normed) + b for row, b in zip(table, bias, strict=True)]
    return _surprise(scores, target)


def contrast(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], temperature: float
) -> float:
    """How hard each first view finds its second one, and the other way round; their mean."""
    total = 0.0
    for own, others in ((first, second), (second, first)):
        for i, vector in enumerate(own):
            scores = [_cosine(vector, other) / temperature for other in others]
            total += _surprise(scores, i) / len(own)
    return total / 2


def _surprise(scores: Sequence[float], target: int) -> float:
    largest = max(scores)
    total = sum(math.exp(score - largest) for score in scores)
    return math.log(total) + largest - scores[target]


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return _dot(a, b) / math.sqrt(_dot(a, a) * _dot(b, b))
