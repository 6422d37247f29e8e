"""Heads without torch: from an encoder's pooled states to the best labels, in NumPy and kernels.

They predict like the networks of ``labelgrove.nn``, up to the rounding of sums. They are not in the
ONNX graph, because masks and any k decide how many nodes of a tree are searched. Tables stay mapped
files, of which only the rows in use are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labelgrove.core.arrays import Float32, Int32, Int64
from labelgrove.core.late import expit, sparse
from labelgrove.core.part import Part
from labelgrove.core.topk import TopK, drop_repeated, top_k
from labelgrove.errors import ModelFormatError
from labelgrove.exchange.export.onnx_encoder import OnnxEncoder
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, allowed_nodes, children_of, nodes_needed
from labelgrove.nn.encoders.tokens import Tokens

DOCUMENTS_AT_ONCE = 64
LOGITS_AT_ONCE = 1 << 24
SMALL = 1 << 22  # largest size of a matrix that one text is multiplied with by einsum


class Heads:
    """Tables of weights and biases, one per level of a label tree; the last has the labels.

    Each level scores the children of the best nodes above it. Without a tree there is one level,
    and the scores of a part with ``probabilities: false`` are margins.
    """

    def __init__(self, part: Part, tree: LabelTree | None) -> None:
        self.config, self.arrays = part.config, part.arrays
        if self.config["reads"] not in ("joined", "bottleneck", "levels", "single"):
            raise ModelFormatError(
                "an earlier labelgrove exported this model; export the original model again"
            )
        self.kept: list[int] = self.config["kept"] or []
        self.tables = [self._layer(f"tables/{level}") for level in range(len(self.kept) + 1)]
        labels = len(self.tables[-1][0])
        if self.config["kept"] is None:
            tree = LabelTree([np.zeros(labels, np.int64)], np.arange(labels))
        elif tree is None:
            raise ModelFormatError("the folder has heads over a label tree, but no tree")
        elif len(tree.widths) != len(self.tables):
            raise ModelFormatError("the heads have other levels than the label tree")
        self.tree = tree
        # Batches of a call share their mask, so what follows from it is computed once.
        nodes = allowed_nodes(tree, np.ones(labels, bool))
        self._allowed: tuple[LabelMask | None, tuple[list[Any], list[Any]]] = None, nodes

    @property
    def text_width(self) -> int:
        return int(self.tables[-1][0].shape[1])

    @property
    def documents_at_once(self) -> int:
        return max(1, min(DOCUMENTS_AT_ONCE, LOGITS_AT_ONCE // len(self.tables[0][0])))

    def vectors(self, states: Float32) -> list[Float32]:
        """What each level reads of states (documents x layers x width); labels read the last."""
        reads = self.config["reads"]
        if reads in ("joined", "bottleneck"):  # all states side by side
            text = _joined(states)
            if reads == "joined":
                return [text]
            narrow = self._mixed("read", text)
            return [text, expit(narrow) if self.config["sigmoid"] else narrow]
        vectors, first = [], 0
        for level, count in enumerate(self.config.get("joined", [1])):
            own = _joined(states[:, first : first + count])
            vectors.append(own if count == 1 else self._mixed(f"read/{level}", own))
            first += count
        return vectors

    def best_labels(self, vectors: list[Float32], k: int, *, mask: LabelMask | None = None) -> TopK:
        """The k best columns in ``mask`` for each document's vectors; -1 where there are fewer."""
        allowed, children = self._within(mask)
        needed = nodes_needed(children, k)
        keep = [*map(max, zip(self.kept, needed, strict=True)), k]
        weight, bias = self.tables[0]
        logits = product(vectors[0], weight)
        if bias is not None:
            logits += bias
        logits[:, ~allowed[0]] = -np.inf
        best = top_k(logits, keep[0])
        if not self.kept:
            return best._replace(scores=expit(best.scores)) if self._probabilities else best
        for level in range(1, len(self.tables)):
            real = best.columns >= 0
            nodes, sizes = children_of(best.columns[real], self.tree.children(level))
            rows = np.repeat(np.nonzero(real)[0], sizes)
            fits = allowed[level][nodes]
            rows, nodes = rows[fits], nodes[fits]
            if level < len(self.kept):
                scores = self._logits(level, vectors, rows, nodes)
            else:
                scores = self._scores(vectors, rows, nodes)
                nodes = self.tree.leaf_labels[nodes]
            pointers = np.searchsorted(rows, np.arange(len(best.columns) + 1))
            shape = len(best.columns), self.tree.widths[level]
            matrix = sparse.csr_array((scores, nodes.astype(np.int32), pointers), shape=shape)
            matrix.sort_indices()
            best = top_k(matrix, keep[level])
        return best

    def scores(self, vectors: list[Float32], columns: Int32) -> Float32:
        """What :meth:`best_labels` gives to label columns of each document; 0 where -1."""
        scores = np.zeros(columns.shape, np.float32)
        rows, places = np.nonzero(columns >= 0)
        nodes = self.tree.leaf_positions[columns[rows, places]]
        scores[rows, places] = self._scores(vectors, rows, nodes)
        return scores

    def _scores(self, vectors: list[Float32], rows: Int64, nodes: Any) -> Float32:
        """Of leaves: probabilities, perhaps times those of the clusters above."""
        levels = len(self.tables)
        counted = 1 + self.config.get("weighted", False)
        counted = levels if self.config.get("path") else min(counted, levels)
        scores: Float32 = self._logits(levels - 1, vectors, rows, nodes)
        if not self._probabilities:
            return scores
        scores = expit(scores)
        for level in range(levels - 2, levels - 1 - counted, -1):
            nodes = self.tree.parents[level + 1][nodes]
            scores *= expit(self._logits(level, vectors, rows, nodes))
        return scores

    def _logits(self, level: int, vectors: list[Float32], rows: Int64, nodes: Any) -> Float32:
        """Logits of each document's own nodes, picked from one product with all rows in use.

        The product sums in the same order as one with the whole table.
        """
        weight, bias = self.tables[level]
        used, positions = np.unique(nodes, return_inverse=True)
        table = weight if len(used) == len(weight) else weight[used]
        logits: Float32 = product(vectors[level], table)[rows, positions]
        return logits if bias is None else logits + bias[nodes]

    def _within(self, mask: LabelMask | None) -> tuple[list[Any], list[Any]]:
        known, nodes = self._allowed
        if known is not mask:
            flags = np.ones(self.tree.labels, bool) if mask is None else mask.allowed
            nodes = allowed_nodes(self.tree, flags)
            self._allowed = mask, nodes
        return nodes

    def _layer(self, name: str) -> tuple[Float32, Float32 | None]:
        return self.arrays[f"{name}/weight"], self.arrays.get(f"{name}/bias")

    def _mixed(self, name: str, vectors: Float32) -> Float32:
        weight, bias = self._layer(name)
        assert bias is not None
        return product(vectors, weight) + bias

    @property
    def _probabilities(self) -> bool:
        return bool(self.config["probabilities"])


