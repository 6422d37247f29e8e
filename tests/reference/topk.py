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
