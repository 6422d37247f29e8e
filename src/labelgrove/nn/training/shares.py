"""How an epoch's batches become updates, alone or shared among processes that train together."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy.typing as npt

from labelgrove.errors import ConfigError


class BatchLike(Protocol):
    """What the loop asks of a batch: its documents' numbers, and how many real tokens it has."""

    @property
    def rows(self) -> npt.NDArray[Any]: ...

    @property
    def tokens(self) -> int: ...

    def to(self, device: Any) -> Self: ...


class BatchesLike(Protocol):
    """Batches of an epoch, the same ones whenever the same epoch is asked for again.

    They may be one process's share already; then they say of how many (``world``).
    """

    def __len__(self) -> int: ...

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Share:
    """One process's part of an update: a weight for each of its batches' mean losses.

    ``batches`` and ``tokens`` count those of all processes.
    """

    weights: list[float]
    batches: int
    tokens: int


def processes_sharing(batches: BatchesLike, count: int) -> int:
    """Among how many processes the loop has to share out ``batches``: 1 where that was done before.

    Such batches are of nearly equal size in all processes, and count the same.

    >>> from types import SimpleNamespace
    >>> [processes_sharing(SimpleNamespace(world=world), 2) for world in (1, 2)]
    [2, 1]
    """
    world = getattr(batches, "world", 1)
    if world not in (1, count):
        raise ConfigError(f"the batches are shared among {world} processes, but {count} train")
    return 1 if world == count else count


def shared(
    batches: Iterator[Any], shares: deque[Share], *, accumulate: int, count: int = 1, rank: int = 0
) -> Iterator[Any]:
    """The batches of process ``rank`` of ``count``; before an update's first, its share is queued.

    Every process sees all batches. So each knows how many documents an update has, and each
    document counts the same however unequal the batches are.

    >>> from types import SimpleNamespace
    >>> batches = [SimpleNamespace(rows=[0] * n, tokens=n) for n in (3, 1, 2)]
    >>> shares = deque()
    >>> [len(batch.rows) for batch in shared(iter(batches), shares, accumulate=2)]
    [3, 1, 2]
    >>> [share.weights for share in shares]
    [[0.75, 0.25], [1.0]]
    """
    while together := list(itertools.islice(batches, accumulate * count)):
        documents = sum(len(batch.rows) for batch in together)
        own = [(batch, count * len(batch.rows) / documents) for batch in together[rank::count]]
        if len(own) < math.ceil(len(together) / count):
            # The others wait for this process's gradients: they get those of nothing.
            own.append((together[0], 0.0))
        tokens = sum(int(batch.tokens) for batch in together)
        shares.append(Share([weight for _, weight in own], len(together), tokens))
        yield from (batch for batch, _ in own)
