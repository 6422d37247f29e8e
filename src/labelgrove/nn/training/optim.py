"""Optimisers: AdamW over groups of dense parameters, and what happens to gradients before it.

The parts for large label tables are in ``heads.rows``, learning rates in
``training.schedules``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.nn.training.params import LoopParams

try:
    import torch
    from torch import Tensor, nn
except ImportError as missing:
    raise MissingExtraError("torch", "training a neural model") from missing

Named = Iterable[tuple[str, nn.Parameter]]


def split_parameters(model: nn.Module) -> tuple[Named, Named]:
    """The named parameters of ``model.encoder``, and all the others: the heads'.

    >>> model = nn.ModuleDict({"encoder": nn.Linear(2, 2), "head": nn.Linear(2, 3)})
    >>> [[name for name, _ in part] for part in split_parameters(model)]
    [['encoder.weight', 'encoder.bias'], ['head.weight', 'head.bias']]
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    encoder = [(name, p) for name, p in named if name.startswith("encoder.")]
    return encoder, [(name, p) for name, p in named if not name.startswith("encoder.")]


def parameter_groups(encoder: Named, head: Named, params: LoopParams) -> list[dict[str, Any]]:
    """Groups for AdamW: encoder and heads have their own rates; biases and norms do not decay.

    Each group has its ``part`` (encoder or head) and the ``peak`` rate that schedules multiply.

    >>> encoder, head = nn.Linear(2, 2), nn.Linear(2, 3)
    >>> groups = parameter_groups(
    ...     encoder.named_parameters(), head.named_parameters(), LoopParams(head_lr=1e-3)
    ... )
    >>> [(group["part"], group["lr"], group["weight_decay"]) for group in groups]
    [('encoder', 5e-05, 0.01), ('encoder', 5e-05, 0.0), ('head', 0.001, 0.0), ('head', 0.001, 0.0)]
    """
    head_lr = params.lr if params.head_lr is None else params.head_lr
    wanted = [
        ("encoder", list(encoder), params.lr, params.weight_decay),
        ("head", list(head), head_lr, params.head_weight_decay),
    ]
    groups = []
    for part, named, rate, decay in wanted:
        for decays in (True, False):
            members = [p for name, p in named if _decays(name, p) == decays]
            if members:
                rates = {"lr": rate, "peak": rate, "weight_decay": decay if decays else 0.0}
                groups.append({"params": members, "part": part, **rates})
    return groups


def adamw(groups: list[dict[str, Any]], params: LoopParams) -> torch.optim.AdamW | None:
    """AdamW over the groups, as one fused kernel; None when there is nothing dense to train.

    >>> adamw([], LoopParams()) is None
    True
    """
    if not groups:
        return None
    fused = all(p.is_floating_point() for group in groups for p in group["params"])
    return torch.optim.AdamW(
        groups, betas=(params.beta1, params.beta2), eps=params.eps, fused=fused
    )


def clip_gradients(gradients: Sequence[Tensor], limit: float) -> None:
    """Scales gradients in place so that their joint norm is at most ``limit``; never waits.

    >>> gradient = torch.tensor([3.0, 4.0])
    >>> clip_gradients([gradient], 1.0)
    >>> round(gradient.norm().item(), 3)
    1.0
    """
    if not gradients:
        return
    factor = (limit / (joint_norm(gradients) + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(list(gradients), factor)


def joint_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients taken as one vector.

    >>> joint_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    norm: Tensor = torch.stack(torch._foreach_norm(list(gradients))).norm()
    return norm


@dataclass
class LossScale:
    """Keeps fp16 gradients in range: the loss is multiplied, the gradients divided again.

    It grows after ``patience`` good updates and halves when a gradient overflows; that update is
    left out. Reading whether it overflowed waits for the GPU: bf16 needs none of this.

    >>> scale = LossScale(1024.0)
    >>> scale.restore([torch.tensor([float("inf")])]), scale.value
    (False, 512.0)
    """

    value: float = 65536.0
    good: int = 0
    patience: int = 2000

    def restore(self, gradients: Sequence[Tensor]) -> bool:
        """Divides the gradients by the scale; False when this update must be left out."""
        if gradients:
            torch._foreach_mul_(list(gradients), 1 / self.value)
            if not joint_norm(gradients).isfinite().item():
                self.value, self.good = self.value / 2, 0
                if self.value < 1e-4:
                    raise ConfigError(
                        "precision: fp16 gradients are not finite at any scale; "
                        "take bf16 or fp32, or a lower lr"
                    )
                return False
        self.good += 1
        if self.good >= self.patience:
            self.value, self.good = self.value * 2, 0
        return True


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and name.rpartition(".")[2] != "bias"
