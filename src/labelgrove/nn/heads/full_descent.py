"""How the rows of a full head change: Adam with one second moment per row, and no first moment.

Adam's moments would be twice the size of the head, while plain descent has a rate that depends on
the width of the text vectors and on the batch. One number per row costs nothing, and the rates that
suit Adam suit it as well.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from labelgrove.nn.heads.full import FullHead
from labelgrove.nn.heads.row_step import RowStep, stochastically_rounded


class FullDescent:
    """Changes the rows of a full head and their biases; rows in bfloat16 are rounded at random."""

    def __init__(self, head: FullHead) -> None:
        self._head = head
        self._squares = {name: torch.zeros_like(head.bias) for name in ("weight", "bias")}
        self._random = torch.Generator(head.weight.device)

    def state(self) -> dict[str, Tensor]:
        """Means of squares; together with the number of updates, all there is to restore."""
        return self._squares

    def change(self, rows: slice, weight: Tensor, bias: Tensor, *, step: RowStep) -> None:
        """Changes some rows by their gradients.

        A row's gradient is divided by the root of the running mean of its squares, over all numbers
        of the row.
        """
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
