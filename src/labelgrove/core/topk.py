"""The best columns of score matrices, products and several ranked lists, by native kernels."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.core import arrays
from labelgrove.core.late import sparse
from labelgrove.core.resources import thread_count
from labelgrove.errors import ConfigError, DataError

# How the scores of a label in several lists become one: their mean, where a list without the label
# counts as 0 or as its own last label does; or the largest.
Combine = Literal["mean", "mean-or-last", "largest"]


class TopK(NamedTuple):
    """Rows x width arrays, best first; row i has ``counts[i]`` entries.

    The rest is padding: column -1, score -inf.
    """

    columns: arrays.Int32
    scores: arrays.Float32
    counts: arrays.Int32

    def to_csr(self, columns: int, *, ones: bool = False) -> arrays.CSR:
        """The scores (or ones) as a sparse matrix with so many columns; a score of 0 is stored."""
        return lists_to_csr(self.columns, None if ones else self.scores, self.counts, columns)


def lists_to_csr(
    columns: arrays.Int32, values: arrays.Float32 | None, counts: arrays.Array, width: int
) -> arrays.CSR:
    """Padded lists of columns, as :class:`TopK` has them, as a sparse matrix; None means ones."""
    used = np.arange(columns.shape[1]) < counts[:, None]
    data = np.ones(int(used.sum()), np.float32) if values is None else values[used]
    matrix = sparse.csr_array(
        (data, columns[used].astype(np.int64), arrays.offsets(counts)), shape=(len(columns), width)
    )
    matrix.sort_indices()
    return matrix


def top_k(matrix: arrays.MatrixLike, k: int, *, name: str = "score matrix") -> TopK:
    """The k best entries of each row, by (-score, column): of equal scores the lower column wins.

    In a sparse matrix only stored entries compete (an explicit 0 counts). An entry of -inf is never
    taken; NaN and +inf are refused. A row may have fewer than k entries, and the result is only as
    wide as its longest row can be.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if sparse.issparse(matrix):
        csr = arrays.as_csr(matrix, name=name)
        best = _empty(csr.shape[0], min(k, int(np.diff(csr.indptr).max(initial=0))))
        parts = arrays.csr_parts(csr, name=name, finite=False)
        if best.columns.size:
            _refuse(_native.topk_sparse(parts, best, thread_count()), name)
        return best
    dense = np.ascontiguousarray(matrix, dtype=np.float32)
    if dense.ndim != 2:
        raise DataError(f"{name} must have two dimensions, got shape {dense.shape}")
    best = _empty(dense.shape[0], min(k, dense.shape[1]))
    if best.columns.size:
        _refuse(_native.topk_dense(dense, best, thread_count()), name)
    return best


def nearest_rows(queries: arrays.CsrParts, postings: arrays.CsrParts, k: int) -> TopK:
    """The k documents with the largest products with each query, by (-product, document).

    ``postings`` is an inverted index: a row per term, a column per document. Documents without a
    common term have a product of 0.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    terms = len(postings.indptr) - 1
    if queries.cols != terms:
        raise DataError(f"queries have {queries.cols} columns, but the index has {terms} terms")
    best = _empty(len(queries.indptr) - 1, min(k, postings.cols))
    if best.columns.size:
        _native.nearest_rows(queries, postings, best, thread_count())
    return best


def merge_lists(
    columns: arrays.Int32,
    scores: arrays.Float32,
    k: int,
    *,
    combine: Combine = "mean",
    weights: npt.ArrayLike | None = None,
) -> TopK:
    """The k best labels of each row over several lists, by (-score, column).

    ``columns`` and ``scores`` are lists x rows x ranks; a list ends at the first column of -1.
    ``weights`` of the mean has one number per list: none below 0, not all 0.
    """
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    if columns.ndim != 3 or columns.shape != scores.shape or len(columns) == 0:
        raise DataError(
            f"columns {columns.shape} and scores {scores.shape} must be equal lists x rows x ranks"
        )
    lists, rows, places = columns.shape
    shares = np.ones(lists) if weights is None else np.array(weights, np.float64)
    if shares.shape != (lists,) or not np.isfinite(shares).all():
        raise ConfigError(f"weights must be {lists} numbers, one per list, got {weights!r}")
    if shares.min() < 0 or shares.sum() <= 0:
        raise ConfigError(f"weights must not be negative, nor all 0, got {weights!r}")
    best = _empty(rows, min(k, lists * places))
    if best.columns.size:
        _native.merge_trees(
            columns=np.ascontiguousarray(columns, np.int32),
            scores=np.ascontiguousarray(scores, np.float32),
            weights=shares,
            combine=get_args(Combine).index(combine),
            best=best,
            threads=thread_count(),
        )
    full = int(best.counts.max(initial=0))
    return TopK(best.columns[:, :full], best.scores[:, :full], best.counts)


def _empty(rows: int, width: int) -> TopK:
    return TopK(
        np.empty((rows, width), np.int32),
        np.empty((rows, width), np.float32),
        np.zeros(rows, np.int32),
    )


def _refuse(row: int, name: str) -> None:
    if row >= 0:
        raise DataError(
            f"{name}: row {row} contains NaN or +infinity; scores must be finite, "
            "or -inf for labels that must not be predicted"
        )
