"""Losses per document, over a shortlist with padding or over all labels; always in float32.

A document's loss is the sum or the mean over the labels it was scored on. Padding does not count,
so a document's loss does not depend on its batch.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from labelgrove.nn.heads.candidates import first_occurrences, valid_nodes

LossKind: TypeAlias = Literal["bce", "squared_hinge"]
Reduction: TypeAlias = Literal["mean", "sum"]


def document_losses(
    logits: Tensor,
    targets: Tensor,
    *,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    kind: LossKind = "bce",
    reduction: Reduction = "mean",
) -> Tensor:
    """Each row's loss against boolean ``targets``; the mean divides by the entries of ``mask``."""
    scores = logits.float()
    if mask is not None:  # before the loss, too: then even nan in padding has a gradient of 0
        scores = scores.masked_fill(~mask, 0.0)
    values = entry_loss(torch.where(targets, scores, -scores), kind)
    if weights is not None:
        values = values * weights.float()
    if mask is None:
        return values.sum(1) if reduction == "sum" else values.mean(1)
    total = values.masked_fill(~mask, 0.0).sum(1)
    return total if reduction == "sum" else total / mask.sum(1).clamp(min=1)


def full_losses(
    logits: Tensor,
    truth: Tensor,
    *,
    positive_weights: Tensor | None = None,
    negative_weight: float = 1.0,
    kind: LossKind = "bce",
    reduction: Reduction = "mean",
) -> Tensor:
    """Loss of each row over all its columns; ``truth`` lists the true ones, sorted and padded.

    There is no rows x columns array of targets: first every column is a negative, and then the true
    ones are corrected. ``positive_weights`` has the shape of ``truth``.
    """
    scores = logits.float()
    counts = valid_nodes(truth) & first_occurrences(truth)
    picked = scores.gather(1, truth.masked_fill(~counts, 0))
    as_positive = entry_loss(picked, kind)
    if positive_weights is not None:
        as_positive = as_positive * positive_weights.float()
    change = as_positive - negative_weight * entry_loss(-picked, kind)
    total = negative_weight * entry_loss(-scores, kind).sum(1)
    total = total + change.masked_fill(~counts, 0.0).sum(1)
    return total if reduction == "sum" else total / logits.shape[1]


def relevance_weights(
    counts: Tensor, *, norm: Literal["none", "l1"] = "none", negative_weight: float = 1.0
) -> Tensor:
    """Costs of errors from how many of a document's labels are below each candidate node.

    A true node costs its count (``none``, as in XR-Transformer's code) or its share of the row's
    sum (``l1``, as in its paper); other nodes cost ``negative_weight``.
    """
    costs = counts.float()
    if norm == "l1":
        costs = costs / costs.sum(1, keepdim=True).clamp(min=1.0)
    return torch.where(counts > 0, costs, negative_weight)


def entry_loss(logits: Tensor, kind: LossKind) -> Tensor:
    """Loss of positives with these logits; a negative costs as much as a positive with -logit."""
    if kind == "bce":
        return functional.softplus(-logits)
    return functional.relu(1.0 - logits).square()
