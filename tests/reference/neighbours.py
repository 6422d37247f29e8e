"""The votes of the nearest documents, by comparing a text with every document."""

import math


def cosine(first: dict[int, float], second: dict[int, float]) -> float:
    """Of two rows {column: value}; 0 if one of them is empty."""
    product = sum(value * second.get(column, 0.0) for column, value in first.items())
    lengths = [math.sqrt(sum(value**2 for value in row.values())) for row in (first, second)]
    return max(0.0, product / (lengths[0] * lengths[1])) if all(lengths) else 0.0


def nearest(
    query: dict[int, float], documents: list[dict[int, float]], count: int
) -> list[tuple[int, float]]:
    """The documents with the largest cosines, as (document, cosine); none has a cosine of 0."""
    cosines = [(number, cosine(query, document)) for number, document in enumerate(documents)]
    cosines.sort(key=lambda pair: (-pair[1], pair[0]))
    return [pair for pair in cosines[:count] if pair[1] > 0]


def label_scores(
    query: dict[int, float],
    documents: list[dict[int, float]],
    labels: list[set[int]],
    label_count: int,
    *,
    neighbours: int,
    power: float,
    rarity: float,
    prior: float,
) -> list[float]:
    """The score of every label: its share of the votes, of which the frequencies have one."""
    near = nearest(query, documents, neighbours)
    total = sum(similarity**power for _, similarity in near) + prior**power
    scores = []
    for label in range(label_count):
        frequency = sum(label in own for own in labels)
        votes = sum(similarity**power for number, similarity in near if label in labels[number])
        votes += prior**power * (frequency + 1) / (len(documents) + 1)
        scores.append(votes / max(1, frequency) ** rarity / total)
    return scores


def joined_scores(by_terms: list[float], by_vectors: list[float], share: float) -> list[float]:
    """Scores by tf-idf and by text vectors as one: their mean, with this share of the vectors."""
    return [(1 - share) * a + share * b for a, b in zip(by_terms, by_vectors, strict=True)]


def standardised(states: list[list[float]]) -> list[dict[int, float]]:
    """States of an encoder as rows {column: value}: each column with mean 0 and deviation 1."""
    rows: list[dict[int, float]] = [{} for _ in states]
    means = [sum(column) / len(column) for column in zip(*states, strict=True)]
    spreads = [
        math.sqrt(sum((value - mean) ** 2 for value in column) / (len(column) - 1))
        for column, mean in zip(zip(*states, strict=True), means, strict=True)
    ]
    least = max(0.02, math.sqrt(sum(s**2 for s in spreads) / len(spreads)) / 10)
    for row, state in zip(rows, states, strict=True):
        for column, value in enumerate(state):
            row[column] = (value - means[column]) / max(spreads[column], least)
    return rows
