"""Beam search over a label tree: how to search, and the search itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import Array, CsrParts, Float32, Int32, Int64
from labelgrove.core.late import expit, log_expit
from labelgrove.core.params import Params, Settings, param
from labelgrove.core.resources import thread_count
from labelgrove.core.topk import TopK
from labelgrove.data.features import FeatureParts
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.predictions import ScoreKind
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.weights import ChunkedWeights, check_chunks

PostProcessor = Literal["noop", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid"]
POST_PROCESSORS = get_args(PostProcessor)
MANY_CLUSTERS = 1000  # on one level


@dataclass
class SearchParams(Params):
    """How a tree is searched for the best labels."""

    beam: int | list[int] | Literal["auto"] = param(
        "auto",
        ge=1,
        le=2**31 - 1,
        help="nodes kept per level; the last number of a list is for all further levels; "
        "auto: 10, but 12 on levels of more than 1,000 nodes",
    )
    post_processor: PostProcessor = param(
        "l4-hinge", help="turns a margin into a score; scores multiply down the tree"
    )
    last_level: Literal["same", "noop"] = param(
        "same", help="noop ranks labels by their own margin; the tree then only shortlists"
    )
    exact: bool = param(False, help="search the whole tree instead of a beam")

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of the scores: products of per-level scores, or raw margins."""
        return "margin" if "noop" in (self.last_level, self.post_processor) else "product"

    def for_upper_levels(self, tree: LabelTree) -> SearchParams:
        """The settings for a search that ends above the labels, at the leaves of ``tree``."""
        beams = beam_per_level(self.beam, tree.widths)
        return replace(self, last_level="same", beam=beams)


OWN_MARGIN = SearchParams(last_level="noop")  # the margin of a label, whatever is above it


def log_transformed(margins: Array | np.float64, kind: str) -> Array | np.float64:
    """The logarithm of what the post-processor ``kind`` makes of margins; not for noop.

    >>> log_transformed(np.array([2.0, 0.0, -1.0]), "l3-hinge").tolist()
    [-0.0, -1.0, -8.0]
    """
    if kind == "sigmoid":
        return log_expit(margins)
    logarithms: Array = -(np.maximum(0, 1 - margins) ** int(kind[1]))
    return logarithms


def transformed(margins: Float32, kind: str) -> Float32:
    """Margins as factors between 0 and 1: what a search multiplies down the tree."""
    if kind == "sigmoid":
        return np.asarray(expit(margins.astype(np.float64)), np.float32)
    factors: Float32 = np.exp(log_transformed(margins, kind))
    return factors


def beam_per_level(beam: int | list[int] | Literal["auto"], widths: Sequence[int]) -> list[int]:
    """The beam of each level; ``widths`` are their numbers of nodes. Extra numbers are ignored.

    On a level with many clusters a wider beam finds labels that a narrow one loses.

    >>> beam_per_level("auto", (8, 128, 2048, 178719)), beam_per_level([5, 20], (4, 64, 4108))
    ([10, 10, 12, 12], [5, 20, 20])
    """
    if beam == "auto":
        return [12 if width > MANY_CLUSTERS else 10 for width in widths]
    beams = beam if isinstance(beam, list) else [beam]
    return (beams + beams[-1:] * len(widths))[: len(widths)]


class BeamSearch:
    """A tree and its weights, over the columns of the documents' sparse and dense blocks."""

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
        for count in (features, width):
            if not 0 <= count <= np.iinfo(np.int32).max:  # the kernels number them by int32
                raise DataError(f"a ranker cannot have {count:,} features of a kind")
        self.tree = tree
        self.levels = levels
        self.features = features
        self.width = width
        self.bias = bias
        self._last_settings: Settings = {}
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
                **weights.arrays(),
                child_ptr=children,
                leaf_ptr=leaf_ptr[len(levels) - 1 - number],
                cols=features,
                dense_cols=width,
            )

    def __call__(
        self, documents: FeatureParts, *, k: int, params: SearchParams, allowed: Int32 | None = None
    ) -> TopK:
        """The k best labels; ``allowed`` counts the allowed leaves before each position."""
        if k < 1:
            raise ConfigError(f"k: must be at least 1, got {k}")
        self._check(documents)
        shape = documents.rows, min(k, self.tree.labels if allowed is None else allowed[-1])
        counts = np.empty(documents.rows, np.int32)
        best = TopK(np.empty(shape, np.int32), np.empty(shape, np.float32), counts)
        self._model.search(
            documents,
            beams=self._beams(params),
            post_processor=POST_PROCESSORS.index(params.post_processor),
            raw_last_level=params.last_level == "noop",
            bias=self.bias,
            allowed=allowed,
            best=best,
            threads=thread_count(),
        )
        return best

    def score_pairs(
        self, documents: FeatureParts, *, indptr: Int64, columns: Int32, params: SearchParams
    ) -> Float32:
        """Scores of given labels: row i asks for ``columns[indptr[i] : indptr[i + 1]]``."""
        self._check(documents)
        leaves = self.tree.leaf_positions[columns]
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        order = np.lexsort((leaves, rows))  # the kernel walks each row's leaves from left to right
        in_order = np.empty(len(columns), np.float32)
        self._model.score(
            documents,
            post_processor=POST_PROCESSORS.index(params.post_processor),
            raw_last_level=params.last_level == "noop",
            bias=self.bias,
            indptr=indptr,
            leaves=leaves[order],
            scores=in_order,
            threads=thread_count(),
        )
        scores = np.empty_like(in_order)
        scores[order] = in_order
        return scores

    def _check(self, documents: FeatureParts) -> None:
        """Refuses blocks that are not as wide as the model's."""
        widths = documents.sparse.cols, documents.dense.shape[1]
        if widths != (self.features, self.width):
            raise DataError(
                f"documents have {features_text(*widths)} but the model knows "
                f"{features_text(self.features, self.width)}"
            )

    def _beams(self, params: SearchParams) -> list[int]:
        if params.exact:
            return [0] * len(self.levels)
        if isinstance(params.beam, list) and not 1 <= len(params.beam) <= len(self.levels):
            numbers, levels = len(params.beam), len(self.levels)
            raise ConfigError(f"search.beam: {numbers} numbers but the tree has {levels} levels")
        return beam_per_level(params.beam, self.tree.widths)


def sparse_only(parts: CsrParts) -> FeatureParts:
    """Documents without a dense block."""
    return FeatureParts(parts, np.empty((len(parts.indptr) - 1, 0), np.float32))


def features_text(terms: int, width: int) -> str:
    """The features of two blocks in words, for messages."""
    if width and terms:
        return f"{terms:,} sparse and {width:,} dense features"
    return f"{width:,} dense features" if width else f"{terms:,} features"
