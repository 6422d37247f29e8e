"""Labels in feature space, to build trees from; rows have unit length over both blocks together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from labelgrove import _native
from labelgrove.core.arrays import (
    CSR,
    Int64,
    MatrixLike,
    as_csr,
    csr_parts,
    entry_rows,
    narrow_csr,
    with_values,
)
from labelgrove.core.late import sparse
from labelgrove.core.resources import thread_count
from labelgrove.core.scratch import (
    ColumnLists,
    GrowingCsr,
    ListJoiner,
    Scratch,
    entry_ranges,
    row_ranges,
)
from labelgrove.core.topk import top_k
from labelgrove.data.blocks import PIECES_PER_WORKER, Blocks, even_cuts, joined
from labelgrove.data.corpus import LabelIndex, Strings
from labelgrove.data.features import FeatureParts, Features, as_features, row_blocks, scaled_rows
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.tree import TreeParams

Rows: TypeAlias = Features | Blocks | MatrixLike  # of documents

# Labels whose random walks are held in memory at once, and entries pruned at once.
WALK_BLOCK = 1 << 16
PRUNE_ENTRIES = 1 << 24
GROUP_TERMS = 1 << 26  # terms of documents whose sums are made at once, if they go to files


def pifa(features: Rows, labels: MatrixLike, *, row_weights: bool = True) -> Features:
    """Positive instance feature aggregation: the unit-length sum of each label's documents.

    With ``row_weights`` a document with n labels counts 1/sqrt(n), so that documents with many
    labels do not blur all of them. Rows without documents or features are zero; label weights are
    ignored.

    >>> pifa([[3.0, 0.0], [0.0, 4.0]], [[1, 0], [1, 1]], row_weights=False).dense
    array([[0.6, 0.8],
           [0. , 1. ]], dtype=float32)
    """
    x = features if isinstance(features, Blocks) else as_features(features)
    y = as_csr(labels, name="labels")
    if len(x) != y.shape[0]:
        raise DataError(f"features have {len(x)} rows but labels have {y.shape[0]}")
    weights = _documents_of_labels(y, row_weights=row_weights)
    if isinstance(x, Blocks):
        sums = _sums_in_pieces(x, weights)
        return joined([*sums.engine.results(sums.refs)])
    return _unit_sums(x, weights, x.parts())


def label_sums(features: Rows, labels: MatrixLike) -> Features:
    """The plain sum of each label's documents, as CascadeXML smooths it."""
    y = as_csr(labels, name="labels")
    # The kernel gives sums of unit length. A column of ones adds up to the number of documents, so
    # it shows how long they were.
    x = features if isinstance(features, Blocks) else as_features(features)
    marked = x.map(_with_ones) if isinstance(x, Blocks) else _with_ones(x)
    unit = pifa(marked, y, row_weights=False)
    assert unit.dense is not None
    counts, ones = np.bincount(y.indices, minlength=y.shape[1]), unit.dense[:, -1].astype(float)
    scale = np.divide(counts, ones, out=np.zeros(len(ones)), where=ones > 0)
    terms = unit.sparse
    if terms is not None:
        terms = with_values(terms, (terms.data * scale[entry_rows(terms)]).astype(np.float32))
    return Features(terms, scaled_rows(unit.dense[:, :-1], scale) if x.width else None)


def _with_ones(x: Features) -> Features:
    ones = np.ones((len(x), 1), np.float32)
    return Features(x.sparse, ones if x.dense is None else np.hstack([x.dense, ones]))


def _documents_of_labels(labels: CSR, *, row_weights: bool, scratch: Scratch | None = None) -> CSR:
    """Labels x documents; a document of n labels weighs 1/sqrt(n), or 1."""
    joiner = ListJoiner(Scratch() if scratch is None else scratch)
    for rows in row_ranges(labels.shape[0]):
        block = labels[rows]
        weights = np.ones(block.nnz, np.float32)
        if row_weights:
            counts = np.diff(block.indptr)
            weights /= np.sqrt(np.repeat(counts, counts)).astype(np.float32)
        by_document = (weights, block.indices, block.indptr)
        by_label = as_csr(sparse.csc_array(by_document, shape=block.shape[::-1]).tocsr())
        joiner.add(ColumnLists(*csr_parts(by_label)[:3]), first=rows.start)
    indptr, documents, weights = joiner.joined()
    return narrow_csr(weights, documents, indptr, labels.shape[::-1])


