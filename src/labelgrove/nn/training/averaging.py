"""Running means of weights, in float32: stochastic weight averaging."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


class Average:
    """The plain mean of tensors, sampled every ``every`` steps of training from ``start`` on."""

    def __init__(self, tensors: Mapping[str, Tensor], *, start: int = 0, every: int = 1) -> None:
        self.start, self.every = start, every
        self.samples = 0
        self._live = {name: t.detach() for name, t in tensors.items()}
        self._mean: dict[str, Tensor] = {}

    def update(self, step: int) -> None:
        """Adds the tensors after ``step`` to the mean, if a sample is due."""
        if step < self.start or (step - self.start) % self.every:
            return
        if not self._mean:
            self._mean = {n: t.to(torch.float32, copy=True) for n, t in self._live.items()}
        else:
            latest = [self._live[name].float() for name in self._mean]
            torch._foreach_lerp_(list(self._mean.values()), latest, 1 / (self.samples + 1))
        self.samples += 1

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the tensors hold the mean; afterwards they are as before."""
        originals: dict[str, Tensor] = {}
        try:
            for name, mean in self._mean.items():
                originals[name] = self._exchange(name, mean)
            yield
        finally:
            for name, original in originals.items():
                mean = self._mean[name]
                if original is mean:  # they were exchanged: exchange them back
                    self._exchange(name, mean)
                else:
                    self._live[name].copy_(original)

    def apply(self) -> None:
        """Puts the mean into the tensors for good."""
        for name, mean in self._mean.items():
            self._live[name].copy_(mean)

    def state(self) -> dict[str, Tensor]:
        """The means by name; together with ``samples``, all there is to restore."""
        return self._mean

    def load(self, means: Mapping[str, Tensor], samples: int) -> None:
        """Continues from the means that :meth:`state` returned."""
        self.samples = samples
        self._mean = {n: means[n].to(self._live[n].device, copy=True) for n in means}

    def _exchange(self, name: str, mean: Tensor) -> Tensor:
        """Puts the mean into a tensor and returns the tensor that now has its former content.

        Float32 tensors swap content with the mean, so only one of them is held twice at a time.
        """
        live = self._live[name]
        before = live.clone()
        live.copy_(mean)
        if live.dtype != torch.float32:
            return before
        mean.copy_(before)
        return mean
