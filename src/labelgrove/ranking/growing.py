"""A trained ranker with more labels, or with some labels retrained; all others stay as they are.

A new label goes below the cluster to which the levels above send its documents, or its own text.
Only the weights of new labels and of the requested ones are trained. Nodes above the labels keep
theirs, so a document still reaches the same clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, as_csr, offsets, stacked_rows
from labelgrove.core.late import sparse
from labelgrove.core.scratch import ColumnLists
from labelgrove.core.topk import lists_to_csr
from labelgrove.data.blocks import joined as stacked
from labelgrove.data.features import FeatureParts, Features
from labelgrove.errors import DataError
from labelgrove.labels.features import keep_largest, l2_normalised
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import Frequencies, costs, instance_lists, targets
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import LevelTask, RankerParams, row_lists, solve_level
from labelgrove.ranking.weights import WIDEST_CLUSTER, Columns, read_columns, write_columns

STAND_IN_TERMS = 30  # of an artificial document
SAMPLED_CLUSTERS = 64  # whose labels show how long weight vectors are


@dataclass(frozen=True)
class Routed:
    """The best clusters of each document, best first, with scores above 0; the rest is -1."""

    clusters: Int32
    scores: Float32

    def matrix(self, clusters: int, *, most: int | None = None) -> CSR:
        """Documents x clusters with the scores of the ``most`` best."""
        best = self.clusters[:, :most]
        scores = np.maximum(self.scores[:, :most], np.finfo(np.float32).tiny)
        return as_csr(lists_to_csr(best, scores, (best >= 0).sum(axis=1), clusters))


def route(ranker: Ranker, documents: Features, search: SearchParams, *, most: int) -> Routed:
    """The clusters that a ranker's upper levels find for documents, as a search does."""
    depth = len(ranker.levels) - 1
    if depth == 0:
        return Routed(
            np.zeros((len(documents), 1), np.int32), np.ones((len(documents), 1), np.float32)
        )
    upper = ranker.with_levels(ranker.tree.coarsen(depth), ranker.levels[:depth])
    params = search.for_upper_levels(upper.tree)
    if search.post_processor == "noop":
        params.post_processor = "sigmoid"  # only shares can be added up
    clusters, scores, counts = upper(documents.parts(), k=most, params=params)
    empty = np.arange(clusters.shape[1]) >= counts[:, None]
    return Routed(clusters, np.where(empty, 0, scores))


def nearest_clusters(routed: Routed, labels: CSR, tree: LabelTree) -> Int32:
    """For each label the cluster with most of its documents' scores, or the smallest."""
    sizes = np.diff(tree.children(len(tree.parents) - 1))
    votes = as_csr(labels.T @ routed.matrix(len(sizes)))
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
    """The tree with one more label for each of ``clusters``, as that cluster's last child."""
    new = np.asarray(clusters, np.int32)
    if len(new) == 0:
        return tree
    parents = np.concatenate([tree.parents[-1], new])
    order = np.argsort(parents, kind="stable")
    labels = np.concatenate([tree.leaf_labels, tree.labels + np.arange(len(new))])
    widest = int(np.bincount(parents).max())
    if widest > WIDEST_CLUSTER:
        raise DataError(
            f"a cluster would have {widest:,} labels; at most {WIDEST_CLUSTER:,} fit: train the "
            "model from scratch"
        )
    return LabelTree([*tree.parents[:-1], parents[order]], labels[order])


def leaf_columns(ranker: Ranker, labels: npt.ArrayLike) -> Columns:
    """The weights of some label columns, in the order of their leaves."""
    return ranker.columns(len(ranker.levels) - 1, ranker.tree.leaf_positions[np.asarray(labels)])


def with_columns(ranker: Ranker, tree: LabelTree, columns: Columns) -> Ranker:
    """The ranker over a tree that has grown, with new weights for some of its leaves."""
    last = len(ranker.levels) - 1
    before, after = ranker.tree.children(last), tree.children(last)
    level = write_columns(ranker.levels[last], before, after, columns)
    return ranker.with_levels(tree, [*ranker.levels[:last], level])


@dataclass(frozen=True)
class GrowthExamples:
    """Documents to learn from: features, labels (a column for each of the tree's), best clusters.

    A document is a negative in its ``mined`` best clusters; ``weights`` multiply its costs.
    """

    features: Features
    labels: CSR
    routed: Routed
    mined: int
    weights: Float32 | None = None


def solve_columns(
    tree: LabelTree,
    examples: GrowthExamples,
    labels: npt.ArrayLike,
    params: RankerParams,
    *,
    frequencies: Frequencies | None = None,
    start: Columns | None = None,
    seed: int = 0,
) -> Columns:
    """Weights of some label columns, trained as in the training of a whole ranker.

    A label learns from its cluster's documents, as ``params.negatives`` says. The result is
    regularised towards ``start``. ``frequencies`` count the documents that are gone, too.
    """
    last = len(tree.parents) - 1
    nodes: Int64 = np.sort(tree.leaf_positions[np.asarray(labels)]).astype(np.int64)
    clusters, counts = np.unique(tree.parents[last][nodes], return_counts=True)
    bearers, chosen, mined = _cluster_documents(tree, examples, clusters, params)
    positives = costs(examples.labels, tree, params, frequencies)[last]
    own = row_lists(as_csr(positives[:, nodes]), examples.weights)
    # The solver would take an only child that all documents have for its parent. A second child
    # without positives, which is not trained, prevents that.
    places = np.arange(len(nodes)) + np.repeat(np.arange(len(clusters)), counts)
    children = offsets(counts + 1)
    sizes = np.zeros(int(children[-1]), np.int64)
    sizes[places] = np.diff(own.indptr)
    share, factors = params.mined_weight, examples.weights
    instances = instance_lists(bearers, chosen, mined=mined, mined_weight=share, weights=factors)
    task = LevelTask(
        instances=instances,
        positives=ColumnLists(offsets(sizes), own.rows, own.values),
        children=children,
        params=params.for_labels(),
        centre=None if start is None else _spread(start, places, len(sizes)),
        seed=seed + last,
    )
    level = solve_level(examples.features, task)
    solved = read_columns(
        level, children, places, features=examples.features.terms, width=examples.features.width
    )
    return replace(solved, nodes=nodes)


