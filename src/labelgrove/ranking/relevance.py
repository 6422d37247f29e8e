"""Which nodes each document has on every level of a tree, and how much errors on them cost.

Every level has a documents x nodes matrix: the labels themselves on the last level (in the order of
the leaves), unions of them above.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

from labelgrove.core.arrays import CSR, Array, Float32, Int32, offsets, with_values
from labelgrove.core.late import sparse
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.solver import RankerParams

Norm = Literal["none", "l1", "l2", "max"]
Combine = Literal["sum", "max"]


def targets(labels: CSR, tree: LabelTree) -> list[CSR]:
    """Per level, the nodes of each document: 1 if the document has any label below the node."""
    return lift(with_values(labels, 1), tree, combine="max")


def relevance(labels: CSR, tree: LabelTree, *, norm: Norm = "none") -> list[CSR]:
    """Per level, the sum of the weights of a document's labels below each node.

    ``norm`` scales every row of every level to a sum (l1), a length (l2) or a largest value (max)
    of one. The entries are those of :func:`targets`.
    """
    levels = lift(labels, tree, combine="sum")
    return [normalised(level, norm) for level in levels]


class Frequencies(NamedTuple):
    """How many training documents have each label column, of how many documents."""

    labels: Array
    documents: int

    @classmethod
    def of(cls, labels: CSR) -> Frequencies:
        """Those of a documents x labels matrix."""
        return cls(np.bincount(labels.indices, minlength=labels.shape[1]), labels.shape[0])


class PropensitySettings(Protocol):
    """The constants of a propensity model in a group of parameters."""

    propensity_a: float
    propensity_b: float


def label_costs(params: PropensitySettings, frequencies: Frequencies) -> Float32:
    """The cost of a positive of each label column; the mean over all positives is 1."""
    from labelgrove.evaluation.metrics.propensity import (
        Propensity,  # few trainings need the metrics
    )

    propensity = Propensity(params.propensity_a, params.propensity_b)
    return propensity.costs(frequencies.labels, frequencies.documents).astype(np.float32)


def costs(
    labels: CSR, tree: LabelTree, params: RankerParams, frequencies: Frequencies | None = None
) -> list[CSR]:
    """Per level, the nodes of each document with factors on the costs of errors on them.

    With ``params.relevance="none"`` a node costs as much as the heaviest label below it: 1, unless
    ``params.label_weights="cost"`` makes the values of ``labels`` count. With "propensity", costs
    on the last level are multiplied by :func:`label_costs`; ``frequencies`` are those of
    ``labels``, unless these are only a part of the training documents.
    """
    weights = labels if params.label_weights == "cost" else with_values(labels, 1)
    if params.relevance == "induce":
        levels = relevance(weights, tree, norm=params.relevance_norm)
    else:
        levels = lift(weights, tree, combine="max")
        if params.relevance == "last-level":
            levels[-1] = normalised(levels[-1], params.relevance_norm)
    if params.label_weights == "propensity":
        own = label_costs(params, frequencies or Frequencies.of(labels))[tree.leaf_labels]
        levels[-1] = with_values(levels[-1], levels[-1].data * own[levels[-1].indices])
    return levels


def lift(labels: CSR, tree: LabelTree, *, combine: Combine) -> list[CSR]:
    """Values of labels carried up the tree; a node has the sum or the largest of those below it."""
    if labels.shape[1] != tree.labels:
        raise DataError(
            f"labels have {labels.shape[1]} columns but the tree has {tree.labels} labels"
        )
    if labels.nnz and labels.data.min() <= 0:
        raise DataError("label weights must be greater than 0")
    leaves = sparse.csr_array(
        (labels.data, tree.leaf_positions[labels.indices], labels.indptr), shape=labels.shape
    ).copy()
    leaves.sort_indices()
    levels = [leaves]
    for parents in tree.parents[:0:-1]:
        levels.append(_to_parents(levels[-1], parents, combine))
    return levels[::-1]


def normalised(matrix: CSR, norm: Norm) -> CSR:
    """Rows scaled so that the given norm of their values is one; empty rows stay empty."""
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
    return with_values(matrix, (values / np.repeat(size, lengths[filled])).astype(np.float32))


def _to_parents(nodes: CSR, parents: Int32, combine: Combine) -> CSR:
    """One level up. Parents ascend with their children, so siblings are side by side."""
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
    indptr = offsets(first)[nodes.indptr]
    return sparse.csr_array((data, columns[starts], indptr), shape=(nodes.shape[0], above))
