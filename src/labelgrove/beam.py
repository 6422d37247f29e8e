"""The checked door to beam search: how to search, and the search itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labelgrove import _native
from labelgrove.arrays import CsrParts, Float32, Int32, Int64
from labelgrove.errors import ConfigError, DataError
from labelgrove.features import FeatureParts
from labelgrove.params import Params, param
from labelgrove.predictions import ScoreKind
from labelgrove.solver import ChunkedWeights
from labelgrove.tree import LabelTree
from labelgrove.weight_checks import check_chunks

POST_PROCESSORS = (
    "noop",
    "l1-hinge",
    "l2-hinge",
    "l3-hinge",
    "l4-hinge",
    "sigmoid",
    "log-sigmoid",
)


MANY_CLUSTERS = 1000  # on one level


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
        "auto: 10, but 12 on levels of more than 1,000 nodes",
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


OWN_MARGIN = SearchParams(last_level="noop")  # a label by itself, whatever stands above it


def beam_per_level(beam: int | list[int] | Literal["auto"], widths: Sequence[int]) -> list[int]:
    """The beam of each level, these being so many nodes wide; more numbers of a list are left out.

    Where a level has many clusters there are many to miss, and a wider beam finds labels that a
    narrow one loses. On narrower levels it gives little and slows the search down.

    >>> beam_per_level("auto", (8, 128, 2048, 178719)), beam_per_level([5, 20], (4, 64, 4108))
    ([10, 10, 12, 12], [5, 20, 20])
    """
    if beam == "auto":
        return [12 if width > MANY_CLUSTERS else 10 for width in widths]
    beams = beam if isinstance(beam, list) else [beam]
    return (beams + beams[-1:] * len(widths))[: len(widths)]


class BeamSearch:
    """A tree and its weights, ready to be searched.

    ``features`` and ``width`` are the columns of the documents' sparse and dense blocks.

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
        self,
        tree: LabelTree,
        levels: list[ChunkedWeights],
        *,
        features: int,
        bias: float,
        width: int = 0,
    ) -> None:
        if len(levels) != len(tree.parents):
            raise DataError(f"{len(levels)} levels of weights for {len(tree.parents)} tree levels")
        self.tree = tree
        self.depth = len(levels)
        self.features = features
        self.width = width
        self.bias = bias
        self._model = _native.BeamModel(tree.leaf_labels)
        leaf_ptr = [np.arange(tree.labels + 1, dtype=np.int64)]
        for level in range(len(levels) - 1, 0, -1):
            leaf_ptr.append(leaf_ptr[-1][tree.children(level)])
        for number, weights in enumerate(levels):
            children = tree.children(number)
            check_chunks(
                weights, children, features=features, width=width, where=f"ranker level {number}"
            )
            self._model.add_level(
                chunk_rows=weights.chunk_rows,
                chunk_entries=weights.chunk_entries,
                features=weights.features,
                row_start=weights.row_start,
                children=weights.children,
                values=weights.values,
                scales=weights.scales,
                bias=weights.bias,
                dense=weights.dense,
                child_ptr=children,
                leaf_ptr=leaf_ptr[len(levels) - 1 - number],
                cols=features,
                dense_cols=width,
            )

    def __call__(
        self,
        documents: FeatureParts | CsrParts,
        *,
        k: int,
        params: SearchParams,
        mask: TreeMask | None = None,
        threads: int | None = None,
    ) -> tuple[Int32, Float32, Int32]:
        """Label columns, scores (both n x k, best first) and how many places each row fills."""
        if k < 1:
            raise ConfigError(f"k: must be at least 1, got {k}")
        blocks = self._blocks(documents)
        rows = blocks.rows
        width = min(k, self.tree.labels if mask is None else mask.labels)
        found = np.empty((rows, width), np.int32)
        scores = np.empty((rows, width), np.float32)
        counts = np.empty(rows, np.int32)
        self._model.search(
            blocks,
            beams=self._beams(params),
            post_processor=POST_PROCESSORS.index(params.post_processor),
            raw_last_level=params.last_level == "noop",
            bias=self.bias,
            allowed=None if mask is None else mask.allowed_before,
            best=(found, scores, counts),
            threads=threads or 0,
        )
        return found, scores, counts

    def score(
        self,
        documents: FeatureParts | CsrParts,
        *,
        indptr: Int64,
        columns: Int32,
        params: SearchParams,
        threads: int | None = None,
    ) -> Float32:
        """Scores of given labels: row i asks for ``columns[indptr[i] : indptr[i + 1]]``."""
        blocks = self._blocks(documents)
        leaves = self.tree.leaf_positions[columns]
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((leaves, rows))  # the kernel walks each row's leaves from left to right
        found = np.empty(len(columns), np.float32)
        self._model.score(
            blocks,
            post_processor=POST_PROCESSORS.index(params.post_processor),
            raw_last_level=params.last_level == "noop",
            bias=self.bias,
            indptr=indptr,
            leaves=leaves[order],
            scores=found,
            threads=threads or 0,
        )
        scores = np.empty_like(found)
        scores[order] = found
        return scores

    def _blocks(self, documents: FeatureParts | CsrParts) -> FeatureParts:
        """Both blocks, as wide as the model's."""
        if isinstance(documents, CsrParts):
            documents = sparse_only(documents)
        found = documents.sparse.cols, documents.dense.shape[1]
        if found != (self.features, self.width):
            raise DataError(
                f"documents have {features_text(*found)} but the model knows "
                f"{features_text(self.features, self.width)}"
            )
        return documents

    def _beams(self, params: SearchParams) -> list[int]:
        if params.exact:
            return [0] * self.depth
        if isinstance(params.beam, list) and not params.beam:
            raise ConfigError("search.beam: a list of beams needs at least one number")
        if isinstance(params.beam, list) and len(params.beam) > self.depth:
            raise ConfigError(
                f"search.beam: {len(params.beam)} numbers but the tree has {self.depth} levels"
            )
        return beam_per_level(params.beam, self.tree.widths)


class TreeMask:
    """The labels that a search may find, laid over a tree; make it once and use it often.

    >>> mask = TreeMask(LabelTree([[0, 0, 0]], [2, 0, 1]), deny=[1])
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


def sparse_only(parts: CsrParts) -> FeatureParts:
    """Documents that have no dense block.

    >>> from labelgrove.arrays import as_csr, csr_parts
    >>> sparse_only(csr_parts(as_csr([[1.0]]))).dense.shape
    (1, 0)
    """
    return FeatureParts(parts, np.empty((len(parts.indptr) - 1, 0), np.float32))


def features_text(terms: int, width: int) -> str:
    """What a message calls features of two blocks.

    >>> features_text(50, 0), features_text(0, 3), features_text(50, 3)
    ('50 features', '3 dense features', '50 sparse and 3 dense features')
    """
    if width == 0:
        return f"{terms:,} features"
    return (
        f"{width:,} dense features"
        if terms == 0
        else f"{terms:,} sparse and {width:,} dense features"
    )
