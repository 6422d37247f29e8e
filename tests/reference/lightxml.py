"""LightXML, literally: one document at a time, one scalar loss at a time.

Switches name the form. ``truth="forced"`` is the public code's: true groups get a bonus of 1 before
the best are taken, and a positive that still is missing is put in. ``truth="joined"`` is the
paper's: the labels of the plainly best groups, joined with the positives. ``reduction`` is "mean"
in the code and "sum" in the paper, and the paper has a sigmoid on the bottleneck.
"""

from __future__ import annotations

import torch
from torch.nn.functional import softplus


def list_loss(logits, targets, reduction):
    """-log p for each positive, and -log(1 - p) for each negative."""
    total = sum(softplus(-z if y else z) for z, y in zip(logits, targets, strict=True))
    return total / len(targets) if reduction == "mean" else total


def best_groups(group_logits, true_groups, *, groups_kept, truth):
    scores = [float(torch.sigmoid(z.detach())) for z in group_logits]
    if truth == "forced":
        scores = [s + 1 if g in true_groups else s for g, s in enumerate(scores)]
    return sorted(range(len(scores)), key=lambda g: -scores[g])[:groups_kept]


def candidates(group_logits, positives, groups, *, groups_kept, truth, most=None):
    """Labels to score: those of the best groups, best group first, then missing positives.

    With a limit, positives stay and the labels of the worst groups go.
    """
    true_groups = {g for g, labels in enumerate(groups) if set(labels) & set(positives)}
    kept = best_groups(group_logits, true_groups, groups_kept=groups_kept, truth=truth)
    listed = [label for g in kept for label in groups[g]]
    listed += [label for label in sorted(set(positives)) if label not in listed]
    if most is not None:
        first = [label for label in listed if label in positives]
        rest = [label for label in listed if label not in positives]
        listed = (first + rest)[: max(most, len(first))]
    return listed


def label_logits(vector, weights, listed, *, bottleneck_sigmoid):
    hidden = weights["bottleneck.weight"] @ vector + weights["bottleneck.bias"]
    if bottleneck_sigmoid:
        hidden = torch.sigmoid(hidden)
    return [weights["labels"][label] @ hidden for label in listed]


def document_loss(
    states,
    positives,
    groups,
    weights,
    *,
    groups_kept,
    truth="forced",
    reduction="mean",
    bottleneck_sigmoid=False,
    most=None,
):
    vector = torch.cat(states)
    group_logits = weights["groups.weight"] @ vector + weights["groups.bias"]
    group_targets = [bool(set(labels) & set(positives)) for labels in groups]
    listed = candidates(
        group_logits, positives, groups, groups_kept=groups_kept, truth=truth, most=most
    )
    logits = label_logits(vector, weights, listed, bottleneck_sigmoid=bottleneck_sigmoid)
    targets = [label in positives for label in listed]
    return list_loss(group_logits, group_targets, reduction) + list_loss(logits, targets, reduction)


def full_document_loss(states, positives, weights, *, reduction="mean"):
    """The form for small label sets: every label is its own group."""
    logits = weights["full.weight"] @ torch.cat(states) + weights["full.bias"]
    targets = [c in positives for c in range(len(logits))]
    return list_loss(logits, targets, reduction)


def predict(states, groups, weights, k, *, groups_kept, bottleneck_sigmoid=False, score="weighted"):
    """The k best (label, score): the label's probability, or times the group's."""
    vector = torch.cat(states)
    group_logits = weights["groups.weight"] @ vector + weights["groups.bias"]
    kept = best_groups(group_logits, set(), groups_kept=groups_kept, truth="joined")
    scored = []
    for group in kept:
        logits = label_logits(vector, weights, groups[group], bottleneck_sigmoid=bottleneck_sigmoid)
        for label, logit in zip(groups[group], logits, strict=True):
            chance = torch.sigmoid(group_logits[group].detach()) if score == "weighted" else 1.0
            scored.append((label, float(torch.sigmoid(logit.detach()) * chance)))
    return sorted(scored, key=lambda pair: -pair[1])[:k]
