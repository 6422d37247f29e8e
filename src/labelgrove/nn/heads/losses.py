"""Losses per document: over a shortlist with padding, or over all labels; in float32 always.

A document's loss is the sum or the mean over the labels it was scored on. Padding is left out of
both, so a document's loss does not depend on the batch it happens to be in.
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
    """Loss of each row of ``logits`` against true/false ``targets``; where ``mask`` is off: none.

    ``weights`` multiply the loss of single entries, as the relevance costs of XR-Transformer do.
    The mean is over the entries that count, whatever their weights.

    >>> logits, targets = torch.tensor([[2.0, 9.0]]), torch.tensor([[False, True]])
    >>> mask = torch.tensor([[True, False]])
    >>> document_losses(logits, targets, mask=mask, kind="squared_hinge").tolist()
    [9.0]
    """
    scores = logits.float()
    if mask is not None:  # before the loss, too: whatever stands in padding, its gradient is 0
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

    No rows x columns array of targets is made: every column is taken for a negative first, and the
    true ones are corrected. ``positive_weights`` has the shape of ``truth``.

    >>> from labelgrove.nn.heads.ragged import NO_NODE
    >>> truth = torch.tensor([[1, NO_NODE]])
    >>> full_losses(torch.tensor([[-3.0, 0.0]]), truth, kind="squared_hinge").tolist()
    [0.5]
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
    counts: Tensor,
    mask: Tensor | None = None,
    *,
    norm: Literal["none", "l1", "max"] = "none",
    negative_weight: float = 1.0,
) -> Tensor:
    """Costs of errors from how many of a document's labels lie below each candidate node.

    A true node costs its count (``none``: what XR-Transformer's code does), its share of the row's
    sum (``l1``: its paper) or of the row's largest; a node that is not true costs
    ``negative_weight``.

    >>> relevance_weights(torch.tensor([[3, 0, 1]]), norm="l1").tolist()
    [[0.75, 1.0, 0.25]]
    """
    values = counts.float() if mask is None else counts.float() * mask
    if norm == "l1":
        shares = values / values.sum(1, keepdim=True).clamp(min=1.0)
    elif norm == "max":
        shares = values / values.amax(1, keepdim=True).clamp(min=1.0)
    else:
        shares = values
    return torch.where(values > 0, shares, negative_weight)


def entry_loss(logits: Tensor, kind: LossKind) -> Tensor:
    """Loss of positives with these logits; a negative costs what a positive with -logit does.

    >>> entry_loss(torch.tensor([1.0, 0.0, -1.0]), "squared_hinge").tolist()
    [0.0, 1.0, 4.0]
    """
    if kind == "bce":
        return functional.softplus(-logits)
    return functional.relu(1.0 - logits).square()


def entry_slope(logits: Tensor, kind: LossKind) -> Tensor:
    """Derivative of :func:`entry_loss`.

    >>> entry_slope(torch.tensor([1.0, 0.0, -1.0]), "squared_hinge").tolist()
    [-0.0, -2.0, -4.0]
    """
    if kind == "bce":
        return torch.sigmoid(-logits).neg_()
    return functional.relu(1.0 - logits).mul_(-2.0)
