"""Balanced spherical 2-means, literally: dense float64, full sorts, fresh sums in every round."""

from __future__ import annotations

import numpy as np

MASK = (1 << 64) - 1


def mix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def derive_seed(seed: int, piece: int) -> int:
    return mix64(mix64(seed) ^ piece)


def below(state: int, bound: int) -> tuple[int, int]:
    number = ((mix64(state) >> 32) * bound) >> 32
    return number, (state + 0x9E3779B97F4A7C15) & MASK


def unit(vector):
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector


def split(points, ids, iterations, seed):
    p, state = below(seed, len(ids))
    q, _ = below(state, len(ids) - 1)
    q += q >= p
    direction = points[ids[q]] - points[ids[p]]
    half, before = len(ids) // 2, None
    for _ in range(iterations):
        scores = points[ids] @ direction
        order = sorted(range(len(ids)), key=lambda i: (scores[i], i))
        left = sorted(ids[i] for i in order[:half])
        right = sorted(ids[i] for i in order[half:])
        if left == before:
            break
        before = left
        direction = unit(points[right].sum(axis=0)) - unit(points[left].sum(axis=0))
    return left, right


def balanced_kmeans(points, depth, iterations, seed):
    nodes, number = [list(range(len(points)))], 1
    for _ in range(depth):
        halves = []
        for offset, ids in enumerate(nodes):
            if len(ids) < 2:
                halves += [[], ids]
            else:
                halves += split(points, ids, iterations, derive_seed(seed, number + offset))
        nodes, number = halves, number * 2
    return [row for ids in nodes for row in ids]
