"""Features and texts in blocks that an engine holds, so that no process needs all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from labelgrove.core.arrays import CSR, Int64, offsets, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.facts import Fingerprints, TrainingFacts, UInt32, limit_for
from labelgrove.data.features import Features
from labelgrove.data.records import joined_names, names_in
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref, Result

PIECES_PER_WORKER = 4  # so that workers end at about the same time


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
        shapes = engine.results(engine.map(shape_of, refs))
        rows, entries, (terms, *_), (width, *_), (is_sparse, *_) = zip(*shapes, strict=True)
        return cls(engine, tuple(refs), offsets(rows), terms, width, sum(entries), is_sparse)

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


def shape_of(block: Features) -> tuple[int, int, int, int, bool]:
    """Rows, entries, terms and width of a block, and whether it has a sparse part."""
    entries = 0 if block.sparse is None else int(block.sparse.nnz)
    return len(block), entries, block.terms, block.width, block.sparse is not None


def selected(block: Features, groups: Sequence[Int64]) -> list[Features]:
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
    """Where to cut a list so that up to ``pieces`` pieces have about the same work."""
    done = np.cumsum(work, dtype=np.float64)
    goals = done[-1] * np.arange(1, pieces) / pieces
    ends = np.searchsorted(done, goals) + 1
    return np.unique(np.concatenate([[0], ends, [len(done)]]))


@dataclass(frozen=True, eq=False)
class ShardedCorpus:
    """Texts in blocks, each a :class:`StringTable`; ``labels`` and ``index`` as in a Corpus."""

    engine: Engine
    texts: tuple[Ref, ...]
    starts: Int64  # the first document of each block, and after them their number
    labels: CSR
    index: LabelIndex

    def __len__(self) -> int:
        return int(self.starts[-1])

    def with_documents(self, texts: Sequence[str], labels: CSR) -> ShardedCorpus:
        """The corpus with further documents, as a block at its end."""
        return replace(
            self,
            texts=(*self.texts, self.engine.put(StringTable.from_strings(texts))),
            starts=np.append(self.starts, len(self) + len(texts)),
            labels=stacked_rows([self.labels, labels]),
        )

    def texts_at(self, rows: range) -> list[str]:
        """Some texts, by the numbers of their documents, which must ascend."""
        numbers = np.asarray(rows, np.int64)
        bounds = np.searchsorted(numbers, self.starts)
        refs = [
            self.engine.call(_strings_at, ref, numbers[bounds[n] : bounds[n + 1]] - self.starts[n])
            for n, ref in enumerate(self.texts)
        ]
        return [text for part in self.engine.results(refs) for text in part]

    def map(self, function: Callable[..., Result], *shared: object) -> Iterator[Result]:
        """What ``function(texts, *shared)`` gives for each block, in order."""
        return self.engine.results(self.engine.map(function, self.texts, *shared))

    def facts(self) -> TrainingFacts:
        counts = np.bincount(self.labels.indices, minlength=len(self.index)).astype(np.int64)
        limit = limit_for(len(self))
        hashes = np.unique(np.concatenate([*self.map(_hashes_of, limit)]))
        prints = Fingerprints(hashes, limit)
        fields = joined_names(self.map(names_in))
        return TrainingFacts(len(self), counts, from_text=True, fingerprints=prints, fields=fields)


def _strings_at(texts: StringTable, rows: Int64) -> list[str]:
    return [texts[row] for row in rows.tolist()]


def _hashes_of(texts: StringTable, limit: int) -> UInt32:
    without_labels = sparse.csr_array((len(texts), 0), dtype=np.float32)
    return Fingerprints.of(Corpus(texts, without_labels, LabelIndex([])), limit).hashes
