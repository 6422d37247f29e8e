"""The weights of one level of a ranker: the only module that knows how they are laid out.

A level stores the children of one parent together as a chunk. A chunk lists, in order, the sparse
features that any of its children uses, and for each feature the children (offsets from the parent's
first child) and their weights. Chunk p has features ``chunk_rows[p] .. chunk_rows[p+1]`` and
entries ``chunk_entries[p] .. chunk_entries[p+1]``; ``row_start`` holds one more number per chunk
than the chunk has features.

``dense`` holds the weights of d dense features, chunk after chunk: chunk p is a d x width matrix
(the children of one feature side by side) that begins at d times the number of p's first child.

Compressed, ``children`` are bytes if no parent has more than 256 of them, and ``values`` are
halves. Kernels read every form in place, so a model takes the same space on disk, in memory and in
the caches.

``children`` arguments say which nodes belong to a parent: parent p has the nodes
``children[p] .. children[p+1]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import chain, pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, as_csr, entry_rows
from labelgrove.core.late import sparse
from labelgrove.core.scratch import Scratch
from labelgrove.errors import ConfigError, DataError

Storage = Literal["float32", "float16"]

WIDEST_CLUSTER = 2**16  # children are stored as offsets of 16 bits
LARGEST_HALF = 65504.0

_TYPES = {
    "chunk_rows": ("int64",),
    "chunk_entries": ("int64",),
    "features": ("int32",),
    "row_start": ("uint32",),
    "children": ("uint8", "uint16"),
    "values": ("float32", "float16"),
    "bias": ("float32",),
    "dense": ("float16",),
}


@dataclass(frozen=True)
class ChunkedWeights:
    """The weights of one level's nodes; see the module for the layout."""

    chunk_rows: Int64
    chunk_entries: Int64
    features: Int32
    row_start: npt.NDArray[np.uint32]
    children: Array  # uint16 or uint8
    values: Array  # float32 or float16
    bias: Float32
    dense: npt.NDArray[np.float16] = field(default_factory=lambda: np.zeros(0, np.float16))

    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def size(self) -> int:
        """How many weights are stored, sparse and dense."""
        return len(self.values) + len(self.dense)

    @classmethod
    def empty(cls, children: Int64, *, width: int = 0) -> ChunkedWeights:
        """A level without weights: all its margins are 0."""
        none = np.zeros(0, np.int64)
        weights = cls.from_entries(none, none, np.zeros(0, np.float32), children)
        return replace(weights, dense=np.zeros(int(children[-1]) * width, np.float16))

    @classmethod
    def from_entries(
        cls,
        nodes: Int64,
        features: Array,
        values: Array,
        children: Int64,
        *,
        bias: Float32 | None = None,
    ) -> ChunkedWeights:
        """A level from single weights in any order: a node, a feature and a value each."""
        parents = np.searchsorted(children, nodes, side="right") - 1
        order = np.lexsort((nodes, features, parents))
        nodes, features, parents = nodes[order], features[order], parents[order]
        is_first = np.ones(len(order), bool)  # of the entries of a chunk's feature
        is_first[1:] = (parents[1:] != parents[:-1]) | (features[1:] != features[:-1])
        starts = np.flatnonzero(is_first)
        numbers = np.arange(len(children))
        chunk_rows = np.searchsorted(parents[starts], numbers).astype(np.int64)
        chunk_entries = np.searchsorted(parents, numbers).astype(np.int64)
        # The start of each row within its chunk; after a chunk's rows, the number of its entries.
        row_start = np.insert(
            starts - chunk_entries[parents[starts]], chunk_rows[1:], np.diff(chunk_entries)
        )
        return cls(
            chunk_rows=chunk_rows,
            chunk_entries=chunk_entries,
            features=features[starts].astype(np.int32),
            row_start=row_start.astype(np.uint32),
            children=(nodes - children[parents]).astype(np.uint16),
            values=values[order],
            bias=np.zeros(int(children[-1]), np.float32) if bias is None else bias,
        )

    @classmethod
    def concat(
        cls, parts: Iterable[ChunkedWeights], scratch: Scratch | None = None
    ) -> ChunkedWeights:
        """Chunks of consecutive parents as one level; in ``scratch`` with the first's types."""
        rest = iter(parts)
        first = next(rest)
        second = next(rest, None)
        if second is None:
            return first
        place = Scratch() if scratch is None else scratch
        joined = {name: place.growing(array.dtype) for name, array in first.arrays().items()}
        ends = {"chunk_rows": 0, "chunk_entries": 0}
        try:
            for name in ends:
                joined[name].append(np.zeros(1, np.int64))
            for part in chain((first, second), rest):
                for name, array in part.arrays().items():
                    joined[name].append(array[1:] + ends[name] if name in ends else array)
                ends = {name: end + int(getattr(part, name)[-1]) for name, end in ends.items()}
            return cls(**{name: grown.array() for name, grown in joined.items()})
        finally:
            for grown in joined.values():
                grown.close()

    def chunks(self, first: int, last: int, children: Int64, *, width: int) -> ChunkedWeights:
        """The chunks of parents ``first .. last - 1`` as a level of their own, without copying."""
        rows, entries = self.chunk_rows[first : last + 1], self.chunk_entries[first : last + 1]
        row, entry = slice(rows[0], rows[-1]), slice(entries[0], entries[-1])
        node = slice(int(children[first]), int(children[last]))
        return ChunkedWeights(
            chunk_rows=rows - rows[0],
            chunk_entries=entries - entries[0],
            features=self.features[row],
            row_start=self.row_start[rows[0] + first : rows[-1] + last],
            children=self.children[entry],
            values=self.values[entry],
            bias=self.bias[node],
            dense=self.dense[width * node.start : width * node.stop],
        )

    def entries(self, parent: int) -> tuple[Int64, Int64, Array]:
        """The weights of one chunk: feature, child (counted within the parent) and stored value."""
        first, last = int(self.chunk_rows[parent]), int(self.chunk_rows[parent + 1])
        starts: Int64 = self.row_start[first + parent : last + parent + 1].astype(np.int64)
        place = slice(int(self.chunk_entries[parent]), int(self.chunk_entries[parent + 1]))
        features = np.repeat(self.features[first:last].astype(np.int64), starts[1:] - starts[:-1])
        return features, self.children[place].astype(np.int64), np.asarray(self.values[place])


