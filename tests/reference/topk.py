"""The k best of each row, by sorting all of it."""

import math


def top_k_rows(rows, k):
    """``rows`` is a list of {column: score}; returns a list of [(column, score)], best first."""
    result = []
    for row in rows:
        candidates = [(column, score) for column, score in row.items() if score != -math.inf]
        candidates.sort(key=lambda entry: (-entry[1], entry[0]))
        result.append(candidates[:k])
    return result


def merged_row(columns, values, combine: str, weights) -> dict[int, float]:
    """The score of each label of one row that some list has, from lists x ranks."""
    lists = [
        [(c, s) for c, s in zip(*pair, strict=True) if c >= 0]
        for pair in zip(columns.tolist(), values.tolist(), strict=True)
    ]
    if combine == "largest":
        return {
            label: max(score for entries in lists for other, score in entries if other == label)
            for entries in lists
            for label, _ in entries
        }
    sums: dict[int, float] = {}
    least = 0.0
    for weight, entries in zip(weights, lists, strict=True):
        last = entries[-1][1] if combine == "mean-or-last" and entries else 0.0
        least += weight * last
        for label, score in entries:
            sums[label] = sums.get(label, 0.0) + weight * (score - last)
    return {label: (sum_ + least) / sum(weights) for label, sum_ in sums.items()}
