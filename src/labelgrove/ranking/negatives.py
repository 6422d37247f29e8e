"""Which documents a node's classifier learns from besides its own.

Teacher forcing (tfn) takes the documents of the node's parent. Matcher-aware negatives (man) take
the documents for which the levels above predict the parent: those the node will see in a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from labelgrove.core.arrays import CSR, Float32, as_csr, with_values
from labelgrove.data.features import as_features, part_of
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import BeamSearch, SearchParams, beam_per_level
from labelgrove.ranking.relevance import targets
from labelgrove.ranking.solver import RankerParams, RowLists
from labelgrove.ranking.weights import ChunkedWeights

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
    """Finds the best nodes of each document on the last of the trained ``levels``.

    The search is that of prediction; ``nodes`` is how many, see :func:`nodes_to_mine`.
    """

    def __init__(
        self,
        documents: Any,
        tree: LabelTree,
        levels: list[ChunkedWeights],
        *,
        bias: float,
        params: SearchParams,
        nodes: int | Literal["auto"] | None = None,
    ) -> None:
        x, upper = as_features(documents, name="documents"), tree.coarsen(len(levels))
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


def given_nodes(given: Any, tree: LabelTree, documents: int) -> list[CSR | None]:
    """Negatives given by the caller, as one documents x nodes matrix per level of parents.

    ``given`` is a documents x labels shortlist: all nodes above its labels see the document. The
    first level has no nodes above it and always learns from all documents.
    """
    if given is None:
        return [None] * len(tree.parents)
    shortlist = _without_zeros(given, "negatives")
    if shortlist.shape != (documents, tree.labels):
        raise DataError(
            f"negatives: a shortlist must be {documents} documents x {tree.labels} labels, "
            f"got {shortlist.shape[0]} x {shortlist.shape[1]}"
        )
    return [None, *targets(shortlist, tree)[:-1]]


def shortlisted(shortlist: Any, tree: LabelTree, documents: int) -> tuple[CSR, CSR | None]:
    """A shortlist for the last level: documents x clusters, and documents x leaves or None.

    ``shortlist`` is documents x clusters (nodes above the labels: all labels of a cluster see the
    document), or documents x labels (only those labels see it).
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
    weights: Float32 | None = None,
) -> RowLists:
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
    lists = RowLists.from_csr(nodes)
    lists.weights[lists.weights == _ONLY_AS_POSITIVE] = 0
    return lists if weights is None else replace(lists, weights=lists.weights * weights[lists.rows])


def _without_zeros(matrix: Any, name: str) -> CSR:
    """A copy as CSR without stored zeros."""
    copy = as_csr(matrix, name=name).copy()
    copy.eliminate_zeros()
    return copy
