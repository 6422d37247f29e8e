"""A head over all labels, one chunk of labels at a time: it never holds documents x labels.

The logits, losses and gradients of a chunk are computed together and dropped, so memory is that of
the table, its gradient and one chunk. Nothing is approximated: the results equal
``losses.full_losses`` over all logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.nn.heads.candidates import first_occurrences, valid_nodes
from labelgrove.nn.heads.layers import Rows, TopLabels, weight_and_bias
from labelgrove.nn.heads.losses import LossKind, Reduction, entry_loss, entry_slope


def full_head_loss(
    hidden: Tensor,
    table: Rows | nn.Linear,
    truth: Tensor,
    *,
    chunk: int = 8192,
    kind: LossKind = "bce",
    reduction: Reduction = "mean",
) -> Tensor:
    """Mean loss of the documents over all rows of the table, ``chunk`` rows at a time.

    ``truth`` lists each document's true rows, sorted and padded. Gradients are computed together
    with the loss (unless they are off), so ``backward`` can be called only once.
    """
    weight, bias = weight_and_bias(table)
    size = len(hidden) * (len(weight) if reduction == "mean" else 1)
    apply: Any = _ChunkedLoss.apply
    loss: Tensor = apply(
        hidden, weight, bias, truth, chunk, kind, 1.0 / size, torch.is_grad_enabled()
    )
    return loss


def full_head_best(
    hidden: Tensor,
    table: Rows | nn.Linear,
    k: int,
    *,
    chunk: int = 65536,
    allowed: Tensor | None = None,
) -> TopLabels:
    """The ``k`` rows with the largest logits per document, and these logits, chunk by chunk.

    Only rows marked in ``allowed`` (None: all) can be returned; column -1 is no row.
    """
    weight, bias = table.weight, table.bias
    scores = hidden.new_empty((len(hidden), 0), dtype=torch.float32)
    columns = torch.empty((len(hidden), 0), dtype=torch.long, device=hidden.device)
    with torch.no_grad():
        for start in range(0, len(weight), chunk):
            logits = _logits(hidden, weight, bias, start, chunk)
            if allowed is not None:
                logits = logits.masked_fill(~allowed[start : start + chunk], -torch.inf)
            top, places = logits.topk(min(k, logits.shape[1]), dim=1)
            scores, columns = torch.cat([scores, top], 1), torch.cat([columns, places + start], 1)
            scores, best = scores.topk(min(k, scores.shape[1]), dim=1)
            columns = columns.gather(1, best)
    if allowed is not None:
        columns = columns.masked_fill(scores == -torch.inf, -1)
    return TopLabels(columns, scores)


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, start: int, chunk: int) -> Tensor:
    part = slice(start, start + chunk)
    rows = weight[part].to(hidden.dtype)
    return functional.linear(hidden, rows, None if bias is None else bias[part]).float()


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        truth: Tensor,
        chunk: int,
        kind: LossKind,
        scale: float,
        learning: bool,
    ) -> Tensor:
        counts = valid_nodes(truth) & first_occurrences(truth)
        total = hidden.new_zeros((), dtype=torch.float32)
        of_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        of_weight = torch.empty_like(weight) if learning else None
        of_bias = torch.empty_like(bias) if learning and bias is not None else None
        for start in range(0, len(weight), chunk):
            logits = _logits(hidden, weight, bias, start, chunk)
            here = counts & (truth >= start) & (truth < start + chunk)
            places = (truth - start).masked_fill(~here, 0)
            picked = logits.gather(1, places)
            change = entry_loss(picked, kind) - entry_loss(-picked, kind)
            total += entry_loss(-logits, kind).sum() + change.masked_fill(~here, 0.0).sum()
            if of_weight is None:
                continue
            # A negative's slope is minus that of a positive with the opposite logit.
            slopes = entry_slope(-logits, kind).neg_()
            change = entry_slope(picked, kind) + entry_slope(-picked, kind)
            slopes.scatter_add_(1, places, change.masked_fill(~here, 0.0))
            part = slice(start, start + chunk)
            of_hidden += torch.mm(slopes, weight[part].to(slopes.dtype))
            of_weight[part] = torch.mm(slopes.T, hidden.to(slopes.dtype))
            if of_bias is not None:
                of_bias[part] = slopes.sum(0)
        ctx.gradients, ctx.scale, ctx.dtype = (of_hidden, of_weight, of_bias), scale, hidden.dtype
        return total * scale

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Any, ...]:
        # If nothing else holds a gradient, autograd gives it to the parameter without a copy.
        gradients, ctx.gradients = ctx.gradients, None
        # Only here, together with the loss scale: small shares alone would be 0 in float16.
        share = outer * ctx.scale
        hidden, *tables = gradients
        tables = [None if gradient is None else gradient.mul_(share) for gradient in tables]
        del gradients
        return hidden.mul_(share).to(ctx.dtype), *tables, None, None, None, None, None
