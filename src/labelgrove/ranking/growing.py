"""A trained ranker with more labels, or with some labels trained anew; all others stay as they are.

A new label hangs below the cluster to which the levels above send its documents, or its own text.
Only its weights and those of labels that are asked for are made; nodes above the labels keep
theirs, so that a document meets the same clusters as before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.core.arrays import CSR, Float32, Int32, Int64, as_csr
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.labels.features import keep_largest, l2_normalised
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import BeamSearch, SearchParams, beam_per_level
from labelgrove.ranking.columns import Columns, read_columns, write_columns
from labelgrove.ranking.negatives import instance_lists, weighted
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.relevance import costs, targets
from labelgrove.ranking.solver import WIDEST_CLUSTER, RankerParams, RowLists, Start, solve_level

STAND_IN_TERMS = 30  # of a made-up document
SAMPLED_CLUSTERS = 64  # whose labels say how long weights are


@dataclass(frozen=True)
class Routed:
    """The best clusters of each document, best first, with scores above 0; -1 past the last."""

    clusters: Int32
    scores: Float32

    def matrix(self, clusters: int, *, most: int | None = None) -> CSR:
        """Documents x clusters with the scores of the ``most`` best.

        >>> Routed(np.array([[1, -1]]), np.array([[0.5, 0.0]])).matrix(2).toarray()
        array([[0. , 0.5]], dtype=float32)
        """
        found = self.clusters[:, :most]
        used = found >= 0
        indptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        scores = np.maximum(self.scores[:, :most][used], np.finfo(np.float32).tiny)
        shape = (len(found), clusters)
        matrix = sparse.csr_array((scores, found[used], indptr), shape=shape)
        matrix.sort_indices()
        return as_csr(matrix)


def route(
    ranker: Ranker, documents: Features, search: SearchParams, *, most: int, threads: int | None
) -> Routed:
    """The clusters that a ranker's upper levels find for documents, as a search does.

    >>> from labelgrove.ranking.ranker import train_ranker
    >>> tree = LabelTree([[0, 0], [0, 0, 1, 1]], [0, 1, 2, 3])
    >>> ranker = train_ranker(np.eye(4), np.eye(4), tree)
    >>> documents = Features(dense=np.eye(4)[[2]])
    >>> route(ranker, documents, SearchParams(), most=1, threads=1).clusters.tolist()
    [[1]]
    """
    depth = len(ranker.levels) - 1
    if depth == 0:
        return Routed(
            np.zeros((len(documents), 1), np.int32), np.ones((len(documents), 1), np.float32)
        )
    upper = BeamSearch(
        ranker.tree.coarsen(depth),
        ranker.levels[:depth],
        features=ranker.features,
        bias=ranker.bias,
        width=ranker.width,
    )
    beams = beam_per_level(search.beam, ranker.tree.widths[:depth])
    changed = {"last_level": "same", "beam": beams}
    if search.post_processor in ("noop", "log-sigmoid"):
        changed["post_processor"] = "sigmoid"  # scores must be shares, to add them up
    params = SearchParams(**search.get_params() | changed)
    found, scores, counts = upper(documents.parts(), k=most, params=params, threads=threads)
    empty = np.arange(found.shape[1]) >= counts[:, None]
    return Routed(np.where(empty, -1, found), np.where(empty, 0, scores))


def nearest_clusters(routed: Routed, labels: CSR, tree: LabelTree) -> Int32:
    """For each column of ``labels`` the cluster that its documents are sent to, by their scores.

    Labels whose documents lead nowhere go where there is most room.

    >>> routed = Routed(np.array([[0, 1], [1, 0]]), np.array([[0.9, 0.3], [0.8, 0.0]]))
    >>> tree = LabelTree([[0, 0], [0, 0, 1]], [0, 1, 2])
    >>> nearest_clusters(routed, as_csr([[1, 1], [1, 0]]), tree).tolist()
    [1, 0]
    """
    sizes = np.diff(tree.children(len(tree.parents) - 1))
    votes = as_csr(as_csr(labels).T @ routed.matrix(len(sizes)))
    chosen = np.full(votes.shape[0], -1, np.int32)
    for label in np.flatnonzero(np.diff(votes.indptr)):
        own = slice(votes.indptr[label], votes.indptr[label + 1])
        chosen[label] = votes.indices[own][int(np.argmax(votes.data[own]))]
    sizes += np.bincount(chosen[chosen >= 0], minlength=len(sizes))
    for label in np.flatnonzero(chosen < 0):
        chosen[label] = np.argmin(sizes)
        sizes[chosen[label]] += 1
    return chosen


def with_labels(tree: LabelTree, clusters: npt.ArrayLike) -> LabelTree:
    """The tree with one more label for each of ``clusters``, as that cluster's last child.

    >>> tree = with_labels(LabelTree([[0, 0], [0, 0, 1]], [2, 0, 1]), [0])
    >>> tree.parents[1].tolist(), tree.leaf_labels.tolist()
    ([0, 0, 0, 1], [2, 0, 3, 1])
    """
    below = np.asarray(clusters, np.int32)
    if len(below) == 0:
        return tree
    parents = np.concatenate([tree.parents[-1], below])
    order = np.argsort(parents, kind="stable")
    labels = np.concatenate([tree.leaf_labels, tree.labels + np.arange(len(below))])
    widest = int(np.bincount(parents).max())
    if widest > WIDEST_CLUSTER:
        raise DataError(
            f"a cluster would have {widest:,} labels; at most {WIDEST_CLUSTER:,} fit: train the "
            "model from scratch"
        )
    return LabelTree([*tree.parents[:-1], parents[order]], labels[order])


def leaf_columns(ranker: Ranker, labels: npt.ArrayLike) -> Columns:
    """The weights of some label columns, in the order of their leaves."""
    last = len(ranker.levels) - 1
    return read_columns(
        ranker.levels[last],
        ranker.tree.children(last),
        ranker.tree.leaf_positions[np.asarray(labels)],
        features=ranker.features,
        width=ranker.width,
    )


def with_columns(ranker: Ranker, tree: LabelTree, columns: Columns) -> Ranker:
    """The ranker over a tree that has grown, with new weights for some of its leaves."""
    last = len(ranker.levels) - 1
    before, after = ranker.tree.children(last), tree.children(last)
    level = write_columns(ranker.levels[last], before, after, columns)
    return Ranker(
        tree,
        [*ranker.levels[:last], level],
        features=ranker.features,
        bias=ranker.bias,
        width=ranker.width,
    )


@dataclass(frozen=True)
class Examples:
    """Documents to learn from: features, labels (a column for each of the tree's), clusters found.

    ``mined`` is how many of the best clusters a document is a negative for. ``weights`` are factors
    on the documents' costs.
    """

    features: Features
    labels: CSR
    routed: Routed
    mined: int
    weights: Float32 | None = None


def solve_columns(
    tree: LabelTree,
    examples: Examples,
    labels: npt.ArrayLike,
    params: RankerParams,
    *,
    start: Columns | None = None,
    seed: int = 0,
    threads: int | None = None,
    on_block: Any = None,
) -> Columns:
    """Weights of some label columns, trained as training a whole ranker would.

    A label learns from the documents that its cluster learns from: those that bear one of the
    cluster's labels, those that are sent there, or both, as ``params.negatives`` says. ``start``
    has weights of the same leaves that the result is drawn towards.
    """
    last = len(tree.parents) - 1
    nodes: Int64 = np.sort(tree.leaf_positions[np.asarray(labels)]).astype(np.int64)
    clusters, counts = np.unique(tree.parents[last][nodes], return_counts=True)
    bearers, chosen = _who_learns(tree, examples, clusters, params)
    positives = costs(
        examples.labels,
        tree,
        mode=params.relevance,
        norm=params.relevance_norm,
        label_weights=params.label_weights == "cost",
    )[last]
    own = RowLists.from_csr(as_csr(positives[:, nodes]))
    if examples.weights is not None:
        own = weighted(own, examples.weights)
    # The solver takes an only child that all bear for its parent. A child without positives beside
    # it keeps it from that, and is not trained.
    places = np.arange(len(nodes)) + np.repeat(np.arange(len(clusters)), counts)
    children = np.concatenate([[0], np.cumsum(counts + 1)]).astype(np.int64)
    sizes = np.zeros(int(children[-1]), np.int64)
    sizes[places] = np.diff(own.indptr)
    level = solve_level(
        examples.features,
        instances=instance_lists(bearers, chosen, weights=examples.weights),
        positives=RowLists(np.concatenate([[0], np.cumsum(sizes)]), own.rows, own.weights),
        children=children,
        params=_last_level(params, centred=start is not None),
        start=None if start is None else _spread(start, places, len(sizes), params.bias),
        seed=seed + last,
        threads=threads,
        on_block=on_block,
    )
    solved = read_columns(
        level, children, places, features=examples.features.terms, width=examples.features.width
    )
    return replace(solved, nodes=nodes)


def _who_learns(
    tree: LabelTree, examples: Examples, clusters: npt.NDArray[Any], params: RankerParams
) -> tuple[CSR, list[CSR]]:
    """Documents that bear a label of each cluster, and those that are negatives in it."""
    if len(tree.parents) == 1:
        everyone = as_csr(np.ones((len(examples.features), 1), np.float32))
        return everyone, [everyone]
    bearers = as_csr(targets(examples.labels, tree)[-2][:, clusters])
    chosen = []
    if "man" in params.negatives:
        routed = examples.routed.matrix(tree.widths[-2], most=examples.mined)
        chosen.append(as_csr(routed[:, clusters]))
    if not chosen or "tfn" in params.negatives:
        chosen.append(bearers)
    return bearers, chosen


def _last_level(params: RankerParams, *, centred: bool) -> RankerParams:
    params = params if params.label_C is None else replace(params, C=params.label_C)
    return replace(params, start="centre") if centred else params


def _spread(start: Columns, places: Int64, rows: int, bias: float) -> Start:
    """Weights to start from with rows of zeros between them."""
    row_of = sparse.csr_array(
        (np.ones(len(places), np.float32), (places, np.arange(len(places)))),
        shape=(rows, len(places)),
    )
    terms = as_csr(row_of @ start.sparse) if start.sparse.shape[1] else None
    dense = row_of @ start.dense if start.dense.shape[1] else None
    return Start(Features(terms, dense), (row_of @ start.bias) * np.float32(bias))


def stand_ins(ranker: Ranker, clusters: npt.ArrayLike, frequencies: npt.ArrayLike) -> Examples:
    """What a ranker remembers of documents that are gone: one made-up document for each label.

    It has the terms that speak most for a label of ``clusters`` and counts as often as the label
    had documents (``frequencies``, by label column). New labels need someone to differ from.
    """
    last = len(ranker.levels) - 1
    parents = ranker.tree.parents[last]
    leaves = np.flatnonzero(np.isin(parents, clusters))
    counts = np.asarray(frequencies)[ranker.tree.leaf_labels[leaves]]
    leaves, counts = leaves[counts > 0], counts[counts > 0]
    found = leaf_columns(ranker, ranker.tree.leaf_labels[leaves])
    terms = found.sparse.copy()
    terms.data = np.maximum(terms.data, 0)
    terms.eliminate_zeros()
    block = l2_normalised(keep_largest(Features(sparse=as_csr(terms)), STAND_IN_TERMS)).sparse
    dense = np.zeros((len(leaves), ranker.width), np.float32) if ranker.width else None
    own = (np.arange(len(leaves)), ranker.tree.leaf_labels[found.nodes])
    shape = (len(leaves), ranker.tree.labels)
    return Examples(
        Features(block, dense),
        as_csr(sparse.csr_array((np.ones(len(leaves), np.float32), own), shape=shape)),
        Routed(parents[found.nodes][:, None], np.ones((len(leaves), 1), np.float32)),
        mined=1,
        weights=counts.astype(np.float32),
    )


def joined(first: Examples, second: Examples) -> Examples:
    """Documents of both; labels that only one of them knows come after those that both know."""
    labels = max(first.labels.shape[1], second.labels.shape[1])
    places = max(first.routed.clusters.shape[1], second.routed.clusters.shape[1])

    def wide(array: Any, columns: int, fill: float) -> Any:
        missing = columns - array.shape[1]
        return np.pad(array, ((0, 0), (0, missing)), constant_values=fill)

    both = (first, second)
    weights = None
    if first.weights is not None or second.weights is not None:
        ones = [np.ones(len(part.features), np.float32) for part in both]
        given = [part.weights for part in both]
        weights = np.concatenate([o if w is None else w for o, w in zip(ones, given, strict=True)])
    return Examples(
        stacked(first.features, second.features),
        as_csr(sparse.vstack([widened(part.labels, labels) for part in both], format="csr")),
        Routed(
            np.concatenate([wide(part.routed.clusters, places, -1) for part in both]),
            np.concatenate([wide(part.routed.scores, places, 0) for part in both]),
        ),
        max(first.mined, second.mined),
        weights,
    )


def widened(labels: CSR, columns: int) -> CSR:
    """The same rows with empty columns at the end.

    >>> widened(as_csr([[1.0]]), 3).shape
    (1, 3)
    """
    shape = (labels.shape[0], columns)
    return as_csr(sparse.csr_array((labels.data, labels.indices, labels.indptr), shape=shape))


def stacked(first: Features, second: Features) -> Features:
    """The rows of both.

    >>> stacked(Features(dense=[[1.0]]), Features(dense=[[2.0]])).dense.tolist()
    [[1.0], [2.0]]
    """
    terms, dense = None, None
    if first.sparse is not None and second.sparse is not None:
        terms = as_csr(sparse.vstack([first.sparse, second.sparse], format="csr"))
    if first.dense is not None and second.dense is not None:
        dense = np.concatenate([first.dense, second.dense.astype(first.dense.dtype)])
    return Features(terms, dense)


def from_own_text(ranker: Ranker, tree: LabelTree, labels: Any, texts: Features) -> Columns:
    """Weights of labels that have no documents: the features of their own texts.

    ``texts`` has a row for each of the label columns, that are new in ``tree``. Rows are made as
    long as the weights of other labels are (upper quartile); the bias is the siblings' median.
    """
    last = len(ranker.levels) - 1
    nodes = tree.leaf_positions[np.asarray(labels)].astype(np.int64)
    order = np.argsort(nodes)
    widths = np.diff(ranker.tree.children(last))
    some = np.unique(
        np.linspace(0, len(widths) - 1, min(len(widths), SAMPLED_CLUSTERS)).astype(int)
    )
    parents = ranker.tree.parents[last]
    known = leaf_columns(ranker, ranker.tree.leaf_labels[np.isin(parents, some)])
    directions = texts.normalised()
    terms = sparse.csr_array((len(nodes), ranker.features), dtype=np.float32)
    if directions.sparse is not None:
        squares = np.asarray(known.sparse.multiply(known.sparse).sum(axis=1)).ravel()
        terms = directions.sparse * np.float32(np.sqrt(np.percentile(squares, 75)))
    dense = np.zeros((len(nodes), ranker.width), np.float32)
    if directions.dense is not None and ranker.width:
        lengths = np.linalg.norm(known.dense, axis=1)
        dense = directions.dense * np.float32(np.percentile(lengths, 75))
    bias = sibling_bias(ranker, tree.parents[last][nodes])
    return Columns(nodes[order], as_csr(terms[order]), bias[order], dense[order])


def sibling_bias(ranker: Ranker, clusters: npt.ArrayLike) -> Float32:
    """For each of the clusters the middle one of its labels' biases."""
    last = len(ranker.levels) - 1
    children, stored = ranker.tree.children(last), ranker.levels[last].bias
    found, which = np.unique(np.asarray(clusters), return_inverse=True)
    middle = [np.median(stored[children[c] : children[c + 1]]) for c in found]
    return np.array(middle, np.float32)[which]
