"""Label tables divided by rows among the processes that train together.

Every process holds a range of a table's rows, with their gradients and optimiser state. It gathers
the document states of all processes and scores them on its own rows. What it finds goes home, to
the process that reads the document, where losses, logits or best labels of all rows are merged.

Gradients go the same ways back, each of them once. Processes weight their losses so that the mean
over processes is the loss of the update (``training/updates.py``), and gradients of parameters that
all processes have are averaged. The gradient of a row is in one process and already the sum over
all documents. So gradients are divided by the number of processes where they leave home, and
multiplied by it where they return to the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from labelgrove.errors import ConfigError
from labelgrove.nn.heads.losses import Reduction, full_losses
from labelgrove.nn.heads.ragged import NO_NODE

ROWS_AT_ONCE = 1 << 16  # of a table that is put together


@dataclass(frozen=True)
class Shard:
    """The rows that process ``rank`` of ``count`` holds of a table with ``total`` rows."""

    rank: int
    count: int
    total: int

    @property
    def rows(self) -> slice:
        """Those of this process."""
        return self.rows_of(self.rank)

    def rows_of(self, rank: int) -> slice:
        """Those of any process.

        >>> [Shard(0, 3, 10).rows_of(rank) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
        """
        return slice(self.total * rank // self.count, self.total * (rank + 1) // self.count)

    def local(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where rows are in this process, and which of them are; others are 0 and false."""
        here = (ids >= self.rows.start) & (ids < self.rows.stop)
        return (ids - self.rows.start).masked_fill(~here, 0), here

    def whole(self, own: Tensor) -> Tensor:
        """All rows, in main memory, from every process's ``own``; a piece at a time."""
        table = torch.empty((self.total, *own.shape[1:]), dtype=own.dtype)
        for rank in range(self.count):
            rows = self.rows_of(rank)
            for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
                stop = min(start + ROWS_AT_ONCE, rows.stop)
                if rank == self.rank:
                    piece = own[start - rows.start : stop - rows.start].contiguous()
                else:
                    piece = own.new_empty((stop - start, *own.shape[1:]))
                distributed.broadcast(piece, src=rank)
                table[start:stop] = piece.cpu()
        return table


def divide(module: nn.Module, rank: int, count: int) -> None:
    """Leaves a table (a module with ``weight`` and ``bias``) only the rows of one process."""
    weight = module.state_dict()["weight"]
    if len(weight) < count:
        raise ConfigError(
            f"heads.sharded: {len(weight):,} labels are too few for {count} processes; start "
            "fewer, or set heads.sharded=false"
        )
    shard = Shard(rank, count, len(weight))
    for name, parameter in list(module.named_parameters(recurse=False)):
        # A copy: a view would keep the memory of all rows.
        setattr(module, name, nn.Parameter(parameter.detach()[shard.rows].clone()))
    for name, buffer in list(module.named_buffers(recurse=False)):
        setattr(module, name, buffer[shard.rows].clone())
    module.shard = shard  # type: ignore[assignment]


def shard_of(module: object) -> Shard | None:
    """Which rows a table has, if it was divided."""
    shard: Shard | None = getattr(module, "shard", None)
    return shard


def divided_tensors(model: nn.Module) -> dict[str, Shard]:
    """The parameters and buffers of a model that have only the rows of this process, by name."""
    return {
        f"{prefix}.{name}" if prefix else name: shard
        for prefix, module in model.named_modules()
        if (shard := shard_of(module)) is not None
        for name in module.state_dict()
    }


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """The ``state_dict`` of a model with all rows; every process must call this."""
    shards = divided_tensors(model)
    return {
        name: shards[name].whole(tensor) if name in shards else tensor
        for name, tensor in model.state_dict().items()
    }


class Exchange:
    """The documents of one batch in every process; ``own`` has a row for each of this one's."""

    def __init__(self, count: int, own: Tensor) -> None:
        self.count = count
        self._sizes = self._numbers(len(own), own.device)
        self._own = len(own)

    def states(self, own: Tensor) -> Tensor:
        """The rows of all processes, in their order; gradients return to where the rows are."""
        gathered: Tensor = _Gathered.apply(own, self)  # type: ignore[no-untyped-call]
        return gathered

    def lists(self, own: Tensor, padding: float) -> Tensor:
        """The rows of all processes, padded to the same width; without gradients."""
        width = max(self._numbers(own.shape[1], own.device))
        wide = own.new_full((len(own), width), padding)
        wide[:, : own.shape[1]] = own
        return self.gather(wide)

    def home(self, results: Tensor) -> Tensor:
        """What every process found for this process's documents: processes x documents x ..."""
        returned: Tensor = _Home.apply(results, self)  # type: ignore[no-untyped-call]
        return returned

    def gather(self, own: Tensor) -> Tensor:
        """Like :meth:`states`, without gradients."""
        padded = own.new_zeros((max(self._sizes), *own.shape[1:]))
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in self._sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, self._sizes, strict=True)])

    def send(self, results: Tensor) -> Tensor:
        """Like :meth:`home`, without gradients."""
        shape = self._own, *results.shape[1:]
        received = results.new_empty((self.count * shape[0], *shape[1:]))
        distributed.all_to_all_single(
            received, results.contiguous(), [self._own] * self.count, self._sizes
        )
        return received.view(self.count, *shape)

    def send_back(self, returned: Tensor) -> Tensor:
        """The inverse of :meth:`send`."""
        flat = returned.flatten(0, 1).contiguous()
        results = flat.new_empty((sum(self._sizes), *flat.shape[1:]))
        distributed.all_to_all_single(results, flat, self._sizes, [self._own] * self.count)
        return results

    def _numbers(self, own: int, device: torch.device) -> list[int]:
        number = torch.tensor([own], device=device)
        numbers = [torch.empty_like(number) for _ in range(self.count)]
        distributed.all_gather(numbers, number)
        return [int(each) for each in torch.cat(numbers).tolist()]


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.gather(own)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        # From what every process has of it; see the top of this file.
        return ctx.exchange.send(outer[0]).sum(0) * ctx.exchange.count, None


