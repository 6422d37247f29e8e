"""Related labels and the tower's loss, slowly: lists of floats, one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

Vector = Sequence[float]


def related(vectors: Sequence[Vector], count: int, similarity: float) -> list[list[int]]:
    """For each label the nearest other labels, the nearest first; of equal ones the first."""
    found = []
    for own, vector in enumerate(vectors):
        cosines = [
            (-cosine(vector, other), label) for label, other in enumerate(vectors) if label != own
        ]
        near = [label for negative, label in sorted(cosines) if -negative >= similarity]
        found.append(near[:count])
    return found


def loss(
    documents: Sequence[Vector],
    labels: Sequence[Vector],
    belongs: Sequence[Sequence[bool]],
    temperature: float,
) -> float:
    """Document i and label i are a pair; other labels of a document are no wrong answers."""
    size = len(documents)
    scores = [[cosine(d, label) / temperature for label in labels] for d in documents]
    total = 0.0
    for i in range(size):
        wrong = [j for j in range(size) if j != i and not belongs[i][j]]
        total += math.log(1 + sum(math.exp(scores[i][j] - scores[i][i]) for j in wrong)) / size
        wrong = [j for j in range(size) if j != i and not belongs[j][i]]
        total += math.log(1 + sum(math.exp(scores[j][i] - scores[i][i]) for j in wrong)) / size
    return total / 2


def cosine(a: Vector, b: Vector) -> float:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
