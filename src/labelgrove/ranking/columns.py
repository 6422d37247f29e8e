"""Single nodes' weights out of a level, and into a copy of it.

A level stores the children of one parent together as a chunk. What is not asked for is copied as it
lies, so that a node which nobody touches keeps its weights bit by bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.core.arrays import CSR, Float32, Int64, as_csr
from labelgrove.ranking.solver import ChunkedWeights
from labelgrove.ranking.weights import LARGEST_BYTE, LARGEST_HALF


@dataclass(frozen=True)
class Columns:
    """Weights of some nodes of a level, a row for each of ``nodes`` (ascending).

    ``dense`` has no columns where there are no dense features.
    """

    nodes: Int64
    sparse: CSR
    bias: Float32
    dense: Float32

    def take(self, rows: Any) -> Columns:
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
    """The weights of ``nodes`` in single precision, however the level stores them.

    >>> from labelgrove.labels.tree import LabelTree

    >>> from labelgrove.ranking.ranker import train_ranker
    >>> ranker = train_ranker(sparse.eye_array(2), np.eye(2), LabelTree([[0, 0]], [0, 1]))
    >>> found = read_columns(ranker.levels[0], np.array([0, 2]), [1], features=2, width=0)
    >>> bool(found.sparse[0, 1] > 0 > found.sparse[0, 0])
    True
    """
    wanted = np.unique(np.asarray(nodes, np.int64))
    rows, columns, values = [], [], []
    dense = np.zeros((len(wanted), width), np.float32)
    for parent, places in _by_parent(children, wanted):
        first, last = int(children[parent]), int(children[parent + 1])
        row_of = np.full(last - first, -1, np.int64)
        row_of[wanted[places] - first] = places
        terms, child, value = _entries(level, parent)
        row = row_of[child]
        kept = row >= 0
        rows.append(row[kept])
        columns.append(terms[kept])
        values.append(value[kept].astype(np.float32))
        if width:
            block = level.dense[width * first : width * last].reshape(width, last - first)
            dense[places] = block[:, wanted[places] - first].T
    row = _joined(rows, np.int64)
    data = _joined(values, np.float32)
    if len(level.scales):
        data = data * level.scales[wanted[row]]
    shape = (len(wanted), features)
    matrix = sparse.coo_array((data, (row, _joined(columns, np.int64))), shape=shape)
    return Columns(wanted, as_csr(matrix), level.bias[wanted], dense)


def write_columns(
    level: ChunkedWeights, before: Int64, after: Int64, columns: Columns
) -> ChunkedWeights:
    """A copy of the level with the weights of ``columns`` in place of what their nodes had.

    Parents may have got children at the end of those that they had: ``before`` and ``after`` say
    where each parent's children begin. ``columns.nodes`` are numbered as ``after`` says, and all
    new nodes must be among them. Values are stored as the level stores them.
    """
    width = columns.dense.shape[1]
    own = _Encoded.of(columns, level.values.dtype)
    narrow = int(np.diff(after).max(initial=0)) <= 256 and level.children.dtype == np.uint8
    child_type = np.uint8 if narrow else np.uint16
    pieces: dict[str, list[npt.NDArray[Any]]] = {
        name: []
        for name in ("features", "row_start", "children", "values", "bias", "dense", "scales")
    }
    row_counts, entry_counts = np.diff(level.chunk_rows), np.diff(level.chunk_entries)
    done = 0
    for parent, places in _by_parent(after, columns.nodes):
        _copy_chunks(level, before, done, parent, width, pieces)
        offsets = columns.nodes[places] - after[parent]
        old, new = int(before[parent + 1] - before[parent]), int(after[parent + 1] - after[parent])
        terms, child, value = _entries(level, parent)
        kept = ~np.isin(child, offsets)
        own_terms, own_row, own_value = own.entries(places)
        terms = np.concatenate([terms[kept], own_terms])
        child = np.concatenate([child[kept], offsets[own_row]])
        value = np.concatenate([value[kept], own_value])
        order = np.lexsort((child, terms))
        terms, counts = np.unique(terms[order], return_counts=True)
        pieces["features"].append(terms.astype(np.int32))
        pieces["row_start"].append(np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32))
        pieces["children"].append(child[order].astype(child_type))
        pieces["values"].append(value[order])
        row_counts[parent], entry_counts[parent] = len(terms), len(order)
        for name, values in (("bias", columns.bias), ("scales", own.scales)):
            if len(getattr(level, name)) or name == "bias":
                numbers = np.zeros(new, np.float32)
                numbers[:old] = getattr(level, name)[before[parent] : before[parent + 1]]
                numbers[offsets] = values[places]
                pieces[name].append(numbers)
        if width:
            table = np.zeros((width, new), np.float16)
            stored = level.dense[width * before[parent] : width * before[parent + 1]]
            table[:, :old] = stored.reshape(width, old)
            table[:, offsets] = columns.dense[places].T.astype(np.float16)
            pieces["dense"].append(table.ravel())
        done = parent + 1
    _copy_chunks(level, before, done, len(before) - 1, width, pieces)
    types: dict[str, Any] = {n: getattr(level, n).dtype for n in pieces} | {"children": child_type}
    return ChunkedWeights(
        chunk_rows=np.concatenate([[0], np.cumsum(row_counts)]).astype(np.int64),
        chunk_entries=np.concatenate([[0], np.cumsum(entry_counts)]).astype(np.int64),
        **{name: _joined(parts, types[name]) for name, parts in pieces.items()},
    )


@dataclass(frozen=True)
class _Encoded:
    """Columns with values in the form in which a level stores them."""

    matrix: CSR
    values: npt.NDArray[Any]
    scales: Float32

    @classmethod
    def of(cls, columns: Columns, kind: npt.DTypeLike) -> _Encoded:
        matrix = as_csr(columns.sparse).copy()
        matrix.eliminate_zeros()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        largest = np.zeros(matrix.shape[0], np.float32)
        np.maximum.at(largest, rows, np.abs(matrix.data))
        scales = (largest / np.float32(LARGEST_BYTE)).astype(np.float32)
        if kind == np.int8:
            scale = np.where(largest > 0, scales, np.float32(1))[rows]
            return cls(matrix, np.rint(matrix.data / scale).astype(np.int8), scales)
        limit = LARGEST_HALF if kind == np.float16 else np.inf
        return cls(matrix, np.clip(matrix.data, -limit, limit).astype(kind), scales)

    def entries(self, places: Int64) -> tuple[Int64, Int64, npt.NDArray[Any]]:
        """Features, rows (counted within ``places``) and stored values."""
        bounds = [slice(self.matrix.indptr[p], self.matrix.indptr[p + 1]) for p in places]
        terms = _joined([self.matrix.indices[b] for b in bounds], np.int64)
        rows = np.repeat(np.arange(len(places)), [b.stop - b.start for b in bounds])
        return terms, rows, _joined([self.values[b] for b in bounds], self.values.dtype)


def _entries(level: ChunkedWeights, parent: int) -> tuple[Int64, Int64, npt.NDArray[Any]]:
    """A chunk's weights one by one: feature, child and stored value."""
    first, last = int(level.chunk_rows[parent]), int(level.chunk_rows[parent + 1])
    starts = level.row_start[first + parent : last + parent + 1].astype(np.int64)
    stored = slice(int(level.chunk_entries[parent]), int(level.chunk_entries[parent + 1]))
    terms = np.repeat(level.features[first:last].astype(np.int64), np.diff(starts))
    return terms, level.children[stored].astype(np.int64), np.asarray(level.values[stored])


