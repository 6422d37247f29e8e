"""The rules of ensembles, literally: one document, one list of (label, score) per model."""

from __future__ import annotations

import math
from collections.abc import Sequence

Lists = Sequence[Sequence[tuple[int, float]]]


def merged(
    lists: Lists,
    rule: str,
    *,
    places: int,
    weights: Sequence[float] | None = None,
    last_counts: bool = False,
) -> dict[int, float]:
    """The score of every label that some list has; ``last_counts`` is for margins."""
    if rule == "round-robin":
        return round_robin(lists, places)
    weights = [1.0] * len(lists) if weights is None else weights
    labels = {label for entries in lists for label, _ in entries}
    result = {}
    for label in labels:
        total = 0.0
        for weight, entries in zip(weights, lists, strict=True):
            missing = entries[-1][1] if last_counts and entries else 0.0
            values = dict(transformed(entries, rule, places))
            total += weight * values.get(label, missing)
        result[label] = total / sum(weights)
    return result


def transformed(
    entries: Sequence[tuple[int, float]], rule: str, places: int
) -> list[tuple[int, float]]:
    if rule == "mean":
        return list(entries)
    if rule == "rank":
        return [(label, places - position) for position, (label, _) in enumerate(entries)]
    if rule == "sigmoid":
        return [(label, 1 / (1 + math.exp(-score))) for label, score in entries]
    assert rule == "softmax"
    below = sum(math.exp(score) for _, score in entries)
    return [(label, math.exp(score) / below) for label, score in entries]


def round_robin(lists: Lists, places: int) -> dict[int, float]:
    """Scores that put labels in the order in which they are met, going round the lists."""
    result: dict[int, float] = {}
    for position in range(max(map(len, lists), default=0)):
        for number, entries in enumerate(lists):
            if position < len(entries) and entries[position][0] not in result:
                turn = (len(lists) - number) / (len(lists) + 1)
                result[entries[position][0]] = places - position + turn
    return result


def learnt(
    lists: Lists,
    weights: Sequence[Sequence[float]],
    exponents: Sequence[Sequence[float]],
    sharpness: float,
    bins: Sequence[int],
    margins: Sequence[bool],
) -> dict[int, float]:
    """The probability of every label that some list has, by a learnt merge.

    ``weights`` (as logarithms) and ``exponents`` are members x bins; ``margins`` says of each
    member whether its scores are logarithms of odds already.
    """
    strengths: dict[int, float] = {}
    for member, entries in enumerate(lists):
        for label, score in entries:
            unit = min(max(score, 1e-9), 1 - 1e-5)
            odds = math.exp(score) if margins[member] else unit / (1 - unit)
            weight = math.exp(weights[member][bins[label]])
            strength = weight * odds ** exponents[member][bins[label]]
            strengths[label] = strengths.get(label, 0.0) + strength
    return {label: s**sharpness / (1 + s**sharpness) for label, s in strengths.items()}


def learnt_loss(
    documents: Sequence[Lists],
    true: Sequence[set[int]],
    weights: Sequence[Sequence[float]],
    exponents: Sequence[Sequence[float]],
    sharpness: float,
    bins: Sequence[int],
    margins: Sequence[bool],
) -> float:
    """Minus the logarithm of the likelihood of the documents' labels, without a penalty."""
    loss = 0.0
    for lists, labels in zip(documents, true, strict=True):
        probabilities = learnt(lists, weights, exponents, sharpness, bins, margins)
        for label, chance in probabilities.items():
            loss -= math.log(chance if label in labels else 1 - chance)
    return loss
