"""AdamW over groups of dense parameters, gradient clipping and loss scaling.

``heads.rows`` has the optimiser of large label tables, ``training.schedules`` the learning rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labelgrove.errors import ConfigError
from labelgrove.nn.training.params import LoopParams


def parameter_groups(model: nn.Module, params: LoopParams) -> list[dict[str, Any]]:
    """Groups for AdamW: ``model.encoder`` and the rest, the heads, have their own rates.

    Biases and norms do not decay. Each group has its ``part`` (encoder or head) and the ``peak``
    rate that schedules multiply.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    head_lr = params.lr if params.head_lr is None else params.head_lr
    parts = [
        ("encoder", params.lr, params.weight_decay),
        ("head", head_lr, params.head_weight_decay),
    ]
    groups = []
    for part, rate, decay in parts:
        own = [(name, p) for name, p in named if name.startswith("encoder.") == (part == "encoder")]
        for decays in (True, False):
            members = [p for name, p in own if _decays(name, p) == decays]
            if members:
                rates = {"lr": rate, "peak": rate, "weight_decay": decay if decays else 0.0}
                groups.append({"params": members, "part": part, **rates})
    return groups


def adamw(model: nn.Module, params: LoopParams) -> torch.optim.AdamW | None:
    """AdamW over a model's parameters, as one fused kernel; None if it has nothing to train."""
    groups = parameter_groups(model, params)
    if not groups:
        return None
    fused = all(p.is_floating_point() for group in groups for p in group["params"])
    return torch.optim.AdamW(
        groups, betas=(params.beta1, params.beta2), eps=params.eps, fused=fused
    )


def clip_gradients(gradients: Sequence[Tensor], limit: float, norm: Norm | None = None) -> None:
    """Scales gradients in place to a joint norm of at most ``limit``, without a GPU sync."""
    if gradients:
        factor = (limit / ((norm or joint_norm)(gradients) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(list(gradients), factor)


def joint_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients taken as one vector."""
    norm: Tensor = torch.stack(torch._foreach_norm(list(gradients))).norm()
    return norm


Norm = Callable[[Sequence[Tensor]], Tensor]


@dataclass
class LossScale:
    """Keeps fp16 gradients in range: multiplies the loss and divides the gradients.

    The scale doubles after ``patience`` good updates. It halves when a gradient overflows, and that
    update is skipped. Checking for an overflow waits for the GPU; bf16 needs none of this.
    """

    value: float = 65536.0
    good: int = 0
    patience: int = 2000

    def restore(self, gradients: Sequence[Tensor], norm: Norm | None = None) -> bool:
        """Divides the gradients by the scale; returns False if this update must be skipped."""
        if gradients:
            torch._foreach_mul_(list(gradients), 1 / self.value)
            if not (norm or joint_norm)(gradients).isfinite().item():
                self.value, self.good = self.value / 2, 0
                if self.value < 1e-4:
                    raise ConfigError(
                        "precision: fp16 gradients are not finite at any scale; "
                        "use bf16 or fp32, or a lower lr"
                    )
                return False
        self.good += 1
        if self.good >= self.patience:
            self.value, self.good = self.value * 2, 0
        return True


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and name.rpartition(".")[2] != "bias"
