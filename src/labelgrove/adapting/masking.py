"""Batches of texts in which some tokens are hidden, and of texts cut into two views.

What happens to a token depends on (seed, epoch, its number in the corpus) alone, whatever batch it
is in. So a run can continue in the middle of an epoch, and every epoch hides other tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.adapting.pieces import without_length
from labelgrove.core.arrays import Int64, offsets
from labelgrove.nn.batches.packing import PackedBatch, PackedBatches
from labelgrove.nn.batches.padded import Batch, Batches, Movable
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import derived_seed

SHORTEST_CUT = 16  # tokens of a text with two views
_CHOICE, _KIND, _TOKEN, _CUT = range(4)  # names of random streams
_HIDDEN, _REPLACED = 0.8, 0.9  # of the tokens to guess; the rest stays as it is
_PADDING = -1


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden, and by what.

    ``special`` tokens are never hidden, and they never replace another token.
    """

    share: float
    mask_id: int
    special: Int64
    vocabulary: int
    seed: int

    def hide(self, ids: Any, places: Int64, epoch: int) -> tuple[Int64, npt.NDArray[np.bool_]]:
        """Tokens with some of them hidden, and which of them are to be guessed.

        ``places`` are the tokens' numbers in the corpus. Of the tokens to guess, eight in ten
        become the mask, one in ten another token, and one in ten stays.
        """
        chosen = self._numbers(epoch, _CHOICE, places) < self.share
        chosen &= ~np.isin(ids, self.special)
        kind = self._numbers(epoch, _KIND, places)
        numbers = self._numbers(epoch, _TOKEN, places) * len(self._others)
        drawn = self._others[numbers.astype(np.int64)]
        shown = np.where(kind < _HIDDEN, self.mask_id, np.where(kind < _REPLACED, drawn, ids))
        return np.where(chosen, shown, ids), chosen

    @cached_property
    def _others(self) -> Int64:
        return np.setdiff1d(np.arange(self.vocabulary), self.special)

    def cuts(self, rows: Int64, bodies: Int64, epoch: int) -> Int64:
        """Where documents are cut in two: between a quarter and three quarters of their tokens."""
        return ((0.25 + 0.5 * self._numbers(epoch, _CUT, rows)) * bodies).astype(np.int64)

    def _numbers(self, epoch: int, stream: int, places: Int64) -> npt.NDArray[np.float64]:
        """Numbers from 0 to 1 that depend on the place, not on its neighbours (SplitMix64)."""
        key = np.uint64(derived_seed(self.seed, epoch, stream))
        with np.errstate(over="ignore"):
            x = (places.astype(np.uint64) + key) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class MaskedBatch(Movable):
    """A batch, the ``places`` of its tokens to guess, and what they are (``targets``).

    ``pairs`` are the documents that were cut: the two views of document i are documents 2i and
    2i + 1 of the batch.
    """

    batch: Batch | PackedBatch
    places: Tensor
    targets: Tensor
    pairs: Tensor

    @property
    def rows(self) -> Any:
        return self.batch.rows

    @property
    def tokens(self) -> int:
        return self.batch.tokens

    def __len__(self) -> int:
        return len(self.batch)


class MaskedBatches:
    """Batches of at most ``batch_tokens`` tokens, some hidden; packed if the encoder can do that.

    With ``views`` each document of some length is cut into two, each framed by special tokens; that
    needs packed batches.
    """

    def __init__(
        self,
        tokens: Tokens,
        encoder: Encoder,
        masking: Masking,
        batch_tokens: int,
        *,
        views: bool = False,
    ) -> None:
        self.tokens, self.masking = tokens, masking
        self._frames = _frames(encoder.tokenizer)
        bodies = tokens.lengths - sum(self._frames)
        self._views = views and encoder.packs
        self._is_cut = (bodies >= SHORTEST_CUT) & self._views
        lengths = tokens.lengths + sum(self._frames) * self._is_cut
        # The batches are of places, not of tokens: what stands there follows in each epoch.
        places = Tokens(np.arange(int(lengths.sum()), dtype=np.int32), offsets(lengths))
        common: dict[str, Any] = {
            "pad_id": _PADDING,
            "seed": masking.seed,
            "max_tokens": max(batch_tokens, places.longest),
        }
        self._batches: Batches | PackedBatches
        if encoder.packs:
            self._batches = PackedBatches(places, len(places), **common)
        else:
            self._batches = Batches(places, None, pad_left=encoder.pad_left, **common)
        self._pad_id = encoder.pad_id

    def __len__(self) -> int:
        return len(self._batches)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[MaskedBatch]:
        """The batches of an epoch, from batch ``start`` on."""
        for batch in self._batches.epoch(number, start=start):
            yield self._masked(batch, number)

    def _masked(self, batch: Batch | PackedBatch, epoch: int) -> MaskedBatch:
        places = batch.ids.numpy().reshape(-1)
        pairs = np.flatnonzero(self._is_cut[batch.rows])
        if self._views and isinstance(batch, PackedBatch):
            batch, places = self._cut(batch, epoch)
        used = np.flatnonzero(places != _PADDING)
        true = self.tokens.ids[places[used]].astype(np.int64)
        shown, chosen = self.masking.hide(true, places[used], epoch)
        ids = np.full(len(places), self._pad_id, np.int64)
        ids[used] = shown
        return MaskedBatch(
            replace(batch, ids=torch.from_numpy(ids).view(batch.ids.shape)),
            torch.from_numpy(used[chosen]),
            torch.from_numpy(true[chosen]),
            torch.from_numpy(pairs),
        )

    def _cut(self, batch: PackedBatch, epoch: int) -> tuple[PackedBatch, Int64]:
        """The batch with two views for each document, and which token stands at each place."""
        first, last = self._frames
        rows = batch.rows
        bounds = batch.bounds.numpy().astype(np.int64)
        lengths = self.tokens.lengths[rows].astype(np.int64)
        bodies = lengths - first - last
        cuts = np.where(self._is_cut[rows], self.masking.cuts(rows, bodies, epoch), bodies)
        # Every document has two bounds more; where nothing is cut, the second view is empty.
        middles = bounds[1:].copy()
        middles[: len(rows)] = bounds[: len(rows)] + first + cuts + last
        doubled = np.empty(2 * len(bounds) - 1, np.int32)
        doubled[0::2], doubled[1::2] = bounds, middles
        positions = np.arange(int(bounds[-1])) - np.repeat(doubled[:-1], np.diff(doubled))
        # Of each place, which view it is in and which token of the document stands there.
        views = np.repeat(np.arange(len(doubled) - 1), np.diff(doubled))[: batch.tokens]
        documents, second = views // 2, views % 2 == 1
        inside = positions[: batch.tokens]
        size = np.where(second, bodies[documents] - cuts[documents], cuts[documents])
        source = inside + np.where(second & (inside >= first), cuts[documents], 0)
        at_end = inside >= first + size
        source = np.where(at_end, inside - first - size + lengths[documents] - last, source)
        places = np.full(int(bounds[-1]), _PADDING, np.int64)
        places[: batch.tokens] = self.tokens.offsets[rows][documents] + source
        return (
            replace(batch, bounds=torch.from_numpy(doubled), positions=torch.from_numpy(positions)),
            places,
        )


def _frames(tokenizer: Any) -> tuple[int, int]:
    """How many special tokens are before and after a text."""
    marks = without_length(tokenizer).encode("a").special_tokens_mask
    return marks.index(0), marks[::-1].index(0)
