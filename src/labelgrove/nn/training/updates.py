"""One update of a model: loss, gradients, clipping, optimisers, and the mean of the weights."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from labelgrove.errors import ConfigError
from labelgrove.nn.batches import BatchLike
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.heads.full import ONE_PROCESS, FullDescent, FullHead, full_heads
from labelgrove.nn.heads.row_step import RowStep
from labelgrove.nn.heads.rows import RowOptimizer, RowTable, row_tables, sum_by_row
from labelgrove.nn.training import devices, optim
from labelgrove.nn.training.checkpoint import fill
from labelgrove.nn.training.devices import Workers, derived_seed
from labelgrove.nn.training.params import TrainingParams

FEWEST_SAMPLES = 3  # of a mean of weights, after the first; one sample alone is no mean

LossOf = Callable[[Any, Any], Tensor]  # of a model and one of its batches
Cast = Callable[[], contextlib.AbstractContextManager[object]]


class BatchesLike(Protocol):
    """Batches by epoch; the same epoch always has the same batches."""

    def __len__(self) -> int: ...

    def epoch(self, number: int, *, start: int = 0) -> Iterator[BatchLike]: ...


@dataclass(frozen=True)
class Share:
    """A weight for each of one process's batches in an update; counts are of all processes."""

    weights: list[float]
    batches: int
    tokens: int


def shared(
    batches: Iterator[BatchLike],
    shares: deque[Share],
    *,
    accumulate: int,
    count: int = 1,
    rank: int = 0,
) -> Iterator[BatchLike]:
    """The batches of process ``rank`` of ``count``; queues each update's share before its batches.

    Every process sees all batches, so that every document counts the same even if batches differ.
    """
    while together := list(itertools.islice(batches, accumulate * count)):
        documents = sum(len(batch.rows) for batch in together)
        own = [(batch, count * len(batch.rows) / documents) for batch in together[rank::count]]
        if len(own) < math.ceil(len(together) / count):
            # The other processes wait for gradients from this one: it sends zeros.
            own.append((together[0], 0.0))
        tokens = sum(batch.tokens for batch in together)
        shares.append(Share([weight for _, weight in own], len(together), tokens))
        yield from (batch for batch, _ in own)