@dataclass(eq=False)
class OnnxRunner:
    """Sends documents through an encoder and heads, like the Runner of ``labelgrove.nn``."""

    encoder: OnnxEncoder
    heads: Heads

    def read(
        self,
        tokens: Tokens,
        k: int,
        *,
        vectors: bool = False,
        mask: LabelMask | None = None,
        more: Int32 | None = None,
    ) -> tuple[Int32, Float32, Float32]:
        """Columns and scores of the k best labels and, if asked for, of ``more`` columns of each
        document and the text vectors.
        """
        k = k if mask is None else min(k, len(mask))
        columns = np.full((len(tokens), k if more is None else k + more.shape[1]), -1, np.int32)
        scores = np.full(columns.shape, -np.inf, np.float32)
        texts = np.zeros((len(tokens), self.heads.text_width if vectors else 0), np.float32)
        most = self.heads.documents_at_once
        for rows, states in self.encoder.states(tokens, documents=most):
            levels = self.heads.vectors(states)
            best = self.heads.best_labels(levels, k, mask=mask)
            width = best.columns.shape[1]
            columns[rows, :width], scores[rows, :width] = best.columns, best.scores
            if more is not None:
                columns[rows, k:] = more[rows]
                scores[rows, k:] = self.heads.scores(levels, more[rows])
            if vectors:
                texts[rows] = levels[-1]
        if more is not None:
            drop_repeated(columns)
        return columns, scores, texts


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
    documents, layers, width = states.shape
    return np.ascontiguousarray(states).reshape(documents, layers * width)
