"""How an epoch's batches become updates, in one process or in several that train together."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from labelgrove.nn.batches.padded import BatchLike


class BatchesLike(Protocol):
    """Batches by epoch; the same epoch always has the same batches."""

    def __len__(self) -> int: ...

    def epoch(self, number: int, *, start: int = 0) -> Iterator[BatchLike]: ...


@dataclass(frozen=True)
class Share:
    """One process's part of an update: a weight for the mean loss of each of its batches.

    ``batches`` and ``tokens`` count those of all processes.
    """

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

    Every process sees all batches. So each knows how many documents an update has, and every
    document counts the same even if batches differ in size.
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
