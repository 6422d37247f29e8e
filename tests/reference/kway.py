"""Spherical k-means with clusters of any size, literally: dense float64, fresh sums every round."""

from __future__ import annotations

import numpy as np

from reference.kmeans import below, derive_seed, unit


def split(points, ids, k, iterations, seed):
    """Cluster number of each id."""
    filled = [i for i in ids if points[i].any()]
    count = min(k, max(len(filled), 1)) if filled else k
    found = {}
    if filled:
        order, state = list(range(len(filled))), seed
        for c in range(count):
            step, state = below(state, len(order) - c)
            order[c], order[c + step] = order[c + step], order[c]
        centres = [unit(points[filled[row]]) for row in order[:count]]
        nearest, before = None, -2.0
        for _ in range(iterations):
            scores = points[filled] @ np.array(centres).T
            old, nearest = nearest, scores.argmax(axis=1).tolist()
            mean = scores.max(axis=1).mean()
            if nearest == old or mean - before < 1e-4:
                break
            before = mean
            groups = [
                [i for i, n in zip(filled, nearest, strict=True) if n == c] for c in range(count)
            ]
            centres = [unit(points[group].sum(axis=0)) for group in groups]
        found = dict(zip(filled, nearest, strict=True))
    used = sorted(set(found.values())) or list(range(count))
    empty = [i for i in ids if i not in found]
    return [found.get(i, used[empty.index(i) % len(used)] if i in empty else 0) for i in ids]


def kway_levels(points, k, leaf, depth, iterations, seed):
    """Nested lists of label ids per level of clusters, in order."""
    levels, nodes, number = [], [list(range(len(points)))], 0
    while len(levels) < depth - 1 and max(map(len, nodes)) > leaf:
        split_nodes = []
        for offset, ids in enumerate(nodes):
            if len(ids) <= leaf:
                split_nodes.append(ids)
                continue
            cluster = split(points, ids, k, iterations, derive_seed(seed, number + offset))
            for c in sorted(set(cluster)):
                split_nodes.append([i for i, n in zip(ids, cluster, strict=True) if n == c])
        number += len(nodes)
        nodes = split_nodes
        levels.append(nodes)
    return levels
