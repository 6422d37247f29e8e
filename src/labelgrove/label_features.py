"""What a label looks like in feature space, for building trees from."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from labelgrove import _native
from labelgrove.arrays import CSR, as_csr, csr_from_arrays, csr_parts
from labelgrove.errors import DataError


def pifa(
    features: Any, labels: Any, *, row_weights: bool = True, threads: int | None = None
) -> CSR:
    """Positive instance feature aggregation: the unit-length sum of each label's documents.

    With ``row_weights`` a document with n labels counts 1/sqrt(n) for each of them, so that
    documents which bear many labels do not blur all of them. A label without documents, or whose
    documents have no features, gets a zero row. Label weights are ignored: a label is there or not.

    >>> pifa([[3.0, 0.0], [0.0, 4.0]], [[1, 0], [1, 1]], row_weights=False).toarray()
    array([[0.6, 0.8],
           [0. , 1. ]], dtype=float32)
    """
    x, y = as_csr(features, name="features"), as_csr(labels, name="labels")
    if x.shape[0] != y.shape[0]:
        raise DataError(f"features have {x.shape[0]} rows but labels have {y.shape[0]}")
    weights = np.ones(y.nnz, np.float32)
    if row_weights:
        counts = np.diff(y.indptr)
        weights /= np.sqrt(np.repeat(counts, counts)).astype(np.float32)
    by_label = sparse.csc_array((weights, y.indices, y.indptr), shape=y.shape[::-1]).tocsr()
    sums = _native.pifa(*csr_parts(x, name="features"), *csr_parts(as_csr(by_label)), threads or 0)
    return csr_from_arrays(
        {
            "z.indptr": sums[0],
            "z.indices": sums[1],
            "z.data": sums[2],
            "z.shape": np.array([y.shape[1], x.shape[1]]),
        },
        "z",
    )


def l2_normalised(matrix: Any) -> CSR:
    """Rows scaled to unit length; zero rows stay zero.

    >>> l2_normalised([[3.0, 4.0], [0.0, 0.0]]).toarray()
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    csr = as_csr(matrix)
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    squares = np.bincount(
        rows, weights=np.square(csr.data, dtype=np.float64), minlength=csr.shape[0]
    ).astype(np.float64)
    scale = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    data = (csr.data * scale[rows]).astype(np.float32)
    return sparse.csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
