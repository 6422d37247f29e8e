"""A linear ranker that orders the labels of a document's best clusters.

A label's score is the ranker's margin, as in the public code. A label outside the best clusters
has no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, as_csr, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.features import DenseBlock, Features
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.evaluation.predictions import ScoreKind
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, children_of, nodes_needed
from labelgrove.ranking.beam import OWN_MARGIN
from labelgrove.ranking.negatives import targets
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams

PAIRS_AT_ONCE = 1 << 22  # pairs of a document and a label


@dataclass(frozen=True)
class Matched:
    """A matcher's clusters of documents (best first), their margins, and unit text vectors."""

    clusters: Int32
    margins: Float32
    vectors: DenseBlock

    def take(self, rows: Array) -> Matched:
        """Some of the documents."""
        return Matched(self.clusters[rows], self.margins[rows], self.vectors[rows])

    def state(self) -> Part:
        return Part({}, dict(vars(self)))

    @classmethod
    def from_state(cls, part: Part) -> Matched:
        return cls(**part.arrays)


@dataclass
class RankingParams(Params):
    """What the ranker reads, and of how many clusters."""

    features: Literal["tfidf", "neural", "both"] = param(
        "both", help="what the ranker reads: tf-idf, the matcher's text vectors, or both"
    )
    scale: Literal["joint", "blocks"] = param(
        "joint", help="unit length of both kinds of features together (published) or of each"
    )
    clusters_kept: int = param(
        10, ge=1, help="best clusters of the matcher, whose labels are ranked or are negatives"
    )


def ranker_features(terms: CSR, vectors: Array, params: RankingParams) -> Features:
    """The blocks that the ranker reads, scaled as ``params`` says; zero rows stay zero."""
    blocks = Features(
        None if params.features == "neural" else l2_normalised(terms).sparse,
        None if params.features == "tfidf" else l2_normalised(vectors).dense,
    )
    return l2_normalised(blocks) if params.scale == "joint" else blocks


