"""Which documents a node's classifier learns from besides its own.

Teacher forcing (tfn) takes the documents of the node's parent. Matcher-aware negatives (man) take
the documents for which the levels above predict the parent: those the node will see in a search.

What a document's labels say about the nodes above them (targets, relevance, costs) is here, too.

The lists of a level are made in blocks of documents, which take little memory whatever the corpus,
and are joined in memory or in files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from labelgrove.core.arrays import (
    CSR,
    Array,
    Float32,
    Int32,
    MatrixLike,
    as_csr,
    offsets,
    with_values,
)
from labelgrove.core.late import sparse
from labelgrove.core.scratch import ColumnLists, ListJoiner, Scratch, row_ranges
from labelgrove.data.features import Features, part_of
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import BeamSearch, SearchParams, beam_per_level
from labelgrove.ranking.solver import RankerParams, row_lists
from labelgrove.ranking.weights import ChunkedWeights


def targets(labels: CSR, tree: LabelTree) -> list[CSR]:
    """Per level, the nodes of each document: 1 if the document has any label below the node."""
    return lift(with_values(labels, 1), tree, np.maximum)


def relevance(labels: CSR, tree: LabelTree) -> list[CSR]:
    """Per level, the sum of the weights of a document's labels below each node."""
    return lift(labels, tree, np.add)


class Frequencies(NamedTuple):
    """How many training documents have each label column, of how many documents."""

    labels: Array
    documents: int

    @classmethod
    def of(cls, labels: CSR) -> Frequencies:
        """Those of a documents x labels matrix."""
        return cls(np.bincount(labels.indices, minlength=labels.shape[1]), labels.shape[0])


def label_costs(a: float, b: float, frequencies: Frequencies) -> Float32:
    """The cost of a positive of each label column by propensities; the mean of positives is 1."""
    from labelgrove.evaluation.metrics import propensity  # few trainings need the metrics

    costs = propensity.Propensity(a, b).costs(frequencies.labels, frequencies.documents)
    return costs.astype(np.float32)


def costs(
    labels: CSR, tree: LabelTree, params: RankerParams, frequencies: Frequencies | None = None
) -> list[CSR]:
    """Per level, the nodes of each document with factors on the costs of errors on them.

    Without relevance a node costs as much as the heaviest label below it: 1, unless the values of
    ``labels`` count. ``frequencies`` are those of ``labels``, unless these are only a part.
    """
    weights = labels if params.label_weights == "cost" else with_values(labels, 1)
    if params.relevance == "induce":
        levels = relevance(weights, tree)
        if params.relevance_norm == "l1":
            levels = [row_shares(level) for level in levels]
    else:
        levels = lift(weights, tree, np.maximum)
    if params.label_weights == "propensity":
        a, b = params.propensity_a, params.propensity_b
        own = label_costs(a, b, frequencies or Frequencies.of(labels))[tree.leaf_labels]
        levels[-1] = with_values(levels[-1], levels[-1].data * own[levels[-1].indices])
    return levels


def lift(labels: CSR, tree: LabelTree, meet: np.ufunc) -> list[CSR]:
    """Values of labels carried up the tree, where those below a node ``meet``: add or maximum."""
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
        levels.append(_to_parents(levels[-1], parents, meet))
    return levels[::-1]


def row_shares(matrix: CSR) -> CSR:
    """Rows divided by their sums; empty rows stay empty."""
    lengths = np.diff(matrix.indptr)
    filled = lengths > 0
    values = matrix.data.astype(np.float64)
    sums = np.add.reduceat(values, matrix.indptr[:-1][filled])
    return with_values(matrix, (values / np.repeat(sums, lengths[filled])).astype(np.float32))


