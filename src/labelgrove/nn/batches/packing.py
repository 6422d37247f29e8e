"""Batches of one shape in which texts follow each other without padding between them.

All batches have the same number of documents, give or take one, and nearly the same number of
tokens: documents are sorted by length and dealt out like cards, a round of similar lengths at a
time. Padding at the end, which no document sees, fills a batch to the common number of tokens.
With one shape, an encoder is compiled once; and each batch is a fair sample of the corpus, unlike
batches of similar lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.arrays import Int32, Int64, offsets
from labelgrove.errors import DataError
from labelgrove.nn.batches.padded import Movable
from labelgrove.nn.encoders.tokens import Tokens

_MULTIPLE = 128  # the tokens of a batch are a multiple of this


@dataclass(frozen=True)
class PackedBatch(Movable):
    """Documents ``rows`` as one row of token numbers, ``ids``; ``tokens`` are not padding.

    ``positions`` numbers the tokens within their document. Document i begins at ``bounds[i]`` and
    ends where the next begins; the last ones are padding. None is longer than ``longest``.
    """

    rows: Int64
    ids: Tensor
    positions: Tensor
    bounds: Tensor
    longest: int
    tokens: int

    def __len__(self) -> int:
        return len(self.rows)


class PackedBatches:
    """Deals documents into batches of at most ``size``, and ``max_tokens`` with the padding."""

    def __init__(
        self,
        tokens: Tokens,
        size: int,
        *,
        pad_id: int,
        seed: int = 0,
        max_tokens: int | None = None,
    ) -> None:
        if len(tokens) == 0:
            raise DataError("there are no documents to make batches of")
        self.tokens, self.pad_id, self.seed = tokens, pad_id, seed
        lengths = np.sort(tokens.lengths)[::-1]
        self.longest = max(int(lengths[0]), 1)
        self._count = _fewest_batches(lengths, -(-len(lengths) // size), max_tokens)
        self.rounds = -(-len(lengths) // self._count)
        capacity = -(-_most_dealt(lengths, self._count) // _MULTIPLE) * _MULTIPLE
        self.capacity = capacity if max_tokens is None else min(capacity, max_tokens)
        least = int(lengths[self._count - 1 :: self._count].sum())
        self._fillers = -(-(self.capacity - least) // self.longest)

    def __len__(self) -> int:
        return self._count

    def epoch(self, number: int, *, start: int = 0) -> Iterator[PackedBatch]:
        """The batches of an epoch, from batch ``start`` on."""
        dealt = self._dealt(number)
        for column in range(start, self._count):
            rows = dealt[:, column]
            yield self._batch(rows[rows >= 0])

    def _dealt(self, epoch: int) -> Int64:
        """Document numbers, rounds x batches; -1 where the last round has no card left."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.tokens))
        # Stable: documents of equal length stay shuffled.
        order = order[np.argsort(-self.tokens.lengths[order], kind="stable")]
        rounds = np.full((self.rounds, self._count), -1, dtype=np.int64)
        rounds.reshape(-1)[: len(order)] = order
        return random.permuted(rounds, axis=1)

    def _batch(self, rows: Int64) -> PackedBatch:
        shape = self.rounds + self._fillers, self.capacity, self.longest
        return packed_batch(self.tokens, rows, *shape, pad_id=self.pad_id)


def packed_batch(
    tokens: Tokens, rows: Int64, slots: int, capacity: int, longest: int, *, pad_id: int
) -> PackedBatch:
    """Texts ``rows``, fillers no longer than the longest, and empty ones as ``capacity`` tokens."""
    starts = tokens.offsets[rows]
    lengths = tokens.offsets[rows + 1] - starts
    used = int(lengths.sum())
    bounds = np.full(slots + 1, capacity, dtype=np.int32)
    bounds[: len(rows) + 1] = offsets(lengths)
    fillers = bounds[len(rows) + 1 :]
    np.minimum(used + longest * np.arange(1, len(fillers) + 1), capacity, out=fillers)
    widths = np.diff(bounds)
    positions = np.arange(capacity) - np.repeat(bounds[:-1], widths)
    ids = np.full(capacity, pad_id, dtype=np.int64)
    ids[:used] = tokens.ids[np.repeat(starts, lengths) + positions[:used]]
    return PackedBatch(
        rows,
        torch.from_numpy(ids),
        torch.from_numpy(positions),
        torch.from_numpy(bounds),
        longest,
        used,
    )


def _most_dealt(descending: Int32, count: int) -> int:
    """The most tokens that one of ``count`` batches can get: the longest text of every round."""
    return max(int(descending[::count].sum()), 1)


def _fewest_batches(descending: Int32, least: int, max_tokens: int | None) -> int:
    """The fewest batches, at least ``least``, of which none can get too many tokens."""
    if max_tokens is None:
        return least
    counts = range(least, len(descending) + 1)
    # More batches have less in the fullest one, so halving finds the first count that fits.
    return counts[bisect_left(counts, -max_tokens, key=lambda n: -_most_dealt(descending, n))]
