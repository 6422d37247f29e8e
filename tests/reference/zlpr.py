"""ZLPR (Su et al., 2022), literally: one document, one label at a time.

The zero is one more candidate. Every negative should score below it and every positive above it, so
labels with scores above 0 are a document's set.
"""

from __future__ import annotations

import torch


def zlpr(logits, targets, costs=None):
    """log(1 + sum over negatives of e^z) + log(1 + sum over positives of cost * e^-z)."""
    costs = [1.0] * len(targets) if costs is None else costs
    negatives = positives = torch.ones((), dtype=torch.float64)
    for z, y, cost in zip(logits, targets, costs, strict=True):
        if y:
            positives = positives + float(cost) * torch.exp(-z.double())
        else:
            negatives = negatives + torch.exp(z.double())
    return torch.log(negatives) + torch.log(positives)