def _to_parents(nodes: CSR, parents: Int32, meet: np.ufunc) -> CSR:
    """One level up. Parents ascend with their children, so siblings are side by side."""
    above = int(parents[-1]) + 1
    if nodes.nnz == 0:
        return sparse.csr_array((nodes.shape[0], above), dtype=np.float32)
    columns = parents[nodes.indices]
    first = np.ones(nodes.nnz, bool)
    first[1:] = columns[1:] != columns[:-1]
    first[nodes.indptr[:-1][np.diff(nodes.indptr) > 0]] = True
    starts = np.flatnonzero(first)
    data = meet.reduceat(nodes.data, starts)
    indptr = offsets(first)[nodes.indptr]
    return sparse.csr_array((data, columns[starts], indptr), shape=(nodes.shape[0], above))


# All children of a node share its documents. But a document that is there only as a positive of
# one child must not be a negative of the others: its cost is 0. Sparse matrices do not keep zeros,
# so this number stands for 0 until the lists are made.
_ONLY_AS_POSITIVE = np.float32(1e-6)

SHORT_DOCUMENT = 40  # terms


def mining_search(search: SearchParams, params: RankerParams) -> SearchParams | None:
    """What of a search's settings mining reads; None if no negatives are mined."""
    if "man" not in params.negatives:
        return None
    return search.only("beam", "post_processor", "exact")


class NodeMiner:
    """Finds the best nodes of each document on the last of the trained ``levels``."""

    def __init__(
        self,
        documents: Features,
        tree: LabelTree,
        levels: list[ChunkedWeights],
        *,
        bias: float,
        params: SearchParams,
        nodes: int | Literal["auto"] | None = None,
    ) -> None:
        x, upper = documents, tree.coarsen(len(levels))
        # A dense block says as much about a document as a long text.
        terms = np.inf if x.sparse is None or x.width else x.sparse.nnz / len(x)
        self._count = nodes_to_mine(
            nodes, terms, beam=beam_per_level(params.beam, upper.widths)[-1]
        )
        self._search = BeamSearch(upper, levels, features=x.terms, bias=bias, width=x.width)
        self._settings = params.for_upper_levels(upper)
        self._documents = x

    def __call__(self, rows: slice) -> CSR:
        """A documents x nodes matrix for some of the documents."""
        parts = part_of(self._documents, rows).parts(name="documents")
        best = self._search(parts, k=self._count, params=self._settings)
        return as_csr(best.to_csr(self._search.tree.labels, ones=True))


def nodes_to_mine(
    nodes: int | Literal["auto"] | None, terms_per_document: float, *, beam: int
) -> int:
    """How many predicted nodes of a document learn from it; None means the beam.

    Each further node raises precision at the first ranks and lowers recall further down. With short
    texts predictions are uncertain, and recall loses more than the first ranks gain.
    """
    if nodes == "auto":
        return 3 if terms_per_document < SHORT_DOCUMENT else 8
    return beam if nodes is None else nodes


def shortlisted(shortlist: CSR, tree: LabelTree, documents: int) -> tuple[CSR, CSR | None]:
    """A shortlist for the last level: documents x clusters, and documents x leaves or None.

    Of ``shortlist``, documents x clusters means all labels of a cluster see the document; documents
    x labels, only those labels.
    """
    matrix = _without_zeros(shortlist, "shortlist")
    clusters = tree.widths[-2] if len(tree.widths) > 1 else 1
    if matrix.shape[0] != documents or matrix.shape[1] not in (clusters, tree.labels):
        raise DataError(
            f"shortlist: must be {documents} documents x {clusters} clusters or x {tree.labels} "
            f"labels, got {matrix.shape[0]} x {matrix.shape[1]}"
        )
    if matrix.shape[1] != tree.labels:
        return matrix, None
    levels = targets(matrix, tree)
    above = levels[-2] if len(levels) > 1 else as_csr(np.ones((documents, 1), np.float32))
    return above, levels[-1]