class Updates:
    """Makes the ``total`` updates of ``model``.

    No update waits for the GPU: ``loss_sum`` adds up on the device.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_of: LossOf,
        params: TrainingParams,
        *,
        total: int,
        workers: Workers,
        seed: int,
    ) -> None:
        self.params, self.total, self.workers, self.seed = params, total, workers, seed
        device = workers.device
        self.tables, self.full = row_tables(model), full_heads(model)
        if workers.count > 1 and self.full:
            raise ConfigError(ONE_PROCESS)
        learns = self.tables or self.full or any(p.requires_grad for p in model.parameters())
        if not learns:
            raise ConfigError("the model has nothing to train: no parameter requires a gradient")
        self.precision = devices.choose_precision(params.precision, device)
        # A second batch of an update would overwrite the gradients that a replayed graph returns.
        alone = params.accumulate == 1 and workers.count == 1 and device.type == "cuda"
        encoder = getattr(model, "encoder", model)
        self.recorded = encoder if isinstance(encoder, Encoder) else None
        if self.recorded is not None:
            self.recorded.record(alone)
        cast = _WithLoss(model, loss_of, lambda: devices.autocast(self.precision, device))
        self.module = workers.wrap(cast)
        self.optimizer = optim.AdamW(optim.parameter_groups(model, params), params)
        self.rows = RowOptimizer(self.tables)
        self.descents = {name: FullDescent(head) for name, head in self.full.items()}
        self.full_updates = 0
        self.scale = optim.LossScale() if self.precision == "fp16" else None
        self.average = _average(model, {**self.tables, **self.full}, params, total)
        self.loss_sum = torch.zeros((), device=device)

    def make(self, step: int, share: Share, batches: Iterator[BatchLike]) -> None:
        """Update ``step`` (from 0) on this process's batches."""
        devices.seed_torch(derived_seed(self.seed, step, self.workers.rank), self.workers.device)
        scale = 1.0 if self.scale is None else self.scale.value
        for i, (weight, batch) in enumerate(zip(share.weights, batches, strict=True)):
            is_last = i == len(share.weights) - 1
            with contextlib.nullcontext() if is_last else self.workers.apart(self.module):
                with self._full_heads_learn(step, i, weight):
                    loss = self.module(batch)
                (loss * (weight * scale)).backward()
            self.loss_sum += loss.detach() * weight
        self.rows.collect(self._mean_rows if self.workers.count > 1 else None)
        encoder, head = self._gradients("encoder"), self._gradients("head") + self.rows.gradients()
        if self.scale is None or self.scale.restore(encoder + head):
            if self.params.clip_norm is not None:
                optim.clip_gradients(encoder, self.params.clip_norm)
                optim.clip_gradients(head, self.params.clip_norm)
            self._descend(step)
        self.rows.clear()
        self.optimizer.clear()
        if self.average is not None:
            self.average.update(step + 1)

    def release(self) -> None:
        """Frees the GPU memory of recorded passes."""
        if self.recorded is not None:
            self.recorded.record(False)

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """Everything but the model and :meth:`numbers` that an exact continuation needs."""
        return {
            "optimizer": self.optimizer.state(),
            "rows": self.rows.state(),
            "full": self._full_state(),
            "average": {} if self.average is None else self.average.state(),
            "loss": {"sum": self.loss_sum},
        }

    def numbers(self) -> dict[str, float]:
        """The numbers that belong to :meth:`tensors`."""
        scale = self.scale or optim.LossScale()
        return {
            "table_updates": self.rows.updates,
            "full_updates": self.full_updates,
            "samples": 0 if self.average is None else self.average.samples,
            "scale": scale.value,
            "good_at_scale": scale.good,
        }

    def load(
        self, tensors: Mapping[str, Mapping[str, Tensor]], numbers: Mapping[str, float], what: str
    ) -> None:
        """Continues from what :meth:`tensors` and :meth:`numbers` returned."""
        fill(self.optimizer.state(), tensors["optimizer"], what)
        fill(self.rows.state(), tensors["rows"], what)
        fill(self._full_state(), tensors["full"], what)
        fill({"sum": self.loss_sum}, tensors["loss"], what)
        self.rows.updates = int(numbers["table_updates"])
        self.full_updates = int(numbers.get("full_updates", 0))
        if self.average is not None:
            self.average.load(tensors["average"], int(numbers["samples"]))
        if self.scale is not None:
            self.scale = optim.LossScale(numbers["scale"], int(numbers["good_at_scale"]))

    def _mean_rows(self, ids: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The mean over all processes of the gradients of table rows."""
        ids, total = sum_by_row(*self.workers.gather_rows(ids, gradient))
        return ids, total / self.workers.count

    def _descend(self, step: int) -> None:
        params = self.params
        factor = optim.rate_factor(step, self.total, params)
        self.optimizer.beta1 = optim.first_beta(step, self.total, params)
        for group in self.optimizer.groups:
            group["lr"] = group["peak"] * factor
        self.optimizer.step()
        self.rows.step(replace(self._row_step(step), beta1=self.optimizer.beta1))

    def _row_step(self, step: int) -> RowStep:
        params = self.params
        peak = params.lr if params.head_lr is None else params.head_lr
        return RowStep(
            lr=peak * optim.rate_factor(step, self.total, params),
            weight_decay=params.head_weight_decay,
            beta2=params.beta2,
            eps=params.eps,
        )

    @contextlib.contextmanager
    def _full_heads_learn(self, step: int, number: int, weight: float) -> Iterator[None]:
        """A context in which full heads learn from the loss of a batch as it is computed.

        Their gradients are never stored. So with ``accumulate`` they take a step for each batch;
        ``clip_norm`` does not limit them, fp16's scale does not reach them, and an update that is
        skipped because the encoder's gradients overflowed has already changed them.
        """
        if not self.full:
            yield
            return
        self.full_updates += 1
        try:
            for name, head in self.full.items():
                own = replace(
                    self._row_step(step),
                    update=self.full_updates,
                    share=weight,
                    seed=derived_seed(self.seed, step, number),
                )
                head.change = partial(self.descents[name].change, step=own)
            yield
        finally:
            for head in self.full.values():
                head.change = None

    def _full_state(self) -> dict[str, Tensor]:
        return {
            f"{name}.{key}": tensor
            for name, inputs in self.descents.items()
            for key, tensor in inputs.state().items()
        }

    def _gradients(self, part: str) -> list[Tensor]:
        groups = [group for group in self.optimizer.groups if group["part"] == part]
        gradients = [p.grad for group in groups for p in group["params"]]
        return [gradient for gradient in gradients if gradient is not None]


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
        originals = {name: self._live[name].clone() for name in self._mean}
        try:
            self.apply()
            yield
        finally:
            for name, original in originals.items():
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


class _WithLoss(nn.Module):
    """The model and its loss as one forward pass, for distributed training to wrap."""

    def __init__(self, model: nn.Module, loss_of: LossOf, cast: Cast) -> None:
        super().__init__()
        self.model = model
        self._loss_of = loss_of
        self._cast = cast

    def forward(self, batch: BatchLike) -> Tensor:
        with self._cast():
            return self._loss_of(self.model, batch)


def _average(
    model: nn.Module, tables: Mapping[str, RowTable | FullHead], params: TrainingParams, total: int
) -> Average | None:
    if params.average == "none":
        return None
    tensors: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}
    for name, table in tables.items():
        tensors |= {f"{name}.{part}": values for part, values in table.named_buffers()}
    if params.swa_start > total:
        raise ConfigError(
            f"training.swa_start: averaging would begin after {params.swa_start:,.0f} updates, "
            f"but training has only {total:,}"
        )
    start = max(1, optim.share_of_steps(params.swa_start, total))
    every = min(params.swa_every, max(1, (total - start) // FEWEST_SAMPLES))
    return Average(tensors, start=start, every=every)