class _Home(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, results: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.send(results)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.exchange.send_back(outer[0]) / ctx.exchange.count, None


def head_losses(
    text: Tensor,
    head: nn.Module,
    truth: Tensor,
    *,
    positive_weights: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """``full_losses`` of a head's logits of ``text``, over the rows of all processes."""
    if (shard := shard_of(head)) is None:
        return full_losses(
            head(text), truth, positive_weights=positive_weights, reduction=reduction
        )
    exchange = Exchange(shard.count, text)
    places, here = shard.local(exchange.lists(truth, NO_NODE))
    own, order = places.masked_fill(~here, NO_NODE).sort(dim=1)
    if positive_weights is not None:
        positive_weights = exchange.lists(positive_weights, 1.0).gather(1, order)
    logits = head(exchange.states(text))
    sums = full_losses(logits, own, positive_weights=positive_weights, reduction="sum")
    total = exchange.home(sums).sum(0)
    return total if reduction == "sum" else total / shard.total


def merged_top(
    shard: Shard, exchange: Exchange, columns: Tensor, scores: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The ``k`` best labels of this process's documents, from the best of every process's rows."""
    none = columns < 0
    columns = (columns + shard.rows.start).masked_fill(none, -1)
    scores = scores.masked_fill(none, -torch.inf)
    missing = 0, k - columns.shape[1]  # a process may have fewer rows than k
    columns = exchange.home(functional.pad(columns, missing, value=-1))
    scores = exchange.home(functional.pad(scores, missing, value=-torch.inf))
    best = scores.transpose(0, 1).flatten(1).topk(min(k, shard.total), dim=1)
    columns = columns.transpose(0, 1).flatten(1).gather(1, best.indices)
    return columns, best.values.masked_fill(columns < 0, 0.0)
