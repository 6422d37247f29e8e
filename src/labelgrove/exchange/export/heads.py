"""Heads without torch: from an encoder's pooled states to the best labels, in NumPy and kernels.

They predict like the networks of ``labelgrove.nn``, up to the rounding of sums. Tables stay mapped
files, of which only the rows in use are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from labelgrove.core.arrays import Float32, Int32, Int64, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.part import Part
from labelgrove.core.topk import TopK, top_k
from labelgrove.errors import ModelFormatError
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, children_of, nodes_needed

# What heads read: all states side by side; the same through a bottleneck; one state per level, or a
# mix of several; a mix of the first two and the others unchanged (of older exports); the only one
# unchanged.
Reading: TypeAlias = Literal["joined", "bottleneck", "levels", "mixed", "single"]

DOCUMENTS_AT_ONCE = 64
LOGITS_AT_ONCE = 1 << 24
SMALL = 1 << 22  # largest size of a matrix that one text is multiplied with by einsum


@dataclass(eq=False)
class Reader:
    """Computes the vectors that each level of a head reads from the states of several layers."""

    kind: Reading
    weight: Float32 | None = None
    bias: Float32 | None = None
    sigmoid: bool = field(default=False, kw_only=True)
    # Of each level, the number of its states and, if it mixes them, weights and biases.
    levels: Sequence[tuple[int, tuple[Float32, Float32] | None]] = field(default=(), kw_only=True)

    def vectors(self, states: Float32) -> list[Float32]:
        """One block of vectors per level of the head; the last is what labels read."""
        if self.kind == "single":
            return [states[:, 0]]
        if self.kind == "mixed":
            mixed = self._projected(_joined(states[:, :2]))
            return [mixed, *(states[:, layer] for layer in range(2, states.shape[1]))]
        if self.kind == "levels":
            return self._level_vectors(states)
        text = _joined(states)
        return [text] if self.kind == "joined" else [text, self._projected(text)]

    def _level_vectors(self, states: Float32) -> list[Float32]:
        vectors, first = [], 0
        for count, mix in self.levels:
            own = _joined(states[:, first : first + count])
            vectors.append(own if mix is None else product(own, mix[0]) + mix[1])
            first += count
        return vectors

    def _projected(self, vectors: Float32) -> Float32:
        assert self.weight is not None and self.bias is not None
        projected: Float32 = product(vectors, self.weight) + self.bias
        return expit(projected) if self.sigmoid else projected


@dataclass(eq=False)
class Heads:
    """Predicts labels from documents' states (documents x layers x width).

    ``tables`` are the weights and biases of each level; those of the labels are the last.
    """

    reader: Reader
    tables: Sequence[tuple[Float32, Float32 | None]]

    @property
    def text_width(self) -> int:
        return int(self.tables[-1][0].shape[1])

    def text(self, states: Float32) -> Float32:
        """The vectors that the labels' rows are multiplied with."""
        return self.reader.vectors(states)[-1]

    def best_labels(
        self, states: Float32, k: int, *, mask: LabelMask | None = None, threads: int | None = None
    ) -> TopK:
        """The k best columns in ``mask`` for each document; -1 where there are fewer."""
        columns = np.full((len(states), k), -1, np.int32)
        scores = np.full(columns.shape, -np.inf, np.float32)
        counts = np.zeros(len(states), np.int32)
        vectors = self.reader.vectors(states)
        step = max(1, min(DOCUMENTS_AT_ONCE, LOGITS_AT_ONCE // len(self.tables[0][0])))
        for start in range(0, len(states), step):
            rows = slice(start, start + step)
            best = self._search([level[rows] for level in vectors], k, mask, threads)
            width = best.columns.shape[1]
            columns[rows, :width], scores[rows, :width] = best.columns, best.scores
            counts[rows] = best.counts
        return TopK(columns, scores, counts)

    def scores(self, states: Float32, columns: Int32) -> Float32:
        """What :meth:`best_labels` gives to label columns of each document; 0 where -1."""
        scores = np.zeros(columns.shape, np.float32)
        rows, places = np.nonzero(columns >= 0)
        vectors = self.reader.vectors(states)
        scores[rows, places] = self._scores(vectors, rows, columns[rows, places])
        return scores

    def _scores(self, vectors: list[Float32], rows: Int64, columns: Int32) -> Float32:
        raise NotImplementedError

    def _logits(self, level: int, vectors: Float32, rows: Int64, nodes: Any) -> Float32:
        """Logits of each document's own nodes, picked from one product with all rows in use.

        The product sums in the same order as one with the whole table.
        """
        weight, bias = self.tables[level]
        used, positions = np.unique(nodes, return_inverse=True)
        table = weight if len(used) == len(weight) else weight[used]
        logits: Float32 = product(vectors, table)[rows, positions]
        return logits if bias is None else logits + bias[nodes]

    def _first_logits(self, vectors: Float32) -> Float32:
        weight, bias = self.tables[0]
        logits = product(vectors, weight)
        return logits if bias is None else logits + bias

    def _search(
        self, vectors: list[Float32], k: int, mask: LabelMask | None, threads: int | None
    ) -> TopK:
        raise NotImplementedError


@dataclass(eq=False)
class FlatHead(Heads):
    """Scores every label (or cluster), with probabilities or plain margins."""

    probabilities: bool = True

    def _search(
        self, vectors: list[Float32], k: int, mask: LabelMask | None, threads: int | None
    ) -> TopK:
        logits = self._first_logits(vectors[-1])
        if mask is not None:
            logits[:, ~mask.allowed] = -np.inf
        best = top_k(logits, k, threads=threads)
        return best._replace(scores=expit(best.scores)) if self.probabilities else best

    def _scores(self, vectors: list[Float32], rows: Int64, columns: Int32) -> Float32:
        logits = self._logits(0, vectors[-1], rows, columns)
        return expit(logits) if self.probabilities else logits


@dataclass(eq=False)
class TreeHeads(Heads):
    """A table per level of a label tree; each level scores the children of the best nodes above.

    A label's score is its probability, times that of its cluster if ``weighted``, or of all
    clusters above it if ``path`` as well. Nodes without an allowed label are skipped.
    """

    tree: LabelTree
    kept: Sequence[int]
    weighted: bool = True
    path: bool = False

    def __post_init__(self) -> None:
        if len(self.tables) != len(self.tree.widths) or len(self.kept) != len(self.tables) - 1:
            raise ModelFormatError("the heads have other levels than the label tree")
        self._everything = _Allowed(self.tree, None)
        self._last: tuple[LabelMask, _Allowed] | None = None

    def _masked(self, mask: LabelMask) -> _Allowed:
        """Computed once for the batches of a call, which all have the same mask."""
        if self._last is None or self._last[0] is not mask:
            self._last = mask, _Allowed(self.tree, mask)
        return self._last[1]

    def _search(
        self, vectors: list[Float32], k: int, mask: LabelMask | None, threads: int | None
    ) -> TopK:
        allowed = self._everything if mask is None else self._masked(mask)
        keep = [max(pair) for pair in zip(self.kept, allowed.needed(k), strict=True)]
        logits = self._first_logits(vectors[0])
        logits[:, ~allowed.levels[0]] = -np.inf
        levels = [top_k(logits, keep[0], threads=threads)]
        last = len(self.tables) - 1
        for level in range(1, last):
            listed = self._below(level, levels[-1], allowed)
            scores = self._logits(level, vectors[level], listed.rows, listed.nodes)
            levels.append(top_k(listed.matrix(scores, self.tree.widths[level]), keep[level]))
        listed = self._below(last, levels[-1], allowed)
        scores = expit(self._logits(last, vectors[last], listed.rows, listed.nodes))
        if self.weighted:
            scores *= expit(listed.above)
        if self.path:
            nodes = self.tree.parents[last][listed.nodes]
            for level in range(last - 2, -1, -1):
                nodes = self.tree.parents[level + 1][nodes]
                scores *= expit(_logits_of(levels[level], listed.rows, nodes))
        listed.nodes = self.tree.leaf_labels[listed.nodes]
        return top_k(listed.matrix(scores, self.tree.labels), k, threads=threads)

    def _below(self, level: int, best: TopK, allowed: _Allowed) -> _Lists:
        """The allowed children of the best nodes, with the logits of these nodes."""
        real = best.columns >= 0
        nodes, sizes = children_of(best.columns[real], self.tree.children(level))
        rows = np.repeat(np.nonzero(real)[0], sizes)
        above = np.repeat(best.scores[real], sizes)
        fits = allowed.levels[level][nodes]
        return _Lists(rows[fits], nodes[fits], above[fits], len(best.columns))

    def _scores(self, vectors: list[Float32], rows: Int64, columns: Int32) -> Float32:
        nodes, scores = self.tree.leaf_positions[columns], np.ones(len(rows), np.float32)
        counted = len(self.tables) if self.path else 1 + self.weighted
        for level in range(len(self.tables) - 1, len(self.tables) - 1 - counted, -1):
            scores *= expit(self._logits(level, vectors[level], rows, nodes))
            nodes = self.tree.parents[level][nodes]
        return scores


def _logits_of(best: TopK, rows: Int64, nodes: Any) -> Float32:
    """The logits of nodes that are among the best of their documents."""
    order = np.argsort(best.columns, axis=1)
    width = int(best.columns.max(initial=0)) + 2  # columns begin with -1, which is no node
    keys = np.take_along_axis(best.columns, order, 1) + np.arange(len(order))[:, None] * width
    places = np.searchsorted(keys.ravel(), nodes + rows * width)
    logits: Float32 = np.take_along_axis(best.scores, order, 1).ravel()[places]
    return logits


@dataclass(eq=False)
class _Lists:
    """The nodes to score: entry i is node ``nodes[i]`` of document ``rows[i]``."""

    rows: Int64
    nodes: Any
    above: Float32
    documents: int

    def matrix(self, scores: Float32, width: int) -> Any:
        pointers = np.searchsorted(self.rows, np.arange(self.documents + 1))
        shape = (self.documents, width)
        matrix = sparse.csr_array((scores, self.nodes.astype(np.int32), pointers), shape=shape)
        matrix.sort_indices()
        return matrix


class _Allowed:
    """The nodes of each level of a tree that have an allowed label below."""

    def __init__(self, tree: LabelTree, mask: LabelMask | None) -> None:
        flags = np.ones(tree.labels, bool) if mask is None else mask.allowed[tree.leaf_labels]
        self.levels = [flags]
        # Numbers of allowed children of the nodes above each level but the first.
        self._children: list[Any] = []
        for level in range(len(tree.widths) - 1, 0, -1):
            counts = np.diff(offsets(self.levels[0])[tree.children(level)])
            self._children.insert(0, counts)
            self.levels.insert(0, counts > 0)

    def needed(self, k: int) -> list[int]:
        """Nodes to keep on each cluster level, so that k allowed labels are below."""
        return nodes_needed(self._children, k)


def heads_from_part(part: Part, tree: LabelTree | None) -> Heads:
    """The heads that an exported folder describes."""
    config, arrays = part.config, part.arrays
    read = (arrays.get("read/weight"), arrays.get("read/bias"))
    levels = [
        (
            count,
            (arrays[f"read/{level}/weight"], arrays[f"read/{level}/bias"]) if count > 1 else None,
        )
        for level, count in enumerate(config.get("joined", ()))
    ]
    reader = Reader(config["reads"], *read, sigmoid=config["sigmoid"], levels=levels)
    tables = [
        (arrays[f"tables/{level}/weight"], arrays.get(f"tables/{level}/bias"))
        for level in range(len(config["kept"] or ()) + 1)
    ]
    if config["kept"] is None:
        return FlatHead(reader, tables, config["probabilities"])
    if tree is None:
        raise ModelFormatError("the folder has heads over a label tree, but no tree")
    form = config["weighted"], config.get("path", False)
    return TreeHeads(reader, tables, tree, config["kept"], *form)


def product(vectors: Float32, weight: Float32) -> Float32:
    """The products of all vectors with all rows.

    For one vector NumPy's library wakes all its threads, and on a busy machine waiting for them
    takes fifty times as long as the work itself.
    """
    if len(vectors) == 1 and weight.size <= SMALL:
        products: Float32 = np.einsum("nw,lw->nl", vectors, weight)
        return products
    return vectors @ weight.T


def _joined(states: Float32) -> Float32:
    return np.ascontiguousarray(states).reshape(len(states), -1)
