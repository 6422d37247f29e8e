"""Tokenised documents in batches, padded or packed, in a random order that can be repeated.

An epoch's order depends only on (seed, epoch), so a run can continue in the middle of an epoch.

Padded batches have documents of similar lengths: they are sorted by padded length, shuffled among
those of equal length and cut into batches; then the batches are shuffled. The cuts depend only on
the lengths, so every epoch has the same number of batches, with the same shapes.

In packed batches texts follow each other without padding between them. All have one shape: the same
number of documents, give or take one, and nearly the same number of tokens. Documents are sorted by
length and dealt out like cards, a round of similar lengths at a time. Padding at the end, which no
document sees, fills a batch to the common number of tokens. With one shape, a pass is recorded only
once; and each batch is a fair sample of the corpus.
"""

from __future__ import annotations

import queue
import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.arrays import Int32, Int64, offsets
from labelgrove.errors import DataError
from labelgrove.nn.encoders.tokens import Tokens

_SHUFFLE, _BATCHES = 0, 1  # names of random streams
_MULTIPLE = 8  # padded lengths are multiples of this, so that shapes repeat
_PACKED_MULTIPLE = 128  # the tokens of a packed batch are a multiple of this
AHEAD = 2  # batches that wait for the device


class Movable:
    """Base of dataclasses whose tensors, and those of their parts, move to a device together."""

    def to(self, device: str | torch.device) -> Self:
        """A copy on ``device``; copying from pinned memory does not block."""
        return _with_tensors(self, lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> Self:
        """A copy in pinned memory, which a GPU can read by itself."""
        return _with_tensors(self, lambda tensor: tensor.pin_memory())


class BatchLike(Protocol):
    """What training needs of a batch: the numbers of its documents, and how many tokens it has."""

    @property
    def rows(self) -> Int64: ...

    @property
    def tokens(self) -> int: ...

    def to(self, device: torch.device) -> Self: ...

    def pin(self) -> Self: ...


AnyMovable = TypeVar("AnyMovable", bound=Movable)
AnyBatch = TypeVar("AnyBatch", bound=BatchLike)


def _with_tensors(batch: AnyMovable, change: Callable[[Tensor], Tensor]) -> AnyMovable:
    copies = {
        name: change(value) if isinstance(value, Tensor) else _with_tensors(value, change)
        for name, value in vars(batch).items()
        if isinstance(value, Tensor | Movable)
    }
    return replace(batch, **copies)  # type: ignore[type-var]


@dataclass(frozen=True)
class Batch(Movable):
    """Documents ``rows`` as padded token numbers; ``mask`` is 1 for the ``tokens`` among them."""

    rows: Int64
    ids: Tensor
    mask: Tensor
    tokens: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def attention(self) -> Tensor | None:
        """The mask for an encoder; None if nothing is padded, so no one has to ask the GPU."""
        return None if self.tokens == self.ids.numel() else self.mask


class Batches:
    """Cuts documents into batches; every document is in one batch of an epoch.

    A batch has at most ``size`` documents and at most ``max_tokens`` tokens, padding included; one
    of the two may be None. Without ``shuffle``, every epoch is the same, longest texts first.
    """

    def __init__(
        self,
        tokens: Tokens,
        size: int | None,
        *,
        pad_id: int,
        pad_left: bool = False,
        seed: int = 0,
        shuffle: bool = True,
        max_tokens: int | None = None,
    ) -> None:
        if len(tokens) == 0:
            raise DataError("there are no documents to make batches of")
        self.tokens, self.seed, self.shuffle = tokens, seed, shuffle
        self.pad_id, self.pad_left = pad_id, pad_left
        # Padding ends at the longest text: the encoder may have no positions beyond it.
        self._limit = tokens.longest
        self._padded = self._round_up(tokens.lengths)
        descending = np.sort(self._padded)[::-1]
        self._bounds = _cut(descending, size or len(descending), max_tokens)
        self._first_lengths = descending[self._bounds[:-1]]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from batch ``start`` on."""
        order = self._order(number)
        for step in self._steps(number)[start:].tolist():
            yield self._batch(order[self._bounds[step] : self._bounds[step + 1]])

    def _round_up(self, lengths: Int32) -> Int32:
        return np.minimum(-(-lengths // _MULTIPLE) * _MULTIPLE, self._limit)

    def _order(self, epoch: int) -> Int64:
        """Document numbers in the order in which they are cut into batches."""
        order = np.arange(len(self._padded))
        if self.shuffle:
            order = self._random(epoch, _SHUFFLE).permutation(len(self._padded))
        # Stable: documents of one padded length stay shuffled.
        return order[np.argsort(-self._padded[order], kind="stable")]

    def _steps(self, epoch: int) -> Int64:
        steps = np.arange(len(self))
        if self.shuffle and len(steps):
            steps = self._random(epoch, _BATCHES).permutation(len(steps))
            # The largest first: if it does not fit the GPU, it fails now and not in an hour.
            sizes = np.diff(self._bounds) * self._first_lengths
            largest = int(np.flatnonzero(steps == sizes.argmax())[0])
            steps[[0, largest]] = steps[[largest, 0]]
        return steps

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, epoch, stream])

    def _batch(self, rows: Int64) -> Batch:
        tokens = self.tokens
        starts = tokens.offsets[rows]
        lengths = tokens.offsets[rows + 1] - starts
        width = int(self._round_up(lengths.max()))
        place = np.arange(width)
        if self.pad_left:
            starts = starts + lengths - width
            mask = place >= width - lengths[:, None]
        else:
            mask = place < lengths[:, None]
        ids = np.full(mask.shape, self.pad_id, dtype=np.int64)
        ids[mask] = tokens.ids[(starts[:, None] + place)[mask]]
        return Batch(
            rows, torch.from_numpy(ids), torch.from_numpy(mask.astype(np.int64)), int(lengths.sum())
        )


def _cut(descending: Int32, size: int, max_tokens: int | None) -> Int64:
    """Bounds of the batches among documents in descending order of padded length."""
    count = len(descending)
    bounds = [0]
    while bounds[-1] < count:
        fit = size if max_tokens is None else max_tokens // int(max(descending[bounds[-1]], 1))
        bounds.append(min(bounds[-1] + max(1, min(size, fit)), count))
    return np.array(bounds, dtype=np.int64)


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
        capacity = -(-_most_dealt(lengths, self._count) // _PACKED_MULTIPLE) * _PACKED_MULTIPLE
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


def prefetched(
    batches: Iterable[AnyBatch], device: str | torch.device
) -> Generator[AnyBatch, None, None]:
    """The batches on ``device``, made by a thread that stays ahead; its errors are raised here."""
    target = torch.device(device)
    pin = target.type == "cuda"
    ready: queue.Queue[AnyBatch | BaseException | None] = queue.Queue(maxsize=AHEAD)
    stop = threading.Event()

    def hand_over(item: AnyBatch | BaseException | None) -> None:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def produce() -> None:
        try:
            for batch in batches:
                hand_over(batch.pin() if pin else batch)
                if stop.is_set():
                    return
            hand_over(None)
        except BaseException as error:  # raised again in the caller's thread
            hand_over(error)

    thread = threading.Thread(target=produce, name="labelgrove-batches", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item.to(target)
    finally:
        stop.set()
        thread.join()
