"""XR-Transformer, literally: one document, one node, one number at a time.

Labels are leaf positions of the tree; ``parents[t]`` has the parent of each node of level t. The
neural loss has two forms: the public code weighs a true node by the number of labels below it and
everything else by 1; the paper weighs it by its share of the document's labels and everything else
by alpha.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from reference.solver import solve


def counts_per_level(positives, parents):
    """Per level {node: true labels below it}: R^(T) = Y, R^(t-1) = R^(t) C^(t)."""
    levels = [dict.fromkeys(positives, 1)]
    for above in parents[:0:-1]:
        counted = {}
        for node, count in levels[0].items():
            counted[int(above[node])] = counted.get(int(above[node]), 0) + count
        levels.insert(0, counted)
    return levels


def shortlist(true_above, predicted_above, negatives):
    """Nodes of the level above whose children see the document (a row of M)."""
    chosen = set()
    if "tfn" in negatives:
        chosen |= set(true_above)
    if "man" in negatives:
        chosen |= set(predicted_above)
    return chosen


def candidates(chosen, true, parents):
    """The children of the shortlist; a true node is never left out."""
    below = {node for node, parent in enumerate(parents) if int(parent) in chosen}
    return sorted(below | set(true))


def cost(node, counts, relevance, alpha):
    if node not in counts:
        return alpha
    if relevance == "count":
        return counts[node]
    if relevance == "l1":
        return counts[node] / sum(counts.values())
    return 1.0


def document_loss(
    vector, counts, listed, table, *, relevance, alpha, reduction, loss="squared_hinge"
):
    """``counts`` is {true node: labels below}, ``listed`` the nodes that are scored."""
    weight, bias = table
    total = torch.zeros(())
    for node in listed:
        margin = weight[node] @ vector + bias[node]
        signed = margin if node in counts else -margin
        if loss == "squared_hinge":
            value = torch.clamp(1 - signed, min=0) ** 2
        else:
            value = torch.log(1 + torch.exp(-signed))
        total = total + cost(node, counts, relevance, alpha) * value
    return total / len(listed) if reduction == "mean" and listed else total


def level_objective(losses, weight, scored, *, l2):
    """The paper's: the sum of all documents' losses plus lambda / 2 ||w_l||^2 of each node.

    Nodes that no document is scored on play no part.
    """
    total = sum(losses)
    for node in sorted(scored):
        total = total + 0.5 * l2 * sum(w * w for w in weight[node])
    return total


def log_l3_hinge(margin):
    return -(max(0.0, 1.0 - margin) ** 3)


def best_nodes(margins, above, parents, keep):
    """The best nodes of a level for one document, {node: score}.

    ``above`` is {kept node above: its score}. A node's score is the l3-hinge of its margin times
    its parent's.
    """
    scores = {}
    for node, parent in enumerate(parents):
        if int(parent) in above:
            scores[node] = above[int(parent)] * math.exp(log_l3_hinge(margins[node]))
    best = sorted(scores, key=lambda node: (-scores[node], node))[:keep]
    return {node: scores[node] for node in best}


def bootstrapped(vectors, counts, seen, parents, *, C, weighted, alpha=None):
    """Weights and biases of a level's nodes: squared hinge on the vectors of the level before.

    ``counts`` is documents x nodes, ``seen`` documents x nodes above. With ``alpha`` it is Eq. 11
    of the paper: errors cost R-hat, the row of counts over its sum, or alpha where it is 0.
    """
    rows = np.hstack([vectors, np.ones((len(vectors), 1))]).astype(np.float64)
    weights = []
    for node, parent in enumerate(parents):
        positive = counts[:, node] > 0
        part = positive | (seen[:, parent] > 0)
        costs = np.where(positive, C * (counts[:, node] if weighted else 1.0), C)
        if alpha is not None:
            shares = [row[node] / sum(row) if row[node] else alpha for row in counts]
            costs = C * np.array(shares)
        signs = np.where(positive, 1.0, -1.0)
        weights.append(solve(rows[part], signs[part], costs[part], "squared_hinge"))
    return np.array(weights)[:, :-1], np.array(weights)[:, -1]