def instance_lists(
    bearers: CSR,
    chosen: Sequence[CSR],
    *,
    mined: CSR | None = None,
    mined_weight: float = 1.0,
    weights: Float32 | None,
) -> ColumnLists:
    """Per parent node, the documents that its children learn from, with the costs of errors.

    ``bearers`` are the documents of the parent. The positives of its children are among them, so
    they are always there, but only those in one of the ``chosen`` matrices or in ``mined`` are
    negatives. Of the mined ones, only bearers cost as much as the others; elsewhere a mined
    document may lack a label that it should have. ``weights`` are factors per document.
    """
    all_bearers = any(matrix is bearers for matrix in chosen)
    nodes = with_values(bearers, 1 if all_bearers else _ONLY_AS_POSITIVE)
    for matrix in chosen:
        if matrix is not bearers:
            nodes = nodes.maximum(with_values(matrix, 1))
    if mined is not None:
        nodes = nodes.maximum(with_values(mined, mined_weight))
        if not all_bearers:
            nodes = nodes.maximum(with_values(mined, 1).multiply(with_values(bearers, 1)))
    lists = row_lists(nodes)
    lists.values[lists.values == _ONLY_AS_POSITIVE] = 0
    return lists if weights is None else lists._replace(values=lists.values * weights[lists.rows])


def _without_zeros(matrix: MatrixLike, name: str) -> CSR:
    copy = as_csr(matrix, name=name).copy()
    copy.eliminate_zeros()
    return copy


Miner = Callable[[slice], CSR]


@dataclass
class LevelLists:
    """Makes the lists of each level of a tree from the documents' labels."""

    labels: CSR
    tree: LabelTree
    params: RankerParams
    listed: tuple[CSR, CSR | None] | None  # of shortlisted
    weights: Float32 | None  # factors per document
    scratch: Scratch
    _frequencies: Frequencies | None = None
    _single: list[CSR] = field(default_factory=list)  # the levels of documents in one block

    def __post_init__(self) -> None:
        if self.params.label_weights == "propensity":
            self._frequencies = Frequencies.of(self.labels)

    def __call__(
        self, number: int, miner: Miner | None
    ) -> tuple[ColumnLists, ColumnLists, ColumnLists | None]:
        """The instances of each parent, and the positives and listed negatives of each child."""
        instances, positives, negatives = (ListJoiner(self.scratch) for _ in range(3))
        own_negatives = None
        if self.listed is not None and number == len(self.tree.parents) - 1:
            own_negatives = self.listed[1]
        for rows in row_ranges(self.labels.shape[0]):
            weights = None if self.weights is None else self.weights[rows]
            levels = self._levels(rows)
            own = self._instances(number, rows, levels, weights, miner)
            instances.add(own, first=rows.start)
            positives.add(row_lists(levels[number], weights), first=rows.start)
            if own_negatives is not None:
                negatives.add(row_lists(own_negatives[rows], weights), first=rows.start)
        return (
            instances.joined(),
            positives.joined(),
            None if own_negatives is None else negatives.joined(),
        )

    def _levels(self, rows: slice) -> list[CSR]:
        """The nodes of some documents on each level, with the costs of errors on them."""
        if rows.stop - rows.start < self.labels.shape[0]:
            return costs(self.labels[rows], self.tree, self.params, self._frequencies)
        if not self._single:
            self._single = costs(self.labels, self.tree, self.params, self._frequencies)
        return self._single

    def _instances(
        self,
        number: int,
        rows: slice,
        levels: Sequence[CSR],
        weights: Float32 | None,
        miner: Miner | None,
    ) -> ColumnLists:
        # The first level has one parent, the root, and every document belongs to it.
        count = rows.stop - rows.start
        bearers = as_csr(np.ones((count, 1))) if number == 0 else levels[number - 1]
        chosen: list[CSR] = []
        mined = None if miner is None else miner(rows)
        if number == len(self.tree.parents) - 1 and self.listed is not None:
            chosen = [self.listed[0][rows]]
        elif mined is None or "tfn" in self.params.negatives:
            chosen.append(bearers)
        share = self.params.mined_weight
        return instance_lists(bearers, chosen, mined=mined, mined_weight=share, weights=weights)
