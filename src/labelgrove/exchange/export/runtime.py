"""What exported models run: an encoder in onnxruntime, and heads in NumPy and kernels.

Heads predict like the networks of ``labelgrove.nn``, up to the rounding of sums. They are not in
the ONNX graph, because masks and any k decide how many nodes of a tree are searched. Tables stay
mapped files, of which only the rows in use are read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelgrove.core.arrays import Array, Bools, Float32, Int32, Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.late import expit, sparse
from labelgrove.core.part import Part
from labelgrove.core.resources import thread_count
from labelgrove.core.topk import TopK, top_k
from labelgrove.data.corpus import Strings
from labelgrove.errors import ModelFormatError, needing
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, allowed_nodes, children_of, nodes_needed
from labelgrove.nn.encoders.tokens import Tokens, tokenize

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

GRAPH, WEIGHTS, TOKENIZER = "encoder.onnx", "encoder.onnx.data", "tokenizer.json"
MOST = 1 << 20  # tokens, layers and numbers of a state
BATCH_TOKENS = 2048  # including padding; more does not make a CPU faster
DOCUMENTS_AT_ONCE = 64
LOGITS_AT_ONCE = 1 << 24
SMALL = 1 << 22  # largest size of a matrix that one text is multiplied with by einsum


class OnnxEncoder:
    """The graph and the tokenizer of an exported folder, opened when first used."""

    def __init__(self, folder: Path, settings: JsonObject) -> None:
        for name in ("max_tokens", "width", "layers", "pad_id"):
            value = settings[name]
            if type(value) is not int or not (name != "pad_id") <= value <= MOST:
                raise ModelFormatError(f"{folder}: the encoder cannot have {name}={value!r}")
        self.folder = folder
        self.settings = dict(settings)
        self.max_tokens: int = settings["max_tokens"]
        self.markup: str = settings.get("markup", "keep")
        self.lowercase: bool = settings.get("lowercase", False)
        self.fields: tuple[str, ...] = tuple(settings.get("fields", ()))
        self.width: int = settings["width"]
        self.layers: int = settings["layers"]
        self._lock = threading.Lock()
        self._session: InferenceSession | None = None
        self._threads = 0

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The ``tokenizers.Tokenizer`` of the folder."""
        with needing("onnx", "an exported model"):
            from tokenizers import Tokenizer
        file = self.folder / TOKENIZER
        try:
            return Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception
            raise ModelFormatError(f"{file}: cannot be read ({error})") from error

    def tokens(self, texts: Strings) -> Tokens:
        """Token ids of texts, as in training."""
        return tokenize(texts, self, self.max_tokens)

    def session(self) -> InferenceSession:
        """onnxruntime's session for the caller's threads; it keeps the last one."""
        count = thread_count() or os.cpu_count() or 1
        with self._lock:
            if self._session is None or self._threads != count:
                self._session, self._threads = open_session(self.folder / GRAPH, count), count
            return self._session

    def states(
        self, tokens: Tokens, *, documents: int | None = None
    ) -> Iterator[tuple[Int64, Float32]]:
        """Rows and their states (documents x layers x width), in batches of similar length."""
        session: InferenceSession = self.session() if len(tokens) else None
        for rows in batches(tokens, BATCH_TOKENS, documents or len(tokens)):
            longest = int(tokens.lengths[rows].max())
            ids = np.full((len(rows), longest), self.settings["pad_id"], np.int64)
            mask = np.zeros(ids.shape, np.int64)
            for line, row in enumerate(rows):
                count = tokens.lengths[row]
                place = slice(longest - count, None) if self.settings["pad_left"] else slice(count)
                ids[line, place] = tokens.row(row)
                mask[line, place] = 1
            yield rows, self._run(session, {"ids": ids, "mask": mask})

    def _run(self, session: InferenceSession, inputs: dict[str, Int64]) -> Float32:
        try:
            states: Float32 = session.run(None, inputs)[0]
        except Exception as error:  # onnxruntime has a class of its own for every kind of failure
            raise ModelFormatError(f"{self.folder / GRAPH}: cannot be run ({error})") from error
        return states

    def vectors(self, texts: Strings) -> Float32:
        """The states of all layers, side by side, for each document."""
        tokens = self.tokens(texts)
        vectors = np.empty((len(tokens), self.layers * self.width), np.float32)
        for rows, states in self.states(tokens):
            vectors[rows] = states.reshape(len(rows), -1)
        return vectors


def batches(tokens: Tokens, most: int, documents: int) -> Iterator[Int64]:
    """All documents by length, in batches of at most ``most`` tokens, with padding."""
    order = np.argsort(tokens.lengths, kind="stable")
    start = 0
    while start < len(order):
        end, last = start + 1, min(start + documents, len(order))
        while end < last and (end + 1 - start) * tokens.lengths[order[end]] <= most:
            end += 1
        yield order[start:end]
        start = end


def open_session(file: Path, threads: int) -> InferenceSession:
    """onnxruntime's session of a graph, on the CPU."""
    with needing("onnx", "an exported model"):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for every kind of failure
        raise ModelFormatError(
            f"{file}: onnxruntime {onnxruntime.__version__} cannot open it ({error}); try a newer "
            "one: pip install --upgrade onnxruntime"
        ) from error


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
        self._probabilities: bool = self.config["probabilities"]
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
        self._allowed: tuple[LabelMask | None, tuple[list[Bools], list[Int64]]] = None, nodes

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
            nodes: Array
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

    def _scores(self, vectors: list[Float32], rows: Int64, nodes: Array) -> Float32:
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

    def _logits(self, level: int, vectors: list[Float32], rows: Int64, nodes: Array) -> Float32:
        """Logits of each document's own nodes, picked from one product with all rows in use.

        The product sums in the same order as one with the whole table.
        """
        weight, bias = self.tables[level]
        used, positions = np.unique(nodes, return_inverse=True)
        table = weight if len(used) == len(weight) else weight[used]
        logits: Float32 = product(vectors[level], table)[rows, positions]
        return logits if bias is None else logits + bias[nodes]

    def _within(self, mask: LabelMask | None) -> tuple[list[Bools], list[Int64]]:
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
        """The k best labels, scores of ``more`` columns, and the text vectors if asked for."""
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
