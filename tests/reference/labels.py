"""CascadeXML's label features, literally: lists of numbers, one label at a time."""

from __future__ import annotations


def label_features(features, labels, visits, *, keep, neighbours=10):
    """Y^T X, its largest entries, mixed over the labels that a random walk visits most.

    ``features`` are rows of unit length, ``visits`` labels x labels. Sums are not scaled before
    they are mixed, so a label with many documents outweighs one with few.
    """
    sums = []
    for column in zip(*labels, strict=True):
        own = [row for row, has in zip(features, column, strict=True) if has]
        sums.append([sum(values) for values in zip(*own, strict=True)] or [0.0] * len(features[0]))
    sums = keep_largest(sums, keep)
    graph = keep_largest(visits, neighbours)
    rows = [sum(row) for row in graph]
    columns = [sum(column) for column in zip(*graph, strict=True)]
    mixed = []
    for label, row in enumerate(graph):
        vector = [0.0] * len(sums[0])
        for other, count in enumerate(row):
            if count:
                weight = count / (rows[label] * columns[other]) ** 0.5
                vector = [v + weight * s for v, s in zip(vector, sums[other], strict=True)]
        mixed.append(vector)
    mixed = keep_largest(mixed, keep)
    lengths = [sum(v * v for v in row) ** 0.5 or 1.0 for row in mixed]
    return [[v / length for v in row] for row, length in zip(mixed, lengths, strict=True)]


def keep_largest(rows, count):
    """Zeros but for the largest entries of each row; of equals the first."""
    kept = []
    for row in rows:
        best = sorted(range(len(row)), key=lambda c: (-abs(row[c]), c))[:count]
        kept.append([value if c in best else 0.0 for c, value in enumerate(row)])
    return kept
