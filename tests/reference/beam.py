"""Beam search, literally: dense weights, one document, one level, one sort at a time."""

from __future__ import annotations

import numpy as np


def dense_weights(level, children, features, width=0):
    """Nodes x (sparse and dense) features from chunked weights of any storage."""
    dense = np.zeros((int(children[-1]), features + width))
    for parent in range(len(children) - 1):
        first, last = level.chunk_rows[parent], level.chunk_rows[parent + 1]
        starts = level.row_start[first + parent : last + parent + 1].astype(np.int64)
        for row in range(first, last):
            begin, end = level.chunk_entries[parent] + starts[row - first : row - first + 2]
            nodes = children[parent] + level.children[begin:end].astype(np.int64)
            dense[nodes, level.features[row]] = level.values[begin:end]
        left, right = children[parent], children[parent + 1]
        block = level.dense[width * left : width * right].astype(np.float64)
        dense[left:right, features:] = block.reshape(width, right - left).T
    return dense


def transform(name, margin):
    if name == "sigmoid":
        return 1.0 / (1.0 + np.exp(-margin))
    return np.exp(-(np.maximum(0.0, 1.0 - margin) ** int(name[1])))


def search(
    ranker, document, *, k, beam, post_processor="l4-hinge", last_level="same", allowed=None
):
    """Sorted (score, column) pairs of one document, a vector of all its features, sparse and dense.

    ``beam`` may be a list, one number per level.
    """
    tree = ranker.tree
    beams = beam if isinstance(beam, list) else [beam]
    allowed = range(tree.labels) if allowed is None else allowed
    kept = [(0, 1.0)]
    leaves = [np.isin(tree.leaf_labels, list(allowed)).astype(int)]
    for level in range(len(tree.parents) - 1, 0, -1):
        leaves.insert(0, np.bincount(tree.parents[level], weights=leaves[0]).astype(int))
    for level in range(len(tree.parents)):
        last = level == len(tree.parents) - 1
        name = "noop" if last and last_level == "noop" else post_processor
        children = tree.children(level)
        weights = dense_weights(ranker.levels[level], children, ranker.features, ranker.width)
        candidates = []
        for parent, above in kept:
            for node in range(children[parent], children[parent + 1]):
                if leaves[level][node] == 0:
                    continue
                margin = weights[node] @ document + ranker.levels[level].bias[node] * ranker.bias
                score = margin if name == "noop" else transform(name, margin) * above
                candidates.append((node, score))
        if last:
            found = [(-score, int(tree.leaf_labels[node])) for node, score in candidates]
            return [(-score, column) for score, column in sorted(found)[:k]]
        candidates.sort(key=lambda pair: (-pair[1], pair[0]))
        keep = min(beams[min(level, len(beams) - 1)], len(candidates))
        while keep < len(candidates) and sum(leaves[level][n] for n, _ in candidates[:keep]) < k:
            keep += 1
        kept = candidates[:keep]
    raise AssertionError("a tree has at least one level")
