"""How the rows of a full head change: Adam with one second moment per row, and no first moment.

Adam's moments would be twice the size of the head, while plain descent has a rate that depends on
the width of the text vectors and on the batch. One number per row costs nothing, and the rates that
suit Adam suit it as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labelgrove.nn.heads.full import FullHead


class FullDescent:
    """Changes the rows of a full head and their biases.

    Rows in bfloat16 are rounded up with the probability of the part that is cut off. Rounding to
    the nearest number would lose every change below a 256th of the weight.
    """

    def __init__(self, head: FullHead, *, beta2: float = 0.999, eps: float = 1e-8) -> None:
        self._head, self._beta2, self._eps = head, beta2, eps
        self._squares = {name: torch.zeros_like(head.bias) for name in ("weight", "bias")}
        self._random = torch.Generator(head.weight.device)

    def state(self) -> dict[str, Tensor]:
        """Means of squares; together with the number of updates, all there is to restore."""
        return self._squares

    def change(
        self,
        rows: slice,
        weight: Tensor,
        bias: Tensor,
        *,
        lr: float,
        update: int,
        share: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Changes some rows by gradients of a loss that counts ``share``, in ``update`` 1, 2, ...

        A row's gradient is divided by the root of the running mean of its squares, over all numbers
        of the row. ``seed`` is for rounding.
        """
        head, beta2, eps = self._head, self._beta2, self._eps
        values, weight_squares, bias_squares = (
            tensor[rows] for tensor in (head.weight, self._squares["weight"], self._squares["bias"])
        )
        correction = (1 - beta2**update) ** -0.5  # a mean that starts at zero is too small
        kept = 1 - lr * weight_decay
        bias_squares.lerp_((share * bias).square(), 1 - beta2)
        head.bias[rows] -= lr * share * bias / (bias_squares.sqrt() * correction + eps)
        if values.is_cuda:
            from labelgrove.nn.heads.full_kernels import change_rows  # brings a compiler along

            if change_rows(
                values,
                weight_squares,
                weight,
                lr=lr,
                share=share,
                kept=kept,
                beta2=beta2,
                correction=correction,
                eps=eps,
                seed=seed + rows.start,
            ):
                return
        norms = torch.linalg.vector_norm(weight, dim=1, dtype=torch.float32)
        weight_squares.lerp_((share * norms).square() / head.in_features, 1 - beta2)
        rates = lr * share / (weight_squares.sqrt() * correction + eps)
        changed = values.float()  # a copy only if they are bfloat16
        if kept != 1:
            changed *= kept
        changed.addcmul_(weight.float(), rates[:, None], value=-1)
        if values.dtype == torch.bfloat16:
            random = self._random.manual_seed(seed + rows.start)
            values.copy_(stochastically_rounded(changed, random))


def stochastically_rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 numbers as bfloat16, up or down at random, so that their mean is kept."""
    bits = values.view(torch.int32)
    noise = torch.empty_like(bits).random_(0, 1 << 16, generator=generator)
    return noise.add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32).bfloat16()
