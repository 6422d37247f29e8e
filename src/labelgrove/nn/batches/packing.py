"""Texts one after the other, without padding between them, in batches of one shape.

Every batch has as many documents as any other, give or take one, and nearly as many tokens: the
documents are sorted by length and dealt out like cards, a round of like lengths at a time. What is
missing to the common number of tokens is filled with padding that no document sees. One shape for
all batches is what lets a compiled encoder be compiled once; and unlike batches of like lengths,
each is a fair sample of the corpus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labelgrove.core.arrays import Int64
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.nn.encoders.tokens import Tokens

try:
    import torch
    from torch import Tensor
except ImportError as missing:
    raise MissingExtraError("torch", "batches for a neural encoder") from missing


@dataclass(frozen=True)
class PackedBatch:
    """Documents ``rows`` as one row of token numbers, ``ids``.

    ``positions`` counts each token within its document. Document i begins at ``bounds[i]`` and ends
    where the next begins; the last ones are padding. None is longer than ``longest``. ``tokens``
    counts what is not padding.
    """

    rows: Int64
    ids: Tensor
    positions: Tensor
    bounds: Tensor
    longest: int
    tokens: int

    def __len__(self) -> int:
        return len(self.rows)

    def to(self, device: str | torch.device) -> PackedBatch:
        """The batch on ``device``; from pinned memory the copy does not make anybody wait."""
        return replace(
            self,
            ids=self.ids.to(device, non_blocking=True),
            positions=self.positions.to(device, non_blocking=True),
            bounds=self.bounds.to(device, non_blocking=True),
        )

    def pin(self) -> PackedBatch:
        """The batch in memory that a GPU can read by itself."""
        return replace(
            self,
            ids=self.ids.pin_memory(),
            positions=self.positions.pin_memory(),
            bounds=self.bounds.pin_memory(),
        )


class PackedBatches:
    """Deals documents into batches, epoch by epoch; every document is in one batch of an epoch.

    A batch has at most ``size`` documents and, with ``max_tokens``, at most so many tokens,
    padding included. An epoch's batches follow from (seed, epoch) alone.

    >>> tokens = Tokens(np.arange(8, dtype=np.int32), np.array([0, 3, 4, 6, 8]))
    >>> batches = PackedBatches(tokens, 2, pad_id=0, multiple=1)
    >>> [(len(batch), len(batch.ids), batch.tokens) for batch in batches.epoch(0)]
    [(2, 5, 4), (2, 5, 4)]
    """

    def __init__(
        self,
        tokens: Tokens,
        size: int,
        *,
        pad_id: int,
        seed: int = 0,
        max_tokens: int | None = None,
        multiple: int = 128,
    ) -> None:
        for name, value in (("size", size), ("max_tokens", max_tokens), ("multiple", multiple)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be at least 1, got {value}")
        if len(tokens) == 0:
            raise DataError("there are no documents to make batches of")
        self.tokens, self.pad_id, self.seed = tokens, pad_id, seed
        lengths = np.sort(tokens.lengths)[::-1]
        self.longest = max(int(lengths[0]), 1)
        if max_tokens is not None and self.longest > max_tokens:
            raise ConfigError(
                f"max_tokens: a batch of {max_tokens} tokens cannot hold a text of {self.longest}"
            )
        self._count = _fewest_batches(lengths, -(-len(lengths) // size), max_tokens)
        self.rounds = -(-len(lengths) // self._count)
        capacity = -(-_most_dealt(lengths, self._count) // multiple) * multiple
        self.capacity = capacity if max_tokens is None else min(capacity, max_tokens)
        least = int(lengths[self._count - 1 :: self._count].sum())
        self._fillers = -(-(self.capacity - least) // self.longest)

    def __len__(self) -> int:
        return self._count

    def epoch(self, number: int, *, start: int = 0) -> Iterator[PackedBatch]:
        """The batches of an epoch, from batch ``start`` on.

        >>> tokens = Tokens(np.arange(4, dtype=np.int32), np.arange(5))
        >>> batches = PackedBatches(tokens, 1, pad_id=0, seed=3)
        >>> whole = [batch.rows.tolist() for batch in batches.epoch(7)]
        >>> [batch.rows.tolist() for batch in batches.epoch(7, start=2)] == whole[2:]
        True
        """
        dealt = self._dealt(number)
        for column in range(start, self._count):
            rows = dealt[:, column]
            yield self._batch(rows[rows >= 0])

    def padding(self) -> float:
        """The share of an epoch's numbers that are padding.

        >>> tokens = Tokens(np.arange(3, dtype=np.int32), np.array([0, 2, 3]))
        >>> PackedBatches(tokens, 2, pad_id=0, multiple=4).padding()
        0.25
        """
        return 1 - int(self.tokens.lengths.sum()) / (self._count * self.capacity)

    def _dealt(self, epoch: int) -> Int64:
        """Document numbers, rounds x batches; -1 where the last round has no card left."""
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.tokens))
        # Stable: which of the documents of equal length make it into a round is left to chance.
        order = order[np.argsort(-self.tokens.lengths[order], kind="stable")]
        rounds = np.full((self.rounds, self._count), -1, dtype=np.int64)
        rounds.reshape(-1)[: len(order)] = order
        return random.permuted(rounds, axis=1)

    def _batch(self, rows: Int64) -> PackedBatch:
        starts = self.tokens.offsets[rows]
        lengths = self.tokens.offsets[rows + 1] - starts
        used = int(lengths.sum())
        # Documents, then fillers of at most the longest text's length, then empty ones.
        bounds = np.full(self.rounds + self._fillers + 1, self.capacity, dtype=np.int32)
        bounds[: len(rows) + 1] = np.concatenate([[0], np.cumsum(lengths)])
        fillers = bounds[len(rows) + 1 :]
        np.minimum(used + self.longest * np.arange(1, len(fillers) + 1), self.capacity, out=fillers)
        widths = np.diff(bounds)
        positions = np.arange(self.capacity) - np.repeat(bounds[:-1], widths)
        ids = np.full(self.capacity, self.pad_id, dtype=np.int64)
        ids[:used] = self.tokens.ids[np.repeat(starts, lengths) + positions[:used]]
        return PackedBatch(
            rows,
            torch.from_numpy(ids),
            torch.from_numpy(positions),
            torch.from_numpy(bounds),
            self.longest,
            used,
        )


def _most_dealt(descending: Any, count: int) -> int:
    """The most tokens that one of ``count`` batches can be dealt: the longest of every round."""
    return max(int(descending[::count].sum()), 1)


def _fewest_batches(descending: Any, least: int, max_tokens: int | None) -> int:
    """The fewest batches, at least ``least``, of which none is ever dealt too many tokens."""
    if max_tokens is None:
        return least
    counts = range(least, len(descending) + 1)
    # More batches, less in the fullest: the first that fits is found by halving.
    return counts[bisect_left(counts, -max_tokens, key=lambda n: -_most_dealt(descending, n))]