def _unit_sums(rows: Features, weights: CSR, parts: FeatureParts) -> Features:
    """weights @ rows, scaled to unit length; ``parts`` are those of the rows."""
    indptr, indices, data, dense = _native.pifa(parts, csr_parts(weights), threads=thread_count())
    count = int(weights.shape[0])
    terms = None
    if rows.sparse is not None:
        terms = narrow_csr(data, indices, indptr, (count, rows.terms))
    if rows.dense is None:
        return Features(terms)
    return Features(terms, dense.view(rows.dense.dtype).reshape(count, rows.width))


def _sums_in_pieces(rows: Blocks, weights: CSR) -> Blocks:
    """What :func:`_unit_sums` gives for all rows; a block is some neighbouring labels."""
    engine = rows.engine
    cuts = even_cuts(np.diff(weights.indptr), PIECES_PER_WORKER * engine.workers)
    pieces = [weights[first:last] for first, last in pairwise(cuts.tolist())]
    groups = [np.unique(piece.indices).astype(np.int64) for piece in pieces]
    refs = [
        engine.call(_sums_of_piece, piece[:, group], *parts)
        for piece, group, parts in zip(pieces, groups, rows.gather(groups), strict=True)
    ]
    return Blocks.of(engine, refs)


def _sums_of_piece(weights: CSR, *parts: Features) -> Features:
    rows = joined(parts)
    return _unit_sums(rows, as_csr(weights), rows.parts())


def l2_normalised(matrix: Features | MatrixLike) -> Features:
    """Rows scaled to unit length over both blocks together; zero rows stay zero."""
    features = as_features(matrix)
    squares = np.zeros(len(features))
    terms, dense = features.sparse, features.dense
    if terms is not None:
        rows = entry_rows(terms)
        squares += np.bincount(rows, np.square(terms.data, dtype=np.float64), terms.shape[0])
    if dense is not None:
        for block in row_blocks(dense):
            squares[block] += np.square(dense[block], dtype=np.float64).sum(axis=1)
    scale = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    if terms is not None:
        terms = with_values(terms, (terms.data * scale[rows]).astype(np.float32))
    return Features(terms, None if dense is None else scaled_rows(dense, scale))


def smoothed(
    described: Features | MatrixLike,
    labels: MatrixLike,
    *,
    neighbours: int = 10,
    walk_length: int = 400,
    restart: float = 0.8,
    seed: int = 0,
) -> Features:
    """Label features mixed with those of labels that occur with them, weighted by visits.

    A random walk from each label goes to one of its documents and on to a label of that document,
    or with probability ``restart`` back to the start. The most visited labels count.
    """
    z, y = as_features(described, name="label features"), as_csr(labels, name="labels")
    if len(z) != y.shape[1]:
        raise DataError(f"label features have {len(z)} rows but labels {y.shape[1]} columns")
    graph = _largest(_visits(y, walk_length, restart, seed), neighbours)
    out_of = np.asarray(graph.sum(axis=1)).ravel()
    into = np.asarray(graph.sum(axis=0)).ravel()
    degrees = out_of[entry_rows(graph)] * into[graph.indices]
    graph.data = (graph.data / np.sqrt(degrees)).astype(np.float32)
    return _unit_sums(z, graph, z.parts())


def _visits(labels: CSR, walk_length: int, restart: float, seed: int) -> CSR:
    """Labels x labels: how often the walk from a row's label visited a column's."""
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


def _random_column(matrix: CSR, rows: Int64, random: np.random.Generator) -> Int64:
    """A random stored column of each row; -1 for an empty row."""
    lengths = np.diff(matrix.indptr)[rows]
    offsets = (random.random(len(rows)) * lengths).astype(np.int64)
    places = np.minimum(matrix.indptr[rows] + offsets, max(matrix.nnz - 1, 0))
    return np.where(lengths > 0, matrix.indices[places] if matrix.nnz else -1, -1)


def combined(
    first: Features | MatrixLike, second: Features | MatrixLike, *, weight: float = 0.5
) -> Features:
    """(1 - weight) * first + weight * second, each of unit length; a missing block is zeros."""
    a, b = l2_normalised(first), l2_normalised(second)
    if len(a) != len(b):
        raise DataError(f"label features of {len(a)} and of {len(b)} labels")

    def added(one: MatrixLike | None, other: MatrixLike | None) -> MatrixLike | None:
        if one is None:
            return None if other is None else other * other.dtype.type(weight)
        if other is None:
            return one * one.dtype.type(1 - weight)
        widths = one.shape[1], other.shape[1]
        if widths[0] != widths[1]:
            raise DataError(f"cannot add label features of {widths[0]} and {widths[1]} columns")
        return one * np.float32(1 - weight) + other * np.float32(weight)

    return Features(added(a.sparse, b.sparse), added(a.dense, b.dense))