def _copy_chunks(
    level: ChunkedWeights,
    children: Int64,
    first: int,
    last: int,
    width: int,
    pieces: dict[str, list[npt.NDArray[Any]]],
) -> None:
    """Adds the chunks of parents ``first .. last - 1`` as they lie."""
    if first == last:
        return
    rows = slice(level.chunk_rows[first], level.chunk_rows[last])
    starts = slice(level.chunk_rows[first] + first, level.chunk_rows[last] + last)
    entries = slice(level.chunk_entries[first], level.chunk_entries[last])
    nodes = slice(children[first], children[last])
    dense = slice(width * int(children[first]), width * int(children[last]))
    where = {"features": rows, "row_start": starts, "children": entries, "values": entries}
    where |= {"bias": nodes, "scales": nodes, "dense": dense}
    for name, piece in where.items():
        pieces[name].append(getattr(level, name)[piece])


def _by_parent(children: Int64, nodes: Int64) -> Iterator[tuple[int, Int64]]:
    """Each parent of the ascending ``nodes``, with the places of its own among them."""
    if len(nodes) == 0:
        return
    parents = np.searchsorted(children, nodes, side="right") - 1
    found, starts = np.unique(parents, return_index=True)
    for parent, places in zip(found, np.split(np.arange(len(nodes)), starts[1:]), strict=True):
        yield int(parent), places


def _joined(parts: list[npt.NDArray[Any]], kind: npt.DTypeLike) -> npt.NDArray[Any]:
    arrays = [np.asarray(part).astype(kind, copy=False) for part in parts]
    return np.concatenate(arrays) if arrays else np.zeros(0, kind)
