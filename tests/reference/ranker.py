"""Level-wise training, literally: dense targets, relevances and negatives, one problem per node."""

from __future__ import annotations

import numpy as np

from reference.solver import solve


def level_matrices(labels, tree, combine):
    """Documents x nodes per level: labels in leaf order, joined upwards."""
    levels = [labels[:, tree.leaf_labels]]
    for parents in tree.parents[:0:-1]:
        below = levels[-1]
        above = np.zeros((len(below), parents[-1] + 1))
        for node, parent in enumerate(parents):
            joined = below[:, node]
            above[:, parent] = (
                above[:, parent] + joined
                if combine == "sum"
                else np.maximum(above[:, parent], joined)
            )
        levels.append(above)
    return levels[::-1]


def literal_shares(matrix):
    return np.array([row / (row.sum() or 1.0) for row in matrix])


def train(x, tree, costs, chosen, *, C, positive_weight, sample_weight, loss="squared_hinge"):
    """Weights (bias last) per level and node.

    ``costs[t]`` is documents x nodes, 0 where a node is not borne; ``chosen[t]`` is documents x
    parents: whose children see a document, a factor on its cost as a negative. Positives always
    take part.
    """
    rows = np.hstack([x, np.ones((len(x), 1))]).astype(np.float64)
    levels = []
    for parents, cost, seen in zip(tree.parents, costs, chosen, strict=True):
        weights = []
        for node, parent in enumerate(parents):
            positive = cost[:, node] > 0
            part = positive | (seen[:, parent] > 0)
            factor = np.where(positive, C * positive_weight * cost[:, node], C * seen[:, parent])
            factor = factor * sample_weight
            if not positive.any():
                weights.append(np.append(np.zeros(x.shape[1]), -1.0))
            elif (parents == parent).sum() == 1 and positive[part].all():
                weights.append(np.append(np.zeros(x.shape[1]), 1.0))
            else:
                signs = np.where(positive, 1.0, -1.0)
                weights.append(solve(rows[part], signs[part], factor[part], loss))
        levels.append(np.array(weights))
    return levels


def train_shortlisted(x, costs, seen, *, C, positive_weight, scales):
    """Squared hinge, label by label: each learns from the documents that ``seen`` (documents x
    labels) lists for it and from its positives.

    ``scales`` are factors on the features while solving: feature j costs 1 / (2 scales[j]^2) times
    its squared weight. Rows of the result end with the bias.
    """
    scales = np.append(scales, 1.0)
    rows = np.hstack([x, np.ones((len(x), 1))]).astype(np.float64) * scales
    weights = []
    for label in range(costs.shape[1]):
        positive = costs[:, label] > 0
        part = positive | (seen[:, label] > 0)
        factor = np.where(positive, C * positive_weight * costs[:, label], C)
        signs = np.where(positive, 1.0, -1.0)
        weights.append(solve(rows[part], signs[part], factor[part], "squared_hinge") * scales)
    return np.array(weights)