def train_cluster_ranker(
    features: Features,
    labels: CSR,
    tree: LabelTree,
    matched: Matched,
    params: RankingParams,
    ranker: RankerParams,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> Ranker:
    """A classifier per label, trained on the documents that see the label's cluster.

    ``ranker.negatives`` selects them: documents with a label of the cluster (tfn), documents for
    which the cluster is among the matcher's best (man), or both.
    """
    seen = seen_clusters(labels, tree, matched, params, ranker)
    if tree.widths[0] == tree.labels:  # a shortlist of this width is read as label columns
        seen = seen[:, tree.leaf_positions]
    return train_ranker(
        features, labels, tree, ranker, shortlist=seen, seed=seed, progress=progress
    )


def seen_clusters(
    labels: CSR, tree: LabelTree, matched: Matched, params: RankingParams, ranker: RankerParams
) -> CSR:
    """Documents x clusters: the clusters whose labels learn from a document."""
    seen = sparse.csr_array((labels.shape[0], tree.widths[0]), dtype=np.float32)
    if "tfn" in ranker.negatives:
        seen = seen + targets(labels, tree)[0]
    if "man" in ranker.negatives:
        mined = ranker.mined_nodes
        count = mined if isinstance(mined, int) else params.clusters_kept
        if count > matched.clusters.shape[1] < tree.widths[0]:
            raise ConfigError(
                f"ranker.mined_nodes: at most {matched.clusters.shape[1]} clusters of a document "
                f"are stored, got {count}; raise ranking.clusters_kept"
            )
        best = matched.clusters[:, :count]
        indptr = np.arange(len(best) + 1) * best.shape[1]
        ones = np.ones(best.size, np.float32)
        seen = seen + sparse.csr_array((ones, best.ravel(), indptr), shape=seen.shape)
    return as_csr(seen)


@dataclass(eq=False)
class ClusterRanker:
    """The ranker and its scoring; turns a matcher's clusters into predictions."""

    ranker: Ranker
    params: RankingParams
    learnt: Mapping[str, float] | None = None  # as earlier releases could fit it

    @property
    def tree(self) -> LabelTree:
        return self.ranker.tree

    @property
    def score_kind(self) -> ScoreKind:
        return "margin" if self.learnt is None else "probability"

    def cluster_mask(self, mask: LabelMask | None) -> LabelMask | None:
        """The clusters that have labels of a mask."""
        if mask is None:
            return None
        return LabelMask.from_columns(np.flatnonzero(self._allowed(mask)), self.tree.widths[0])

    def _allowed(self, mask: LabelMask | None) -> Int64:
        """The number of allowed labels of each cluster."""
        starts = self.tree.children(1)
        if mask is None:
            return np.diff(starts)
        before = mask.over(self.tree)
        return np.diff(before[starts]).astype(np.int64)

    def clusters_for(self, k: int, mask: LabelMask | None = None) -> int:
        """The number of clusters to search: as in the settings, or more if k labels need them."""
        return max(*nodes_needed([self._allowed(mask)], k), self.params.clusters_kept)

    def best_labels(
        self, terms: CSR, matched: Matched, k: int, *, mask: LabelMask | None = None
    ) -> tuple[Int32, Float32, Int32]:
        """Columns, scores and counts of the k best labels in ``mask``, the one of ``matched``."""
        k = min(k, self.tree.labels if mask is None else len(mask))
        columns = np.full((len(matched.clusters), k), -1, np.int32)
        scores = np.full(columns.shape, -np.inf, np.float32)
        counts = np.zeros(len(columns), np.int32)
        clusters = matched.clusters[:, : self.clusters_for(k, mask)]
        largest = int(np.diff(self.tree.children(1)).max()) * clusters.shape[1]
        step = max(1, PAIRS_AT_ONCE // largest)
        for first in range(0, len(clusters), step):
            rows = slice(first, first + step)
            # The cluster's margin of every label in each document's clusters, then the label's own.
            g = self._candidates(clusters[rows], matched.margins[rows, : clusters.shape[1]], mask)
            features = ranker_features(terms[rows], matched.vectors[rows], self.params)
            h = self.ranker.score(features, g, params=OWN_MARGIN).data
            g.data = h if self.learnt is None else _probabilities(g.data, h, **self.learnt)
            best = top_k(g, k)
            width = best.columns.shape[1]
            columns[rows, :width], scores[rows, :width] = best.columns, best.scores
            counts[rows] = best.counts
        return columns, scores, counts

    def recall(self, matched: Matched, labels: CSR) -> float:
        """Share of the true labels that are in the searched clusters."""
        searched = matched.clusters[:, : self.params.clusters_kept]
        rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        needed = self.tree.parents[1][self.tree.leaf_positions[labels.indices]]
        hits = (searched[rows] == needed[:, None]).any(axis=1)
        return float(hits.mean()) if len(hits) else 0.0

    def _candidates(self, clusters: Int32, margins: Float32, mask: LabelMask | None) -> CSR:
        """Documents x labels: the cluster's margin for every label of each document's clusters."""
        if clusters.size and not 0 <= clusters.min() <= clusters.max() < self.tree.widths[0]:
            raise ModelFormatError(
                "the network ranks other clusters than the label tree has, or its scores are no "
                "numbers: the model is damaged, or its training failed"
            )
        leaves, sizes = children_of(clusters.ravel(), self.tree.children(1))
        columns = self.tree.leaf_labels[leaves]
        indptr = offsets(sizes.reshape(clusters.shape).sum(axis=1))
        values = np.repeat(margins.ravel(), sizes)
        if mask is not None:
            allowed = mask.allowed[columns]
            indptr = offsets(allowed)[indptr]
            columns, values = columns[allowed], values[allowed]
        shape = (len(clusters), self.tree.labels)
        matrix = sparse.csr_array((values, columns, indptr), shape=shape)
        matrix.sort_indices()
        return as_csr(matrix)


def _probabilities(
    g: Float32, h: Float32, *, cluster: float, label: float, constant: float
) -> Float32:
    margins = cluster * g.astype(np.float64) + label * h + constant
    return np.asarray(expit(margins), np.float32)