def _cluster_documents(
    tree: LabelTree, examples: GrowthExamples, clusters: Array, params: RankerParams
) -> tuple[CSR, list[CSR], CSR | None]:
    """The documents with a label of each cluster, its negatives, and those that are mined."""
    if len(tree.parents) == 1:
        everyone = as_csr(np.ones((len(examples.features), 1), np.float32))
        return everyone, [everyone], None
    bearers = as_csr(targets(examples.labels, tree)[-2][:, clusters])
    mined = None
    if "man" in params.negatives:
        routed = examples.routed.matrix(tree.widths[-2], most=examples.mined)
        mined = as_csr(routed[:, clusters])
    alone = mined is not None and "tfn" not in params.negatives
    return bearers, [] if alone else [bearers], mined


def _spread(start: Columns, places: Int64, rows: int) -> tuple[FeatureParts, Float32]:
    """Weights and biases with rows of zeros between them."""
    row_of = sparse.csr_array(
        (np.ones(len(places), np.float32), (places, np.arange(len(places)))),
        shape=(rows, len(places)),
    )
    terms = as_csr(row_of @ start.sparse) if start.sparse.shape[1] else None
    dense = row_of @ start.dense if start.dense.shape[1] else None
    return Features(terms, dense).parts(name="start"), row_of @ start.bias


def stand_ins(
    ranker: Ranker, clusters: npt.ArrayLike, frequencies: npt.ArrayLike
) -> GrowthExamples:
    """Artificial documents in place of training documents that are gone, one for each label.

    Each has the terms with the largest weights for a label of ``clusters`` and counts as often as
    the label had documents (``frequencies``, by label column).
    """
    last = len(ranker.levels) - 1
    parents = ranker.tree.parents[last]
    leaves = np.flatnonzero(np.isin(parents, clusters))
    counts = np.asarray(frequencies)[ranker.tree.leaf_labels[leaves]]
    leaves, counts = leaves[counts > 0], counts[counts > 0]
    weights = leaf_columns(ranker, ranker.tree.leaf_labels[leaves])
    terms = weights.sparse.copy()
    terms.data = np.maximum(terms.data, 0)
    terms.eliminate_zeros()
    block = l2_normalised(keep_largest(Features(sparse=as_csr(terms)), STAND_IN_TERMS)).sparse
    dense = np.zeros((len(leaves), ranker.width), np.float32) if ranker.width else None
    own = (np.arange(len(leaves)), ranker.tree.leaf_labels[weights.nodes])
    shape = (len(leaves), ranker.tree.labels)
    return GrowthExamples(
        Features(block, dense),
        as_csr(sparse.csr_array((np.ones(len(leaves), np.float32), own), shape=shape)),
        Routed(parents[weights.nodes][:, None], np.ones((len(leaves), 1), np.float32)),
        mined=1,
        weights=counts.astype(np.float32),
    )


def joined(first: GrowthExamples, second: GrowthExamples) -> GrowthExamples:
    """The documents of both; labels that only one of them has come after those that both have."""
    both = (first, second)
    labels = max(part.labels.shape[1] for part in both)
    width = max(part.routed.clusters.shape[1] for part in both)

    def padded(array: Array, fill: float) -> Array:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    def weights(part: GrowthExamples) -> Float32:
        return np.ones(len(part.features), np.float32) if part.weights is None else part.weights

    return GrowthExamples(
        stacked([part.features for part in both]),
        stacked_rows([widened(part.labels, labels) for part in both]),
        Routed(
            np.concatenate([padded(part.routed.clusters, -1) for part in both]),
            np.concatenate([padded(part.routed.scores, 0) for part in both]),
        ),
        max(first.mined, second.mined),
        np.concatenate([weights(part) for part in both]),
    )


def widened(labels: CSR, columns: int) -> CSR:
    """The same rows with empty columns at the end."""
    shape = (labels.shape[0], columns)
    return as_csr(sparse.csr_array((labels.data, labels.indices, labels.indptr), shape=shape))


def from_own_text(
    ranker: Ranker, tree: LabelTree, labels: npt.ArrayLike, texts: Features
) -> Columns:
    """Weights of new label columns without documents: the features of their own ``texts``.

    Rows get the length of other labels' weights (upper quartile) and their siblings' median bias.
    """
    last = len(ranker.levels) - 1
    nodes = tree.leaf_positions[np.asarray(labels)].astype(np.int64)
    order = np.argsort(nodes)
    widths = np.diff(ranker.tree.children(last))
    sample = np.linspace(0, len(widths) - 1, min(len(widths), SAMPLED_CLUSTERS)).astype(int)
    parents = ranker.tree.parents[last]
    known = leaf_columns(ranker, ranker.tree.leaf_labels[np.isin(parents, sample)])
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
    """The median bias of each cluster's labels."""
    last = len(ranker.levels) - 1
    children, stored = ranker.tree.children(last), ranker.levels[last].bias
    unique, which = np.unique(np.asarray(clusters), return_inverse=True)
    medians = [np.median(stored[children[c] : children[c + 1]]) for c in unique]
    return np.array(medians, np.float32)[which]
