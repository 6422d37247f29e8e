"""Features in blocks of rows that an engine holds, so that no process needs all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labelgrove.core.arrays import Int64, offsets, stacked_rows
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref

PIECES_PER_WORKER = 4  # so that workers end at about the same time


class Shape(NamedTuple):
    """What the driver knows of a block."""

    rows: int
    terms: int
    width: int
    entries: int
    is_sparse: bool


@dataclass(frozen=True)
class Blocks:
    """Rows of features, one block after another; workers get the rows that they need."""

    engine: Engine
    refs: tuple[Ref, ...]
    starts: Int64  # the first row of each block, and after them the number of rows
    terms: int
    width: int
    entries: int  # numbers in the sparse block
    is_sparse: bool

    @classmethod
    def of(cls, engine: Engine, refs: Sequence[Ref]) -> Blocks:
        """Blocks that the engine holds; empty ones are fine, but not no block at all."""
        shapes = [*engine.results(engine.map(shape_of, refs))]
        terms, width = shapes[0].terms, shapes[0].width
        starts = offsets([shape.rows for shape in shapes])
        entries = sum(shape.entries for shape in shapes)
        return cls(engine, tuple(refs), starts, terms, width, entries, shapes[0].is_sparse)

    @classmethod
    def cut(cls, engine: Engine, features: Features, rows: int | None = None) -> Blocks:
        """Features of this process in blocks of so many rows."""
        rows = rows or max(1, -(-len(features) // (2 * engine.workers)))
        firsts = range(0, max(1, len(features)), rows)
        return cls.of(engine, [engine.put(features.take(slice(n, n + rows))) for n in firsts])

    def __len__(self) -> int:
        return int(self.starts[-1])

    def map(self, function: Callable[..., Features], *shared: object) -> Blocks:
        """The blocks that ``function(block, *shared)`` makes."""
        return Blocks.of(self.engine, self.engine.map(function, self.refs, *shared))

    def take(self, rows: Int64) -> Blocks:
        """Some rows, which must ascend."""
        parts = [part for [part] in self._shuffled([rows])]
        return Blocks.of(self.engine, parts)

    def gather(self, groups: Sequence[Int64]) -> list[list[Ref]]:
        """For each group of ascending rows, the parts that :func:`joined` makes its rows of."""
        if len(groups) == 1 and len(groups[0]) == len(self):  # all rows need no copy
            return [list(self.refs)]
        by_block = self._shuffled(groups)
        return [[parts[group] for parts in by_block] for group in range(len(groups))]

    def _shuffled(self, groups: Sequence[Int64]) -> list[list[Ref]]:
        """For each block, its rows of every group."""
        bounds = [np.searchsorted(rows, self.starts) for rows in groups]
        return [
            self.engine.split(
                selected,
                ref,
                [
                    rows[ends[number] : ends[number + 1]] - self.starts[number]
                    for rows, ends in zip(groups, bounds, strict=True)
                ],
                parts=len(groups),
            )
            for number, ref in enumerate(self.refs)
        ]


def shape_of(block: Features) -> Shape:
    """What is known of a block without its numbers."""
    entries = 0 if block.sparse is None else int(block.sparse.nnz)
    return Shape(len(block), block.terms, block.width, entries, block.sparse is not None)


def selected(block: Features, groups: Sequence[Int64]) -> list[Features]:
    """The rows of each group."""
    return [block.take(rows) for rows in groups]


def joined(parts: Sequence[Features]) -> Features:
    """The rows of several parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    terms = dense = None
    if parts[0].sparse is not None:
        terms = stacked_rows([part.sparse for part in parts])
    if parts[0].dense is not None:
        dense = np.concatenate([np.asarray(part.dense) for part in parts])
    return Features(terms, dense)


def even_cuts(work: Sequence[float] | Int64, pieces: int) -> Int64:
    """Where to cut a list so that up to ``pieces`` pieces have about the same work.

    >>> even_cuts([5, 1, 1, 1, 1, 1], 2).tolist()
    [0, 1, 6]
    """
    done = np.cumsum(work, dtype=np.float64)
    goals = done[-1] * np.arange(1, pieces) / pieces
    ends = np.searchsorted(done, goals) + 1
    return np.unique(np.concatenate([[0], ends, [len(done)]]))
