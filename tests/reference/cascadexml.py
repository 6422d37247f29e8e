"""CascadeXML, literally: one document at a time, sets of nodes, one scalar loss at a time.

Labels are leaf positions of the tree. ``truth="forced"`` is the public code's form: true clusters
of a level get a bonus of 1 before the best of the level are taken, so that their children (the true
nodes below and their siblings) come in. ``truth="joined"`` is the paper's: the children of the
plainly best clusters, joined with the true nodes themselves. In both a true node is never missing;
the public code loses it when a level has more true clusters than are kept.
"""

from __future__ import annotations

import torch
from torch.nn.functional import softplus


def true_nodes(positives, parents):
    """Per level the nodes above the positives, the positives themselves last."""
    levels = [set(positives)]
    for above in parents[:0:-1]:
        levels.insert(0, {int(above[node]) for node in levels[0]})
    return levels


def logits_of(vector, table, nodes):
    weight, bias = table
    return {node: weight[node] @ vector + bias[node] for node in nodes}


def best(logits, keep, favoured=()):
    scores = {n: float(torch.sigmoid(z.detach())) + (n in favoured) for n, z in logits.items()}
    return sorted(scores, key=lambda node: -scores[node])[:keep]


def children(nodes, parents):
    return [child for child, parent in enumerate(parents) if int(parent) in nodes]


def document_loss(
    vectors,
    positives,
    parents,
    tables,
    *,
    kept,
    truth="forced",
    reduction="mean",
    rescale=True,
    level_weights=None,
):
    """``vectors`` is what each level reads, after mixing; ``kept`` clusters per cluster level."""
    truths = true_nodes(positives, parents)
    shortlist = list(range(len(parents[0])))
    losses, sizes = [], []
    for level, (vector, table) in enumerate(zip(vectors, tables, strict=True)):
        logits = logits_of(vector, table, shortlist)
        total = sum(softplus(-z if node in truths[level] else z) for node, z in logits.items())
        losses.append(total / len(logits) if reduction == "mean" else total)
        sizes.append(len(logits))
        if level + 1 < len(parents):
            favoured = truths[level] if truth == "forced" else ()
            shortlist = children(best(logits, kept[level], favoured), parents[level + 1])
            shortlist += sorted(truths[level + 1] - set(shortlist))
    factors = list(level_weights or [1.0] * len(losses))
    if rescale and reduction == "mean":
        factors = [f * size / min(sizes) for f, size in zip(factors, sizes, strict=True)]
    return sum(f * loss for f, loss in zip(factors, losses, strict=True))


def predict(vectors, parents, tables, k, *, kept, score="level"):
    """The k best (leaf position, score), without any knowledge of true labels."""
    shortlist = list(range(len(parents[0])))
    probabilities = []
    for level, (vector, table) in enumerate(zip(vectors, tables, strict=True)):
        logits = logits_of(vector, table, shortlist)
        probabilities.append({node: float(torch.sigmoid(z.detach())) for node, z in logits.items()})
        if level + 1 < len(parents):
            shortlist = children(best(logits, kept[level]), parents[level + 1])
    scores = dict(probabilities[-1])
    for label in scores:
        if score == "weighted" and len(parents) > 1:  # the public code's: the cluster above
            scores[label] *= probabilities[-2][int(parents[-1][label])]
    return sorted(scores.items(), key=lambda pair: -pair[1])[:k]
