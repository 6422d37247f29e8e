"""Batches of token numbers: of similar lengths, in a random order that can be had again.

An epoch's order follows from (seed, epoch) alone, so that a run continues in the middle of one.
Documents are sorted by their padded length, shuffled among those of equal length, cut into batches,
and the batches are shuffled. Where the cuts are depends on the lengths only: every epoch has the
same number of batches, of the same shapes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int64
from labelgrove.core.strings import row_numbers
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.nn.encoders.tokens import Tokens

try:
    import torch
    from torch import Tensor
except ImportError as missing:
    raise MissingExtraError("torch", "batches for a neural encoder") from missing

_SHUFFLE, _BATCHES = 0, 1  # names of random streams


@dataclass(frozen=True)
class Batch:
    """Documents ``rows`` as padded token numbers; ``mask`` is 1 where a token is.

    ``tokens`` counts what is not padding. ``attention`` is the mask to give to an encoder: None
    where nothing is padded, so that nobody has to ask the GPU whether a mask is needed.

    >>> batch = Batch(np.array([4]), torch.tensor([[5, 7]]), torch.ones(1, 2), tokens=2)
    >>> len(batch), batch.attention is None
    (1, True)
    """

    rows: Int64
    ids: Tensor
    mask: Tensor
    tokens: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def attention(self) -> Tensor | None:
        """The mask, or None where it would be all ones."""
        return None if self.tokens == self.ids.numel() else self.mask

    def to(self, device: str | torch.device) -> Batch:
        """The batch on ``device``; from pinned memory the copy does not make anybody wait.

        >>> Batch(np.array([4]), torch.tensor([[5]]), torch.ones(1, 1), tokens=1).to("cpu").rows
        array([4])
        """
        ids = self.ids.to(device, non_blocking=True)
        return replace(self, ids=ids, mask=self.mask.to(device, non_blocking=True))

    def pin(self) -> Batch:
        """The batch in memory that a GPU can read by itself.

        >>> batch = Batch(np.array([4]), torch.tensor([[5]]), torch.ones(1, 1), tokens=1)
        >>> batch.pin().tokens if torch.cuda.is_available() else batch.tokens
        1
        """
        return replace(self, ids=self.ids.pin_memory(), mask=self.mask.pin_memory())


class Batches:
    """Cuts documents into batches, epoch by epoch; every document is in one batch of an epoch.

    A batch has at most ``size`` documents and, with ``max_tokens``, at most so many tokens
    including padding: short texts then come in larger batches (``size`` may be None). Without
    ``bucketed``, lengths mix; without ``shuffle``, every epoch is the same (longest texts first if
    bucketed, else in document order). ``rows`` restricts the batches to some documents.

    Of ``world`` processes each gets as many batches, step by step of nearly equal length, and
    together they see every document once. A step is one batch in each process.

    Lengths are padded to a multiple of ``multiple``, so that shapes repeat.

    >>> tokens = Tokens(np.arange(6, dtype=np.int32), np.array([0, 3, 4, 6]))
    >>> batches = Batches(tokens, 2, shuffle=False, pad_id=0, multiple=1)
    >>> [(batch.rows.tolist(), batch.ids.tolist()) for batch in batches.epoch(0)]
    [([0, 2], [[0, 1, 2], [4, 5, 0]]), ([1], [[3]])]
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
        bucketed: bool = True,
        max_tokens: int | None = None,
        rows: npt.ArrayLike | None = None,
        multiple: int = 8,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if size is None and max_tokens is None:
            raise ConfigError("batches need a size, a number of tokens (max_tokens), or both")
        for name, value in (("size", size), ("max_tokens", max_tokens), ("multiple", multiple)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be at least 1, got {value}")
        if not 0 <= rank < world:
            raise ConfigError(f"rank: must be from 0 to {world - 1}, got {rank}")
        self.tokens = tokens
        self.seed, self.shuffle, self.bucketed = seed, shuffle, bucketed
        self.rank, self.world = rank, world
        self.pad_id, self.pad_left = pad_id, pad_left
        self._multiple = multiple
        self._rows = None if rows is None else row_numbers(rows, len(tokens))
        if self._rows is not None and len(np.unique(self._rows)) < len(self._rows):
            raise DataError("rows: a document occurs twice")
        lengths = tokens.lengths if self._rows is None else tokens.lengths[self._rows]
        # Not beyond the longest text: the encoder may have no position for what would follow.
        self._limit = int(lengths.max(initial=0))
        self._padded = self._round_up(lengths)
        if len(self._padded) < world:
            raise DataError(f"{len(self._padded)} documents are too few for {world} processes")
        if max_tokens is not None and self._limit > max_tokens:
            raise ConfigError(
                f"max_tokens: a batch of {max_tokens} tokens cannot hold a text of {self._limit}"
            )
        descending = (
            np.sort(self._padded)[::-1] if bucketed else np.full_like(self._padded, self._limit)
        )
        self._bounds = _cut(descending, size or len(descending), max_tokens, world)
        self._first_lengths = descending[self._bounds[:-1]]

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from batch ``start`` on.

        >>> tokens = Tokens(np.arange(4, dtype=np.int32), np.arange(5))
        >>> batches = Batches(tokens, 1, pad_id=0, seed=3)
        >>> whole = [batch.rows.tolist() for batch in batches.epoch(7)]
        >>> [batch.rows.tolist() for batch in batches.epoch(7, start=2)] == whole[2:]
        True
        """
        order = self._order(number)
        for step in self._steps(number)[start:].tolist():
            begin, end = self._bounds[step], self._bounds[step + 1]
            yield self._batch(order[begin + self.rank : end : self.world])

    def padding(self) -> float:
        """The share of an epoch's numbers that are padding, of all processes together.

        >>> tokens = Tokens(np.arange(3, dtype=np.int32), np.array([0, 2, 3]))
        >>> Batches(tokens, 2, pad_id=0, multiple=1).padding()
        0.25
        """
        real = padded = 0
        lengths = self.tokens.lengths[self._order(0)]
        for begin, end in zip(self._bounds, self._bounds[1:], strict=False):
            for rank in range(self.world):
                part = lengths[begin + rank : end : self.world]
                real += int(part.sum())
                padded += len(part) * int(self._round_up(part.max()))
        return 1 - real / padded if padded else 0.0

    def _round_up(self, lengths: Any) -> Any:
        return np.minimum(-(-lengths // self._multiple) * self._multiple, self._limit)

    def _order(self, epoch: int) -> Int64:
        """Document numbers in the order in which they are cut into batches."""
        order = np.arange(len(self._padded))
        if self.shuffle:
            order = self._random(epoch, _SHUFFLE).permutation(len(self._padded))
        if self.bucketed:
            # Stable: documents of one padded length stay shuffled.
            order = order[np.argsort(-self._padded[order], kind="stable")]
        return order if self._rows is None else self._rows[order]

    def _steps(self, epoch: int) -> Int64:
        steps = np.arange(len(self))
        if self.shuffle and len(steps):
            steps = self._random(epoch, _BATCHES).permutation(len(steps))
            # The largest first: what does not fit the GPU fails now and not in an hour.
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


def _cut(descending: Any, size: int, max_tokens: int | None, world: int) -> Int64:
    """Where steps begin and end among documents whose padded lengths never rise."""
    count = len(descending)
    bounds = [0]
    while bounds[-1] < count:
        fit = size if max_tokens is None else max_tokens // int(max(descending[bounds[-1]], 1))
        bounds.append(min(bounds[-1] + max(1, min(size, fit)) * world, count))
    if len(bounds) > 2 and bounds[-1] - bounds[-2] < world:
        # Too few documents are left for a batch in each process: they get some of the step before,
        # or join it where it has none to spare.
        if count - world - bounds[-3] >= world:
            bounds[-2] = count - world
        else:
            del bounds[-2]
    return np.array(bounds, dtype=np.int64)


class Moving(Protocol):
    """What goes to a device: by pinned memory, if it is a GPU."""

    def to(self, device: str | torch.device) -> Self: ...

    def pin(self) -> Self: ...


AnyBatch = TypeVar("AnyBatch", bound=Moving)


def prefetched(
    batches: Iterable[AnyBatch], device: str | torch.device, *, depth: int = 2
) -> Iterator[AnyBatch]:
    """The batches on ``device``, made by a thread that stays ``depth`` batches ahead.

    For a GPU they go through pinned memory: it copies while it computes, and Python does not wait.
    What goes wrong in the thread is raised here; leaving the loop ends the thread.

    >>> tokens = Tokens(np.arange(4, dtype=np.int32), np.arange(5))
    >>> batches = Batches(tokens, 2, shuffle=False, pad_id=0)
    >>> [batch.rows.tolist() for batch in prefetched(batches.epoch(0), "cpu")]
    [[0, 1], [2, 3]]
    """
    target = torch.device(device)
    pin = target.type == "cuda"
    ready: queue.Queue[AnyBatch | BaseException | None] = queue.Queue(maxsize=max(depth, 1))
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
        except BaseException as error:  # to be raised where somebody can hear it
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