def keep_largest(matrix: Features | MatrixLike, per_row: int) -> Features:
    """Only the ``per_row`` largest sparse entries of each row, and the whole dense block."""
    features = as_features(matrix)
    terms = None if features.sparse is None else _largest(features.sparse, per_row)
    return Features(terms, features.dense)


def _largest(csr: CSR, per_row: int) -> CSR:
    if per_row < 1:
        raise ConfigError(f"per_row: must be at least 1, got {per_row}")
    if np.diff(csr.indptr).max(initial=0) <= per_row:
        return csr
    blocks = []
    for rows in entry_ranges(csr.indptr, PRUNE_ENTRIES):  # the result of top_k is dense
        block = csr[rows]
        mask = top_k(abs(block), per_row).to_csr(block.shape[1], ones=True)
        blocks.append(block.multiply(mask).tocsr())
    return as_csr(sparse.vstack(blocks, format="csr"))


def label_strings(params: TreeParams, index: LabelIndex) -> Strings | None:
    """The labels' own texts, or else their names, if ``params.label_features`` uses them."""
    if "text" not in params.label_features:
        return None
    return index.words


def describe_labels(
    params: TreeParams,
    features: Rows,
    labels: CSR,
    *,
    transform: Callable[[Strings], Features | MatrixLike] | None = None,
    strings: Strings | None = None,
    seed: int = 0,
    scratch: Scratch | None = None,
) -> Features | Blocks:
    """The labels as ``params.label_features`` says, in rows of unit length.

    ``transform`` turns the labels' ``strings`` into rows over the same features as ``features``.
    With ``scratch``, sparse rows are made there, except smoothed ones. If ``features`` are Blocks,
    labels described by nothing but their documents stay with the engine, too.
    """
    kind = params.label_features
    if isinstance(features, Blocks) and kind in ("pifa", "pifa-plain"):
        by_label = _documents_of_labels(labels, row_weights=kind != "pifa-plain")
        sums = _sums_in_pieces(features, by_label)
        return sums if params.features_per_label is None else sums.map(_finished, params)
    text = None
    if "text" in kind:
        if transform is None or strings is None:
            raise ConfigError(
                f"tree.label_features: {kind!r} needs the labels' texts and a model fitted on texts"
            )
        text = transform(strings)
    if scratch and kind != "text" and not kind.startswith("smoothed"):
        return _described_in_groups(params, features, labels, text, scratch)
    if kind == "text":
        result = l2_normalised(text)
    else:
        if kind == "smoothed-sums":
            result = label_sums(features, labels)
        else:
            result = pifa(features, labels, row_weights=kind != "pifa-plain")
        if params.features_per_label is not None:  # before smoothing or text make it larger
            result = keep_largest(result, params.features_per_label)
        if kind.startswith("smoothed"):
            result = smoothed(result, labels, seed=seed)
    return _finished(result, params, text)


def _finished(
    described: Features, params: TreeParams, text: Features | MatrixLike | None = None
) -> Features:
    """Described labels with their own text, cut to their largest features, of unit length."""
    kind, result = params.label_features, described
    if kind == "pifa+text":
        result = combined(result, text, weight=params.text_weight)
    elif kind in ("pifa", "pifa-plain") and params.features_per_label is None:
        return result  # has unit length already; the next line would copy all of it
    if params.features_per_label is not None:
        result = keep_largest(result, params.features_per_label)
    return l2_normalised(result)


def _described_in_groups(
    params: TreeParams,
    features: Rows,
    labels: CSR,
    text: Features | MatrixLike | None,
    scratch: Scratch,
) -> Features:
    """Labels described by their documents, a group of labels at a time."""
    kind = params.label_features
    x = as_features(features)
    parts = x.parts()
    by_label = _documents_of_labels(labels, row_weights=kind != "pifa-plain", scratch=scratch)
    terms = 1 + len(parts.sparse.data) // max(1, len(x))
    with GrowingCsr(scratch, x.terms) as growing:
        for group in entry_ranges(by_label.indptr, GROUP_TERMS // terms):
            described = _unit_sums(x, by_label[group], parts)
            if params.features_per_label is not None:
                described = keep_largest(described, params.features_per_label)
            names = None if text is None else as_features(text).take(group)
            growing.append(*csr_parts(_finished(described, params, names).sparse)[:3])
        return Features(growing.matrix())