def check_chunks(
    weights: ChunkedWeights, children: Int64, *, features: int, width: int, where: str
) -> None:
    """Refuses arrays that do not fit each other: a damaged file must not crash the kernels."""
    for name, array in weights.arrays().items():
        if array.ndim != 1 or array.dtype.name not in _TYPES[name]:
            raise DataError(
                f"{where}: {name} must be a list of {' or '.join(_TYPES[name])}, "
                f"got {array.dtype} of shape {array.shape}"
            )
    parents = len(children) - 1
    rows, entries = len(weights.features), len(weights.values)
    sound = (
        len(weights.chunk_rows) == len(weights.chunk_entries) == parents + 1
        and weights.chunk_rows[0] == 0
        and weights.chunk_entries[0] == 0
        and weights.chunk_rows[-1] == rows
        and weights.chunk_entries[-1] == entries == len(weights.children)
        and len(weights.row_start) == rows + parents
        and len(weights.bias) == children[-1]
        and len(weights.dense) == children[-1] * width
        # Differences could overflow.
        and bool((weights.chunk_rows[1:] >= weights.chunk_rows[:-1]).all())
        and bool((weights.chunk_entries[1:] >= weights.chunk_entries[:-1]).all())
    )
    if not sound:
        raise DataError(f"{where}: the sizes of its arrays do not fit each other")
    if rows and not 0 <= weights.features.min() <= weights.features.max() < features:
        raise DataError(f"{where}: a feature lies outside 0..{features - 1}")
    first = weights.chunk_rows[:-1] + np.arange(parents)
    last = weights.chunk_rows[1:] + np.arange(parents)
    rising = weights.row_start[1:] > weights.row_start[:-1]
    rising[last[:-1]] = True  # from one chunk to the next
    ends = weights.row_start[last]
    if weights.row_start[first].any() or not rising.all():
        raise DataError(f"{where}: row_start must rise from 0 in every chunk")
    if not np.array_equal(ends, np.diff(weights.chunk_entries)):
        raise DataError(f"{where}: row_start does not fit chunk_entries")
    filled = np.flatnonzero(ends)
    highest = np.maximum.reduceat(weights.children, weights.chunk_entries[:-1][filled])
    if (highest >= np.diff(children)[filled]).any():
        raise DataError(f"{where}: a weight belongs to a child that its parent does not have")


def compress(
    weights: ChunkedWeights, children: Int64, storage: Storage, *, widest: int | None = None
) -> ChunkedWeights:
    """The same level with its sparse weights in another ``storage``.

    Children become bytes if no parent has more than 256 of them (``widest``: in the whole level).
    """
    if storage not in get_args(Storage):
        raise ConfigError(
            f"storage: must be one of {', '.join(get_args(Storage))}, got {storage!r}"
        )
    stored = _stored(weights.values, storage)
    widest = int(np.diff(children).max(initial=0)) if widest is None else widest
    child_type = np.uint8 if widest <= 256 else weights.children.dtype
    offset = weights.children.astype(child_type, copy=False)
    return replace(weights, children=offset, values=stored)


