"""Two towers, literally: the decoupled softmax and the nearest wrong labels, by loops."""

from __future__ import annotations

import math
from collections.abc import Sequence


def decoupled_softmax(scores: Sequence[Sequence[float]], right: Sequence[Sequence[bool]]) -> float:
    """The mean over documents with labels of the mean over their labels of -log p.

    p = e^s / (e^s + sum of e^s' over the labels that the document does not have).
    """
    losses = []
    for row, own in zip(scores, right, strict=True):
        wrong = sum(math.exp(score) for score, is_own in zip(row, own, strict=True) if not is_own)
        of_labels = [
            -math.log(math.exp(score) / (math.exp(score) + wrong))
            for score, is_own in zip(row, own, strict=True)
            if is_own
        ]
        if of_labels:
            losses.append(sum(of_labels) / len(of_labels))
    return sum(losses) / len(losses) if losses else 0.0


def near_labels(
    documents: Sequence[Sequence[float]],
    labels: Sequence[Sequence[float]],
    own: Sequence[Sequence[int]],
    known: Sequence[int],
    count: int,
) -> list[list[int]]:
    """For each document the ``count`` labels with the largest product that it does not have.

    Only ``known`` labels, those of some document, are taken.
    """
    result = []
    for vector, mine in zip(documents, own, strict=True):
        products = {
            label: sum(a * b for a, b in zip(vector, labels[label], strict=True))
            for label in known
            if label not in mine
        }
        result.append(sorted(products, key=lambda label: -products[label])[:count])
    return result
