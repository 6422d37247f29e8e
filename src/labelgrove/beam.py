"""The checked door to beam search: how to search, and the search itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labelgrove import _native
from labelgrove.arrays import CsrParts, Float32, Int32, Int64
from labelgrove.errors import ConfigError, DataError
from labelgrove.params import Params, param
from labelgrove.predictions import ScoreKind
from labelgrove.solver import ChunkedWeights
from labelgrove.tree import LabelTree

POST_PROCESSORS = (
    "noop",
    "l1-hinge",
    "l2-hinge",
    "l3-hinge",
    "l4-hinge",
    "sigmoid",
    "log-sigmoid",
)


@dataclass
class SearchParams(Params):
    """How a tree is searched for the best labels.

    >>> SearchParams(last_level="noop").score_kind
    'margin'
    """

    beam: int | list[int] | Literal["auto"] = param(
        "auto",
        ge=1,
        help="nodes kept per level; of a list, the last number serves all further levels; "
        "auto: 10, but 15 from the third level on",
    )
    post_processor: Literal[
        "noop", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid", "log-sigmoid"
    ] = param("l4-hinge", help="turns a margin into a score; scores multiply down the tree")
    last_level: Literal["same", "noop"] = param(
        "same", help="noop ranks labels by their own margin; the tree then only shortlists"
    )
    exact: bool = param(False, help="search the whole tree instead of a beam")

    @property
    def score_kind(self) -> ScoreKind:
        """What the scores are: products of per-level scores, or raw margins (and log scores).

        >>> SearchParams().score_kind
        'product'
        """
        raw = self.last_level == "noop" or self.post_processor in ("noop", "log-sigmoid")
        return "margin" if raw else "product"


def beam_per_level(beam: int | list[int] | Literal["auto"], levels: int) -> list[int]:
    """The beam of each of so many levels; further numbers of a list are left out.

    From the third level on a tree has many clusters to miss, while those of two-level trees hardly
    gain from a wider beam but slow the search down.

    >>> beam_per_level("auto", 4), beam_per_level([5, 20], 3), beam_per_level(10, 2)
    ([10, 10, 15, 15], [5, 20, 20], [10, 10])
    """
    beams = [10, 10, 15] if beam == "auto" else beam if isinstance(beam, list) else [beam]
    return (beams + beams[-1:] * levels)[:levels]


class BeamSearch:
    """A tree and its weights, ready to be searched.

    >>> tree = LabelTree([[0, 0]], [1, 0])
    >>> weights = ChunkedWeights(
    ...     chunk_rows=np.array([0, 1]), chunk_entries=np.array([0, 2]),
    ...     features=np.array([0], np.int32), row_start=np.array([0, 2], np.uint32),
    ...     children=np.array([0, 1], np.uint16), values=np.array([2, -2], np.float32),
    ...     bias=np.zeros(2, np.float32))
    >>> search = BeamSearch(tree, [weights], features=1, bias=1.0)
    >>> from labelgrove.arrays import as_csr, csr_parts
    >>> search(csr_parts(as_csr([[1.0]])), k=1, params=SearchParams())[0].tolist()
    [[1]]
    """

    def __init__(
        self, tree: LabelTree, levels: list[ChunkedWeights], *, features: int, bias: float
    ) -> None:
        if len(levels) != len(tree.parents):
            raise DataError(f"{len(levels)} levels of weights for {len(tree.parents)} tree levels")
        self.tree = tree
        self.depth = len(levels)
        self.features = features
        self.bias = bias
        self._model = _native.BeamModel(tree.leaf_labels)
        leaf_ptr = [np.arange(tree.labels + 1, dtype=np.int64)]
        for level in range(len(levels) - 1, 0, -1):
            leaf_ptr.append(leaf_ptr[-1][tree.children(level)])
        for number, weights in enumerate(levels):
            children = tree.children(number)
            _check_chunks(weights, children, features, f"ranker level {number}")
            self._model.add_level(
                weights.chunk_rows,
                weights.chunk_entries,
                weights.features,
                weights.row_start,
                weights.children,
                weights.values,
                weights.bias,
                children,
                leaf_ptr[len(levels) - 1 - number],
                features,
            )

    def __call__(
        self,
        documents: CsrParts,
        *,
        k: int,
        params: SearchParams,
        mask: LabelMask | None = None,
        threads: int | None = None,
    ) -> tuple[Int32, Float32, Int32]:
        """Label columns, scores (both n x k, best first) and how many places each row fills."""
        if k < 1:
            raise ConfigError(f"k: must be at least 1, got {k}")
        self._check_columns(documents)
        rows = len(documents.indptr) - 1
        width = min(k, self.tree.labels if mask is None else mask.labels)
        found = np.empty((rows, width), np.int32)
        scores = np.empty((rows, width), np.float32)
        counts = np.empty(rows, np.int32)
        self._model.search(
            *documents,
            self._beams(params),
            POST_PROCESSORS.index(params.post_processor),
            params.last_level == "noop",
            self.bias,
            None if mask is None else mask.allowed_before,
            found,
            scores,
            counts,
            threads or 0,
        )
        return found, scores, counts

    def score(
        self,
        documents: CsrParts,
        *,
        indptr: Int64,
        columns: Int32,
        params: SearchParams,
        threads: int | None = None,
    ) -> Float32:
        """Scores of given labels: row i asks for ``columns[indptr[i] : indptr[i + 1]]``."""
        self._check_columns(documents)
        leaves = self.tree.leaf_positions[columns]
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((leaves, rows))  # the kernel walks each row's leaves from left to right
        found = np.empty(len(columns), np.float32)
        self._model.score(
            *documents,
            POST_PROCESSORS.index(params.post_processor),
            params.last_level == "noop",
            self.bias,
            indptr,
            leaves[order],
            found,
            threads or 0,
        )
        scores = np.empty_like(found)
        scores[order] = found
        return scores

    def _check_columns(self, documents: CsrParts) -> None:
        if documents.cols != self.features:
            raise DataError(
                f"documents have {documents.cols:,} features but the model knows {self.features:,}"
            )

    def _beams(self, params: SearchParams) -> list[int]:
        if params.exact:
            return [0] * self.depth
        if isinstance(params.beam, list) and not params.beam:
            raise ConfigError("search.beam: a list of beams needs at least one number")
        if isinstance(params.beam, list) and len(params.beam) > self.depth:
            raise ConfigError(
                f"search.beam: {len(params.beam)} numbers but the tree has {self.depth} levels"
            )
        return beam_per_level(params.beam, self.depth)


class LabelMask:
    """The labels that a search may find, laid over a tree; make it once and use it often.

    >>> mask = LabelMask(LabelTree([[0, 0, 0]], [2, 0, 1]), deny=[1])
    >>> mask.labels, mask.allowed_before.tolist()
    (2, [0, 1, 2, 2])
    """

    def __init__(self, tree: LabelTree, *, allow: Any = None, deny: Any = None) -> None:
        allowed = np.full(tree.labels, allow is None)
        if allow is not None:
            allowed[label_columns(allow, tree.labels, name="allow")] = True
        if deny is not None:
            allowed[label_columns(deny, tree.labels, name="deny")] = False
        self.labels = int(allowed.sum())
        if self.labels == 0:
            raise DataError("no label is left to predict: check the allow and deny lists")
        self.allowed_before: Int32 = np.zeros(tree.labels + 1, np.int32)
        np.cumsum(allowed[tree.leaf_labels], out=self.allowed_before[1:])


def label_columns(columns: Any, labels: int, *, name: str) -> Int32:
    """Label columns as a checked array.

    >>> label_columns([2, 0], 3, name="allow").tolist()
    [2, 0]
    """
    array = np.asarray(columns)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError(f"{name}: must be a list of label columns (whole numbers)")
    if array.size and not 0 <= array.min() <= array.max() < labels:
        raise DataError(f"{name}: a label column lies outside 0..{labels - 1}")
    return array.astype(np.int32)


def _check_chunks(weights: ChunkedWeights, children: Int64, features: int, where: str) -> None:
    """Refuses arrays that do not fit each other: a damaged file must not crash the kernel."""
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
        and bool((np.diff(weights.chunk_rows) >= 0).all())
        and bool((np.diff(weights.chunk_entries) >= 0).all())
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
