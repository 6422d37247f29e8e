"""How an epoch's batches become updates, in one process or in several that train together."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from labelgrove.errors import ConfigError


class BatchesLike(Protocol):
    """Batches by epoch; the same epoch always has the same batches.

    A batch has ``rows`` (the numbers of its documents), ``tokens`` (how many are no padding) and
    ``to(device)``. If the batches are one process's share, ``world`` is the number of processes.
    """

    def __len__(self) -> int: ...

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Share:
    """One process's part of an update: a weight for the mean loss of each of its batches.

    ``batches`` and ``tokens`` count those of all processes.
    """

    weights: list[float]
    batches: int
    tokens: int


def processes_sharing(batches: BatchesLike, count: int) -> int:
    """The number of processes among which the loop must share out ``batches``.

    This is 1 if they are shared out already. Such batches have nearly the same size in all
    processes and count the same.
    """
    world = getattr(batches, "world", 1)
    if world not in (1, count):
        raise ConfigError(f"the batches are shared among {world} processes, but {count} train")
    return 1 if world == count else count


def shared(
    batches: Iterator[Any], shares: deque[Share], *, accumulate: int, count: int = 1, rank: int = 0
) -> Iterator[Any]:
    """The batches of process ``rank`` of ``count``; queues each update's share before its batches.

    Every process sees all batches. So each knows how many documents an update has, and every
    document counts the same even if batches differ in size.
    """
    while together := list(itertools.islice(batches, accumulate * count)):
        documents = sum(len(batch.rows) for batch in together)
        own = [(batch, count * len(batch.rows) / documents) for batch in together[rank::count]]
        if len(own) < math.ceil(len(together) / count):
            # The other processes wait for gradients from this one: it sends zeros.
            own.append((together[0], 0.0))
        tokens = sum(int(batch.tokens) for batch in together)
        shares.append(Share([weight for _, weight in own], len(together), tokens))
        yield from (batch for batch, _ in own)
