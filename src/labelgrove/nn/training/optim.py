"""AdamW over groups of dense parameters, gradient clipping, loss scaling and learning rates.

``heads.rows`` has the optimiser of large label tables. Rates are functions of the update's number,
so there is no state to store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from labelgrove.core.aliases import Table
from labelgrove.errors import ConfigError
from labelgrove.nn.training.params import TrainingParams

_CASCADE_START, _CASCADE_END = 0.1, 0.001
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # as torch.optim calls them


def parameter_groups(model: nn.Module, params: TrainingParams) -> list[dict[str, Any]]:
    """Groups for AdamW: ``model.encoder`` and the rest, the heads; biases and norms do not decay.

    Each has its ``part`` (encoder or head) and the ``peak`` rate that schedules multiply.
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
            members = [
                p for name, p in own if decays == (p.ndim > 1 and name.rpartition(".")[2] != "bias")
            ]
            if members:
                rates = {"lr": rate, "peak": rate, "weight_decay": decay if decays else 0.0}
                groups.append({"params": members, "part": part, **rates})
    return groups


class AdamW:
    """AdamW as one fused kernel of torch per group of :func:`parameter_groups`.

    ``torch.optim`` gives the same bits, but its first update imports torch's compiler for seconds.
    """

    def __init__(self, groups: list[dict[str, Any]], params: TrainingParams) -> None:
        self.groups, self.params, self.beta1 = groups, params, params.beta1
        self._moments: dict[Tensor, list[Tensor]] = {
            p: [torch.zeros((), device=p.device), torch.zeros_like(p), torch.zeros_like(p)]
            for group in groups
            for p in group["params"]
        }

    @torch.no_grad()
    def step(self) -> None:
        """Changes all parameters that have gradients."""
        fixed: Table = {"beta1": self.beta1, "beta2": self.params.beta2, "eps": self.params.eps}
        fixed |= {"amsgrad": False, "maximize": False}
        for group in self.groups:
            learning = [p for p in group["params"] if p.grad is not None]
            if learning:
                own = zip(*(self._moments[p] for p in learning), strict=True)
                steps, first, second = map(list, own)
                torch._foreach_add_(steps, 1)
                gradients: list[Any] = [p.grad for p in learning]
                rates: Table = {"lr": group["lr"], "weight_decay": group["weight_decay"]}
                torch._fused_adamw_(learning, gradients, first, second, [], steps, **rates, **fixed)

    def clear(self) -> None:
        """Drops the gradients."""
        for parameter in self._moments:
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """All moments by "number.name"."""
        every = enumerate(self._moments.values())
        return {f"{n}.{name}": t for n, own in every for name, t in zip(_MOMENTS, own, strict=True)}


def clip_gradients(gradients: Sequence[Tensor], limit: float) -> None:
    """Scales gradients in place to a joint norm of at most ``limit``, without a GPU sync."""
    if gradients:
        factor = (limit / (_joint_norm(gradients) + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(list(gradients), factor)


def _joint_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients taken as one vector."""
    norm: Tensor = torch.stack(torch._foreach_norm(list(gradients))).norm()
    return norm


@dataclass
class LossScale:
    """Keeps fp16 gradients in range: multiplies the loss and divides the gradients.

    The scale doubles after ``patience`` good updates and halves when a gradient overflows. Checking
    for that waits for the GPU; bf16 needs none of this.
    """

    value: float = 65536.0
    good: int = 0
    patience: int = 2000

    def restore(self, gradients: Sequence[Tensor]) -> bool:
        """Divides the gradients by the scale; returns False if this update must be skipped."""
        if gradients:
            torch._foreach_mul_(list(gradients), 1 / self.value)
            if not _joint_norm(gradients).isfinite().item():
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


def share_of_steps(amount: float, total: int) -> int:
    """A parameter as a number of steps: below 1 it is a fraction of all steps."""
    return min(total, round(amount * total) if amount < 1 else round(amount))


def rate_factor(step: int, total: int, params: TrainingParams) -> float:
    """The factor on the learning rates in update ``step`` (0 .. total - 1)."""
    warmup = share_of_steps(params.warmup, total)
    if params.schedule == "cascade":
        floor = _CASCADE_START if step < warmup else _CASCADE_END
        return floor + (1 - floor) * _plateau(step, total, params)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(total - warmup, 1)
    if params.schedule == "linear":
        return 1 - done
    if params.schedule == "cosine":
        return _falling(done)
    return 1.0


def first_beta(step: int, total: int, params: TrainingParams) -> float:
    """The first moment's decay in update ``step``: with cascade, low while the rate is high."""
    if params.beta1_low is None or params.schedule != "cascade":
        return params.beta1
    return params.beta1 + (params.beta1_low - params.beta1) * _plateau(step, total, params)


def _plateau(step: int, total: int, params: TrainingParams) -> float:
    """Half a cosine from 0 to 1 over the warm-up, then flat, then half a cosine down to 0."""
    warmup = share_of_steps(params.warmup, total)
    cooldown = min(share_of_steps(params.cooldown, total), total - warmup)
    if step < warmup:
        return 1 - _falling(step / warmup)
    past_flat = step - (total - cooldown) + 1
    return _falling(past_flat / cooldown) if past_flat > 0 else 1.0


def _falling(done: float) -> float:
    return (1 + math.cos(math.pi * done)) / 2
