"""A head that scores all labels in training, however many, and never stores their logits.

As in Renée and ELMO, the gradient of binary cross-entropy is written down instead of derived from a
stored loss. The head visits the labels in chunks. The logits of a chunk give its part of the loss,
its part of the gradient of the text vectors and the gradient of its own rows, which change at once.
So neither logits nor gradients of all labels exist at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.nn.heads.candidates import first_occurrences, valid_nodes
from labelgrove.nn.heads.layers import TopLabels, top_labels
from labelgrove.nn.heads.row_step import RowStep, stochastically_rounded

ONE_PROCESS = (
    "heads.full: a full head learns in one process; start one process, or set heads.full=false"
)

# What learns from a chunk: its rows, the gradient of its weights and that of its biases.
Change = Callable[[slice, Tensor, Tensor], None]


class FullHead(nn.Module):
    """A weight vector and a bias for each label, scored ``chunk`` labels at a time.

    The weights are float32, or bfloat16 on GPUs that have it; biases are always float32. They are
    buffers: they are saved and moved with the model, but the optimiser of the dense parameters does
    not see them. While ``change`` is set, a loss that takes gradients changes the head.
    """

    weight: Tensor
    bias: Tensor

    def __init__(
        self, width: int, labels: int, *, chunk: int = 16_384, device: torch.device | None = None
    ) -> None:
        super().__init__()
        bound = width**-0.5  # as in nn.Linear
        weight = torch.empty(labels, width, dtype=weight_type(device), device=device)
        self.register_buffer("weight", weight.uniform_(-bound, bound))
        self.register_buffer("bias", torch.zeros(labels, device=device))
        self.in_features, self.out_features, self.chunk = width, labels, chunk
        self.change: Change | None = None

    def loss(self, text: Tensor, truth: Tensor, *, scale: float = 1.0) -> Tensor:
        """The mean over documents of ``scale`` times the loss summed over all labels.

        ``truth`` lists the true labels, sorted and padded. The result has gradients for ``text``
        alone: the head's own are used up by ``change`` before this returns.
        """
        change = self.change if torch.is_grad_enabled() else None
        if change is not None and not text.requires_grad:
            text = text.detach().requires_grad_()  # of a frozen encoder; a loss needs a backward
        loss: Tensor = _ChunkedLoss.apply(text, self, truth, scale, change)  # type: ignore[no-untyped-call]
        return loss

    @torch.no_grad()
    def top(self, text: Tensor, k: int, allowed: Tensor | None = None) -> TopLabels:
        """The ``k`` best labels with their logits, in float32; ``allowed`` has a flag per label."""
        text = text.float()
        columns, scores = text.new_empty((len(text), 0), dtype=torch.int64), text[:, :0]
        for rows in self._chunks():
            logits = functional.linear(text, self.weight[rows].float(), self.bias[rows])
            best = top_labels(logits, None, None if allowed is None else allowed[rows], k)
            valid = best.columns >= 0
            columns = torch.cat([columns, torch.where(valid, best.columns + rows.start, -1)], 1)
            scores = torch.cat([scores, best.scores.masked_fill(~valid, -torch.inf)], 1)
            scores, places = scores.topk(min(k, scores.shape[1]), dim=1)
            columns = columns.gather(1, places)
        return TopLabels(columns, scores.masked_fill(columns < 0, 0.0))

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, len(self.weight), self.chunk):
            yield slice(start, min(start + self.chunk, len(self.weight)))

    def visit(
        self, text: Tensor, truth: Tensor, scale: float, change: Change | None
    ) -> tuple[Tensor, Tensor]:
        """The loss and its gradient for ``text``; ``change`` gets that of each chunk in turn."""
        scale /= max(1, len(text))
        hidden = text.to(self.weight.dtype)
        real = valid_nodes(truth) & first_occurrences(truth)
        total = text.new_zeros((len(text), 1), dtype=torch.float32)
        gradient = torch.zeros_like(text, dtype=torch.float32)
        for rows in self._chunks():
            weight = self.weight[rows]
            logits = (hidden @ weight.T).float() + self.bias[rows]
            # Every label counts as a negative first; then the true ones of this chunk are
            # corrected. Where there are none, zeros are added to the first column: asking the
            # device which documents have some would wait for it.
            here = real & (truth >= rows.start) & (truth < rows.stop)
            places = (truth - rows.start).masked_fill(~here, 0)
            picked = logits.gather(1, places)
            correction = functional.softplus(-picked) - functional.softplus(picked)
            correction = correction.masked_fill(~here, 0.0)
            total += functional.softplus(logits).sum(1, True) + correction.sum(1, True)
            slopes = logits.sigmoid_()
            probabilities = picked.sigmoid_()
            slopes.scatter_add_(
                1, places, ((probabilities - 1) - probabilities).masked_fill(~here, 0)
            )
            slopes *= scale
            rounded = slopes.to(self.weight.dtype)
            gradient += rounded @ weight
            if change is not None:
                change(rows, rounded.T @ hidden, slopes.sum(0))
        return (scale * total).sum(), gradient


class FullDescent:
    """Changes the rows of a full head: Adam with one second moment per row, and no first moment.

    Adam's moments would be twice the size of the head, while plain descent has a rate that depends
    on the width of the text vectors and on the batch. One number per row costs nothing, and the
    rates that suit Adam suit it as well. Rows in bfloat16 are rounded at random.
    """

    def __init__(self, head: FullHead) -> None:
        self._head = head
        self._squares = {name: torch.zeros_like(head.bias) for name in ("weight", "bias")}
        self._random = torch.Generator(head.weight.device)

    def state(self) -> dict[str, Tensor]:
        """Means of squares; together with the number of updates, all there is to restore."""
        return self._squares

    def change(self, rows: slice, weight: Tensor, bias: Tensor, *, step: RowStep) -> None:
        """Divides a row's gradient by the root of the running mean of all its numbers' squares."""
        head, share, correction, eps = self._head, step.share, step.correction, step.eps
        values, weight_squares, bias_squares = (
            tensor[rows] for tensor in (head.weight, self._squares["weight"], self._squares["bias"])
        )
        bias_squares.lerp_((share * bias).square(), 1 - step.beta2)
        head.bias[rows] -= step.lr * share * bias / (bias_squares.sqrt() * correction + eps)
        step = replace(step, seed=step.seed + rows.start)
        if values.is_cuda:
            from labelgrove.nn.heads.row_kernel import change_rows  # brings a compiler along

            if change_rows(values, weight, step, second=weight_squares):
                return
        norms = torch.linalg.vector_norm(weight, dim=1, dtype=torch.float32)
        weight_squares.lerp_((share * norms).square() / head.in_features, 1 - step.beta2)
        rates = step.lr * share / (weight_squares.sqrt() * correction + eps)
        changed = values.float()  # a copy only if they are bfloat16
        if step.weight_decay:
            changed *= 1 - step.lr * step.weight_decay
        changed.addcmul_(weight.float(), rates[:, None], value=-1)
        if values.dtype == torch.bfloat16:
            random = self._random.manual_seed(step.seed)
            values.copy_(stochastically_rounded(changed, random))


class _ChunkedLoss(torch.autograd.Function):
    """A loss whose gradient is computed with it."""

    @staticmethod
    def forward(
        ctx: Any, text: Tensor, head: FullHead, truth: Tensor, scale: float, change: Change | None
    ) -> Tensor:
        with torch.autocast(text.device.type, enabled=False):
            loss, gradient = head.visit(text, truth, scale, change)
        ctx.save_for_backward(gradient.to(text.dtype))
        return loss

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return outer[0] * gradient, None, None, None, None


def weight_type(device: torch.device | None) -> torch.dtype:
    """bfloat16 where the device multiplies it faster than float32."""
    if device is None or torch.device(device).type != "cuda":
        return torch.float32
    fast = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if fast else torch.float32


def full_heads(model: nn.Module) -> dict[str, FullHead]:
    """The heads of this kind inside a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, FullHead)}
