"""What the documents bear on every level of a tree, and how much that counts.

Level t of a tree has a documents x nodes matrix: the labels themselves at the last level (in leaf
order), unions of them above.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy import sparse

from labelgrove.core.arrays import CSR, Int32, as_csr
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree

Norm = Literal["none", "l1", "l2", "max"]
Combine = Literal["sum", "max"]


def targets(labels: Any, tree: LabelTree) -> list[CSR]:
    """Per level, which nodes each document bears: 1 where any label below a node is borne.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    >>> [level.toarray().tolist() for level in targets([[1, 0, 1]], tree)]
    [[[1.0, 0.0]], [[1.0, 1.0, 0.0]]]
    """
    return lift(_ones(as_csr(labels, name="labels")), tree, combine="max")


def relevance(labels: Any, tree: LabelTree, *, norm: Norm = "none") -> list[CSR]:
    """Per level, how many of a document's labels (by their weights) lie below each node.

    ``norm`` scales every document's row of every level to a sum (l1), a length (l2) or a largest
    value (max) of one. The entries are those of :func:`targets`.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1])
    >>> [level.toarray().tolist() for level in relevance([[1, 0, 1]], tree)]
    [[[2.0, 0.0]], [[1.0, 1.0, 0.0]]]
    """
    levels = lift(as_csr(labels, name="labels"), tree, combine="sum")
    return [normalised(level, norm) for level in levels]


def costs(
    labels: CSR,
    tree: LabelTree,
    *,
    mode: Literal["none", "induce", "last-level"] = "none",
    norm: Norm = "l1",
    label_weights: bool = False,
) -> list[CSR]:
    """Per level, the nodes each document bears with the factors on what errors on them cost.

    Without relevance (``mode="none"``) a node costs as much as the heaviest label below it: 1
    unless ``label_weights`` makes the values of ``labels`` count.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    >>> [level.toarray().tolist() for level in costs(as_csr([[1, 1, 0]]), tree, mode="induce")]
    [[[1.0, 0.0]], [[0.5, 0.5, 0.0]]]
    """
    weighted = labels if label_weights else _ones(labels)
    if mode == "induce":
        return relevance(weighted, tree, norm=norm)
    levels = lift(weighted, tree, combine="max")
    if mode == "last-level":
        levels[-1] = normalised(levels[-1], norm)
    return levels


def lift(labels: CSR, tree: LabelTree, *, combine: Combine) -> list[CSR]:
    """Values of labels carried up the tree; those that meet in a node are added, or the largest
    wins.

    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    >>> lift(as_csr([[0.5, 0.25, 0.0]]), tree, combine="max")[0].toarray()
    array([[0.5, 0. ]], dtype=float32)
    """
    if labels.shape[1] != tree.labels:
        raise DataError(
            f"labels have {labels.shape[1]} columns but the tree has {tree.labels} labels"
        )
    if labels.nnz and labels.data.min() <= 0:
        raise DataError("label weights must be greater than 0")
    nodes = sparse.csr_array(
        (labels.data, tree.leaf_positions[labels.indices], labels.indptr), shape=labels.shape
    ).copy()
    nodes.sort_indices()
    levels = [nodes]
    for parents in tree.parents[:0:-1]:
        levels.append(_to_parents(levels[-1], parents, combine))
    return levels[::-1]


def normalised(matrix: CSR, norm: Norm) -> CSR:
    """Rows scaled so that their values have the given norm of one; empty rows stay empty.

    >>> normalised(as_csr([[1.0, 3.0]]), "l1").toarray()
    array([[0.25, 0.75]], dtype=float32)
    """
    if norm == "none" or matrix.nnz == 0:
        return matrix
    lengths = np.diff(matrix.indptr)
    filled = lengths > 0
    starts = matrix.indptr[:-1][filled]
    values = matrix.data.astype(np.float64)
    if norm == "max":
        size = np.maximum.reduceat(values, starts)
    elif norm == "l2":
        size = np.sqrt(np.add.reduceat(values * values, starts))
    else:
        size = np.add.reduceat(values, starts)
    data = (values / np.repeat(size, lengths[filled])).astype(np.float32)
    return sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def _to_parents(nodes: CSR, parents: Int32, combine: Combine) -> CSR:
    """One level up. Parents ascend with their children, so what meets in a node lies together."""
    above = int(parents[-1]) + 1
    if nodes.nnz == 0:
        return sparse.csr_array((nodes.shape[0], above), dtype=np.float32)
    columns = parents[nodes.indices]
    first = np.ones(nodes.nnz, bool)
    first[1:] = columns[1:] != columns[:-1]
    first[nodes.indptr[:-1][np.diff(nodes.indptr) > 0]] = True
    starts = np.flatnonzero(first)
    meet = np.add if combine == "sum" else np.maximum
    data = meet.reduceat(nodes.data, starts)
    indptr = np.concatenate([[0], np.cumsum(first)])[nodes.indptr]
    return sparse.csr_array((data, columns[starts], indptr), shape=(nodes.shape[0], above))


def _ones(labels: CSR) -> CSR:
    return sparse.csr_array(
        (np.ones(labels.nnz, np.float32), labels.indices, labels.indptr), shape=labels.shape
    )
