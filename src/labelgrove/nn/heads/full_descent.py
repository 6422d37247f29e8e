"""How the rows of a full head change: Adagrad with one number per row.

Renée and ELMO use plain descent, which needs dozens of epochs, and Adam's moments would be twice
the size of the head. One sum of squares per row costs nothing and learns in a few epochs: the first
documents of a rare label move its row as far as those of a frequent one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labelgrove.nn.heads.full import FullHead


class FullDescent:
    """Adagrad on the rows of a full head, and on its biases.

    Rows in bfloat16 are rounded up with the probability of the part that is cut off. Rounding to
    the nearest number would lose every change below a 256th of the weight.
    """

    def __init__(self, head: FullHead, *, eps: float = 1e-8) -> None:
        self._head, self._eps = head, eps
        self._sums = {name: torch.zeros_like(head.bias) for name in ("weight", "bias")}
        self._random = torch.Generator(head.weight.device)

    def state(self) -> dict[str, Tensor]:
        """All there is to restore, by name."""
        return self._sums

    def change(
        self,
        rows: slice,
        weight: Tensor,
        bias: Tensor,
        *,
        lr: float,
        share: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Changes some rows by gradients of a loss that counts ``share``; ``seed`` is of rounding.

        A row's gradient is divided by the root of the sum of its mean squares so far.
        """
        head, eps = self._head, self._eps
        values, weight_sums, bias_sums = (
            tensor[rows] for tensor in (head.weight, self._sums["weight"], self._sums["bias"])
        )
        bias_sums += (share * bias).square()
        head.bias[rows] -= lr * share * bias / (bias_sums.sqrt() + eps)
        kept = 1 - lr * weight_decay
        if values.is_cuda:
            from labelgrove.nn.heads.full_kernels import adagrad_rows  # brings a compiler along

            options = {
                "lr": lr,
                "share": share,
                "kept": kept,
                "eps": eps,
                "seed": seed + rows.start,
            }
            if adagrad_rows(values, weight_sums, weight, **options):
                return
        squares = torch.linalg.vector_norm(weight, dim=1, dtype=torch.float32).square()
        weight_sums += squares * (share**2 / head.in_features)
        changed = values.float()  # a copy only if they are bfloat16
        if kept != 1:
            changed *= kept
        changed.addcmul_(
            weight.float(), (lr * share / (weight_sums.sqrt() + eps))[:, None], value=-1
        )
        if values.dtype == torch.bfloat16:
            random = self._random.manual_seed(seed + rows.start)
            values.copy_(stochastically_rounded(changed, random))


def stochastically_rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 numbers as bfloat16, up or down at random, so that their mean is kept."""
    bits = values.view(torch.int32)
    noise = torch.empty_like(bits).random_(0, 1 << 16, generator=generator)
    return noise.add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32).bfloat16()