def _stored(values: Array, storage: str) -> Array:
    """Values as ``storage`` says."""
    if storage == "float32":
        return values.astype(np.float32, copy=False)
    return np.clip(values, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def dense_weights(level: ChunkedWeights, children: Int64, width: int) -> Float32:
    """The weights of the dense features as a nodes x features table."""
    table = np.empty((int(children[-1]), width), np.float32)
    for first, last in pairwise(children.tolist()):
        chunk = level.dense[width * first : width * last]
        table[first:last] = chunk.reshape(width, last - first).T
    return table


@dataclass(frozen=True)
class Columns:
    """Weights of some nodes of a level, a row for each of ``nodes`` (ascending)."""

    nodes: Int64
    sparse: CSR
    bias: Float32
    dense: Float32

    def take(self, rows: Array) -> Columns:
        """Some of the nodes, in the order given."""
        return Columns(self.nodes[rows], self.sparse[rows], self.bias[rows], self.dense[rows])

    @classmethod
    def joined(cls, parts: list[Columns]) -> Columns:
        """The nodes of several, in ascending order; no node may occur twice."""
        nodes = np.concatenate([part.nodes for part in parts])
        order = np.argsort(nodes, kind="stable")
        return cls(
            nodes[order],
            as_csr(sparse.vstack([part.sparse for part in parts], format="csr")[order]),
            np.concatenate([part.bias for part in parts])[order],
            np.concatenate([part.dense for part in parts])[order],
        )


def read_columns(
    level: ChunkedWeights, children: Int64, nodes: npt.ArrayLike, *, features: int, width: int
) -> Columns:
    """The weights of ``nodes`` in single precision, whatever the level's storage."""
    chosen = np.unique(np.asarray(nodes, np.int64))
    rows, columns, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, "f4")]
    dense = np.zeros((len(chosen), width), np.float32)
    for parent, places in _by_parent(children, chosen):
        first, last = int(children[parent]), int(children[parent + 1])
        row_of_child = np.full(last - first, -1, np.int64)
        row_of_child[chosen[places] - first] = places
        terms, child, value = level.entries(parent)
        row = row_of_child[child]
        rows.append(row[row >= 0])
        columns.append(terms[row >= 0])
        values.append(value[row >= 0].astype(np.float32))
        block = level.dense[width * first : width * last].reshape(width, last - first)
        dense[places] = block[:, chosen[places] - first].T
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    matrix = sparse.coo_array(entries, shape=(len(chosen), features))
    return Columns(chosen, as_csr(matrix), level.bias[chosen], dense)


def write_columns(
    level: ChunkedWeights, before: Int64, after: Int64, columns: Columns
) -> ChunkedWeights:
    """A copy of the level in which the nodes of ``columns`` have the weights given there.

    Parents may have got further children: ``before`` and ``after`` say where each parent's begin.
    ``columns.nodes`` are numbered as in ``after`` and include all new nodes; all others keep their
    bits.
    """
    width = columns.dense.shape[1]
    matrix = columns.sparse.copy()
    matrix.eliminate_zeros()
    matrix_rows = entry_rows(matrix)
    stored = _stored(matrix.data, level.values.dtype.name)
    parts: list[ChunkedWeights] = []
    done = 0
    for parent, places in _by_parent(after, columns.nodes):
        parts.append(level.chunks(done, parent, before, width=width))
        own = slice(matrix.indptr[places[0]], matrix.indptr[places[-1] + 1])
        own_nodes = columns.nodes[matrix_rows[own]] - after[parent]
        old = level.chunks(parent, parent + 1, before, width=width)
        offset = columns.nodes[places] - after[parent]
        terms, child, value = old.entries(0)
        keeps = ~np.isin(child, offset)
        children = np.array([0, after[parent + 1] - after[parent]])
        bias = np.zeros(children[1], np.float32)
        bias[: len(old.bias)] = old.bias
        bias[offset] = columns.bias[places]
        new = ChunkedWeights.from_entries(
            np.concatenate([child[keeps], own_nodes]),
            np.concatenate([terms[keeps], matrix.indices[own]]),
            np.concatenate([value[keeps], stored[own]]),
            children,
            bias=bias,
        )
        table = np.zeros((width, children[1]), np.float16)
        table[:, : len(old.bias)] = old.dense.reshape(width, len(old.bias))
        table[:, offset] = columns.dense[places].T.astype(np.float16)
        child_type = np.uint16 if children[1] > 256 else level.children.dtype
        offsets_within = new.children.astype(child_type)
        parts.append(replace(new, children=offsets_within, dense=table.ravel()))
        done = parent + 1
    return ChunkedWeights.concat([*parts, level.chunks(done, len(before) - 1, before, width=width)])


def _by_parent(children: Int64, nodes: Int64) -> Iterator[tuple[int, Int64]]:
    """Each parent of the ascending ``nodes``, with the places of its own nodes among them."""
    if len(nodes) == 0:
        return
    parents = np.searchsorted(children, nodes, side="right") - 1
    unique, starts = np.unique(parents, return_index=True)
    for parent, places in zip(unique, np.split(np.arange(len(nodes)), starts[1:]), strict=True):
        yield int(parent), places
