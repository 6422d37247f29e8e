"""Running means of weights, kept in float32: stochastic weight averaging and exponential means."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Literal

from labelgrove.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
except ImportError as missing:
    raise MissingExtraError("torch", "training a neural model") from missing


class Average:
    """The mean of tensors over the steps of training.

    ``swa``: the plain mean of samples taken every ``every`` steps from ``start`` on. ``ema``: an
    exponential mean from ``start`` on that keeps ``decay`` of itself at each step, less at first
    ((1 + n) / (10 + n) after n steps), so that the starting point is soon forgotten.

    >>> weight = torch.zeros(1)
    >>> average = Average({"weight": weight}, "swa")
    >>> for step in (1, 2, 3):
    ...     _ = weight.fill_(step); average.update(step)
    >>> with average.applied():
    ...     weight.item()
    2.0
    >>> weight.item()
    3.0
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        kind: Literal["swa", "ema"],
        *,
        start: int = 0,
        every: int = 1,
        decay: float = 0.999,
    ) -> None:
        self.kind, self.start, self.every, self.decay = kind, start, every, decay
        self.samples = 0
        self._live = {name: t.detach() for name, t in tensors.items()}
        self._mean: dict[str, Tensor] = {}

    def update(self, step: int) -> None:
        """Takes the tensors after ``step`` into the mean, when it is time to."""
        if step < self.start or (self.kind == "swa" and (step - self.start) % self.every):
            return
        if not self._mean:
            self._mean = {n: t.to(torch.float32, copy=True) for n, t in self._live.items()}
        else:
            self._mix(1 / (self.samples + 1) if self.kind == "swa" else 1 - self._kept())
        self.samples += 1

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The tensors hold the mean in here, and what they held before afterwards."""
        held: dict[str, Tensor] = {}
        try:
            for name, mean in self._mean.items():
                held[name] = self._exchange(name, mean)
            yield
        finally:
            for name, before in held.items():
                mean = self._mean[name]
                if before is mean:  # they were exchanged: exchange them back
                    self._exchange(name, mean)
                else:
                    self._live[name].copy_(before)

    def apply(self) -> None:
        """Puts the mean into the tensors for good."""
        for name, mean in self._mean.items():
            self._live[name].copy_(mean)

    def state(self) -> dict[str, Tensor]:
        """The means by name; together with ``samples`` all there is to restore."""
        return self._mean

    def load(self, means: Mapping[str, Tensor], samples: int) -> None:
        """Continues from means that :meth:`state` gave."""
        self.samples = samples
        self._mean = {n: means[n].to(self._live[n].device, copy=True) for n in means}

    def _kept(self) -> float:
        return min(self.decay, (1 + self.samples) / (10 + self.samples))

    def _mix(self, weight: float) -> None:
        means = list(self._mean.values())
        torch._foreach_lerp_(means, [self._live[n].float() for n in self._mean], weight)

    def _exchange(self, name: str, mean: Tensor) -> Tensor:
        """Puts the mean into a tensor; says where its content went.

        Float32 changes places with the mean, so that only one tensor at a time is held twice.
        """
        live = self._live[name]
        before = live.clone()
        live.copy_(mean)
        if live.dtype != torch.float32:
            return before
        mean.copy_(before)
        return mean
