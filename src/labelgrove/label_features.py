"""What a label looks like in feature space, for building trees from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from labelgrove import _native
from labelgrove.arrays import CSR, as_csr, csr_from_arrays, csr_parts
from labelgrove.corpus import LabelIndex, Strings
from labelgrove.errors import ConfigError, DataError
from labelgrove.topk import top_k
from labelgrove.tree import TreeParams

# Labels whose random walks are held in memory at once, and entries pruned at once.
WALK_BLOCK = 1 << 16
PRUNE_ENTRIES = 1 << 24


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


def pii(labels: Any) -> CSR:
    """Positive instance indices: a label is the unit-length list of the documents that bear it.

    As in :func:`pifa`, a document with n labels counts 1/sqrt(n) for each.

    >>> pii([[1, 0], [1, 0]]).toarray().round(3)
    array([[0.707, 0.707],
           [0.   , 0.   ]], dtype=float32)
    """
    y = as_csr(labels, name="labels")
    counts = np.diff(y.indptr)
    weights = (1 / np.sqrt(np.repeat(counts, counts))).astype(np.float32)
    by_label = sparse.csc_array((weights, y.indices, y.indptr), shape=y.shape[::-1]).tocsr()
    return l2_normalised(by_label)


def smoothed(
    described: Any,
    labels: Any,
    *,
    neighbours: int = 10,
    walk_length: int = 400,
    restart: float = 0.8,
    seed: int = 0,
) -> CSR:
    """Label features mixed with those of labels that occur with them.

    A random walk from each label goes to a document that bears it and on to a label of that
    document, or with probability ``restart`` back to the start. The ``neighbours`` labels visited
    most, by their visits, are the weights of the mixture (symmetrically normalised).

    >>> smoothed(np.eye(3), [[1, 1, 0], [0, 0, 1]]).toarray()[2]
    array([0., 0., 1.], dtype=float32)
    """
    z, y = as_csr(described, name="label features"), as_csr(labels, name="labels")
    if z.shape[0] != y.shape[1]:
        raise DataError(f"label features have {z.shape[0]} rows but labels {y.shape[1]} columns")
    graph = keep_largest(_visits(y, walk_length, restart, seed), neighbours)
    out_of = np.asarray(graph.sum(axis=1)).ravel()
    into = np.asarray(graph.sum(axis=0)).ravel()
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    graph.data = (graph.data / np.sqrt(out_of[rows] * into[graph.indices])).astype(np.float32)
    return l2_normalised(graph @ z)


def _visits(labels: CSR, walk_length: int, restart: float, seed: int) -> CSR:
    """Labels x labels: how often the walk from a row's label stood on a column's."""
    by_label = labels.T.tocsr()
    count = labels.shape[1]
    blocks = []
    for number, first in enumerate(range(0, count, WALK_BLOCK)):
        random = np.random.default_rng([seed, number])
        start = np.arange(first, min(count, first + WALK_BLOCK))
        at, trail = start, np.empty((walk_length, len(start)), np.int64)
        for step in range(walk_length):
            documents = _random_column(by_label, at, random)
            there = np.where(documents < 0, start, _random_column(labels, documents, random))
            at = np.where(random.random(len(start)) < restart, start, there)
            trail[step] = at
        keys, times = np.unique(trail + (start - first) * count, return_counts=True)
        rows, columns = np.divmod(keys, count)
        blocks.append(
            sparse.csr_array((times.astype(np.float32), (rows, columns)), shape=(len(start), count))
        )
    return as_csr(sparse.vstack(blocks, format="csr"))


def _random_column(matrix: CSR, rows: Any, random: np.random.Generator) -> Any:
    """A random stored column of each row; -1 for an empty row."""
    lengths = np.diff(matrix.indptr)[rows]
    offsets = (random.random(len(rows)) * lengths).astype(np.int64)
    places = np.minimum(matrix.indptr[rows] + offsets, max(matrix.nnz - 1, 0))
    return np.where(lengths > 0, matrix.indices[places] if matrix.nnz else -1, -1)


def concatenated(first: Any, second: Any) -> CSR:
    """Two descriptions of the same labels side by side, each of unit length.

    >>> concatenated([[2.0]], [[0.0, 3.0]]).toarray().tolist()
    [[1.0, 0.0, 1.0]]
    """
    a, b = l2_normalised(first), l2_normalised(second)
    _same_labels(a, b)
    return as_csr(sparse.hstack([a, b], format="csr"))


def combined(first: Any, second: Any, *, weight: float = 0.5) -> CSR:
    """(1 - weight) * first + weight * second, each of unit length, over the same features.

    >>> combined([[1.0, 0.0]], [[0.0, 2.0]], weight=0.25).toarray().tolist()
    [[0.75, 0.25]]
    """
    a, b = l2_normalised(first), l2_normalised(second)
    _same_labels(a, b)
    if a.shape[1] != b.shape[1]:
        raise DataError(f"cannot add label features of {a.shape[1]} and {b.shape[1]} columns")
    return as_csr(a * np.float32(1 - weight) + b * np.float32(weight))


def keep_largest(matrix: Any, per_row: int) -> CSR:
    """Only the ``per_row`` entries of largest magnitude in each row; of equals the first columns.

    >>> keep_largest([[3.0, -4.0, 1.0]], 2).toarray().tolist()
    [[3.0, -4.0, 0.0]]
    """
    if per_row < 1:
        raise ConfigError(f"per_row: must be at least 1, got {per_row}")
    csr = as_csr(matrix)
    if np.diff(csr.indptr).max(initial=0) <= per_row:
        return csr
    blocks, first = [], 0
    while first < csr.shape[0]:  # in blocks of rows: the result of top_k is dense
        enough = np.searchsorted(csr.indptr, csr.indptr[first] + PRUNE_ENTRIES) - 1
        last = min(csr.shape[0], max(first + 1, int(enough)))
        block = csr[first:last]
        best = top_k(abs(block), per_row)
        used = best.columns >= 0
        indptr = np.concatenate([[0], np.cumsum(best.counts)])
        mask = sparse.csr_array(
            (np.ones(int(indptr[-1]), np.float32), best.columns[used], indptr), shape=block.shape
        )
        blocks.append(block.multiply(mask).tocsr())
        first = last
    return as_csr(sparse.vstack(blocks, format="csr"))


def label_strings(params: TreeParams, index: LabelIndex) -> Strings | None:
    """The labels' own texts, or names where there are none, if ``params`` wants them.

    >>> label_strings(TreeParams(label_features="text"), LabelIndex(["a"], names=["cats"]))
    ['cats']
    """
    if "text" not in params.label_features:
        return None
    return index.names if index.texts is None else index.texts


def describe_labels(
    params: TreeParams,
    features: CSR,
    labels: CSR,
    *,
    transform: Callable[[Strings], CSR] | None = None,
    strings: Strings | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> CSR:
    """The labels as ``params.label_features`` wants them, rows of unit length.

    ``transform`` turns the labels' ``strings`` into rows over the same features as ``features``.

    >>> describe_labels(TreeParams(label_features="pii"), as_csr([[1]]), as_csr([[1, 1]])).shape
    (2, 1)
    """
    kind = params.label_features
    text = None
    if "text" in kind:
        if transform is None or strings is None:
            raise ConfigError(
                f"tree.label_features: {kind!r} needs the labels' texts and a model fitted on texts"
            )
        text = transform(strings)
    if kind == "text":
        result = l2_normalised(text)
    elif kind == "pii":
        result = pii(labels)
    else:
        result = pifa(features, labels, row_weights=kind != "pifa-plain", threads=threads)
        if params.features_per_label is not None:  # before the product that is larger still
            result = keep_largest(result, params.features_per_label)
        if kind == "smoothed-pifa":
            result = smoothed(result, labels, seed=seed)
        elif kind == "pifa+text":
            result = combined(result, text, weight=params.text_weight)
        elif kind == "pifa,text":
            result = concatenated(result, text)
        elif params.features_per_label is None:
            return result  # of unit length already; the next line would copy all of it
    if params.features_per_label is not None:
        result = keep_largest(result, params.features_per_label)
    return l2_normalised(result)


def _same_labels(first: CSR, second: CSR) -> None:
    if first.shape[0] != second.shape[0]:
        raise DataError(f"label features of {first.shape[0]} and of {second.shape[0]} labels")
