"""How rows of label tables and of full heads change: the numbers of a step, and its rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class RowStep:
    """How far rows go in update number ``update`` by gradients of a loss that counts ``share``."""

    lr: float
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    update: int = 1
    share: float = 1.0
    seed: int = 0

    @property
    def correction(self) -> float:
        """A mean of squares that starts at zero is too small: what its root is multiplied by."""
        correction: float = (1 - self.beta2**self.update) ** -0.5
        return correction


def stochastically_rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 numbers as bfloat16, up or down at random: the nearest would drop small changes."""
    bits = values.view(torch.int32)
    noise = torch.empty_like(bits).random_(0, 1 << 16, generator=generator)
    return noise.add_(bits).bitwise_and_(-(1 << 16)).view(torch.float32).bfloat16()
