"""A linear ranker that orders the labels of a document's best clusters.

A label's score is sigma(g, h): g is the matcher's margin for the label's cluster, h the ranker's
margin for the label. A label outside the best clusters has no score.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, as_csr, entry_keys, offsets
from labelgrove.core.late import expit, sparse
from labelgrove.core.logistic import fit_logistic
from labelgrove.core.params import Params, param
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.features import DenseBlock, Features
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.evaluation.predictions import ScoreKind
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, children_of, nodes_needed
from labelgrove.ranking.beam import OWN_MARGIN
from labelgrove.ranking.negatives import targets
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams, refuse_idle

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
    """What the ranker reads, and how to combine its margin with the matcher's."""

    features: Literal["tfidf", "neural", "both"] = param(
        "both", help="what the ranker reads: tf-idf, the matcher's text vectors, or both"
    )
    scale: Literal["joint", "blocks"] = param(
        "joint", help="unit length of both kinds of features together (published) or of each"
    )
    clusters_kept: int = param(
        10, ge=1, help="best clusters of the matcher, whose labels are ranked or are negatives"
    )
    combine: Literal["ranker", "learnt"] = param(
        "ranker",
        help="score: the ranker's margin alone (published code), or a logistic of both margins "
        "learnt on the held-out documents",
    )

    @property
    def score_kind(self) -> ScoreKind:
        return "probability" if self.combine == "learnt" else "margin"


def check_ranking(params: RankingParams, ranker: RankerParams, *, held_out: bool) -> None:
    """Refuses settings that contradict each other, before hours of training."""
    refuse_idle(ranker, "ranker", ["mined_weight"], "all documents of a cluster count the same")
    if params.combine == "learnt" and not held_out:
        raise ConfigError(
            "ranking.combine: learnt needs held-out documents; raise held_out, or choose ranker"
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


@dataclass(frozen=True)
class LearntScore:
    """P(label) = sigmoid(cluster * g + label * h + constant)."""

    cluster: float
    label: float
    constant: float

    def __call__(self, g: Float32, h: Float32) -> Float32:
        margins = self.cluster * g.astype(np.float64) + self.label * h + self.constant
        return np.asarray(expit(margins), np.float32)

    @classmethod
    def fit(cls, g: Float32, h: Float32, true: Array) -> LearntScore:
        """The logistic regression of ``true`` on both margins."""
        rows = np.column_stack([g, h, np.ones(len(g))]).astype(np.float64)
        ridge = np.array([1e-3, 1e-3, 1e-6])  # keeps the weights of separable pairs finite
        return cls(*fit_logistic(rows, np.asarray(true, np.float64), ridge).tolist())


@dataclass(eq=False)
class ClusterRanker:
    """The ranker and its scoring; turns a matcher's clusters into predictions."""

    ranker: Ranker
    params: RankingParams
    learnt: LearntScore | None = None

    @property
    def tree(self) -> LabelTree:
        return self.ranker.tree

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
        clusters = self.clusters_for(k, mask)
        for rows, g, h in self._margins(terms, matched, clusters, mask):
            learnt = self.learnt if self.params.combine == "learnt" else None
            g.data = h if learnt is None else learnt(g.data, h)
            best = top_k(g, k)
            width = best.columns.shape[1]
            columns[rows, :width], scores[rows, :width] = best.columns, best.scores
            counts[rows] = best.counts
        return columns, scores, counts

    def learn(self, terms: CSR, matched: Matched, labels: CSR) -> None:
        """Learns how to combine both margins from documents that neither model has seen."""
        learnt = self._fit_score(terms, matched, labels)
        if learnt is None:
            raise DataError("ranking.combine: no held-out document has its labels on its shortlist")
        self.learnt = learnt

    def unseen(
        self, terms: CSR, matched: Matched, labels: CSR, k: int
    ) -> tuple[Int32, Float32, Int32] | None:
        """:meth:`best_labels` of the documents of :meth:`learn`, each scored by the other half.

        A score measured on the documents that it was fitted to looks better than it is. None if a
        half has no label on its shortlists to learn from.
        """
        even = np.arange(len(matched.clusters)) % 2 == 0
        fits = [self._fit_score(terms[h], matched.take(h), labels[h]) for h in (~even, even)]
        if None in fits:
            return None
        one, other = (replace(self, learnt=fit).best_labels(terms, matched, k) for fit in fits)
        rows = even[:, None]
        columns, scores = (np.where(rows, a, b) for a, b in zip(one[:2], other[:2], strict=True))
        return columns, scores, np.where(even, one[2], other[2])

    def _fit_score(self, terms: CSR, matched: Matched, labels: CSR) -> LearntScore | None:
        pairs = []
        for rows, g, h in self._margins(terms, matched, self.params.clusters_kept):
            is_label = np.isin(entry_keys(g), entry_keys(labels[rows]), assume_unique=True)
            pairs.append((g.data, h, is_label))
            if sum(len(part[1]) for part in pairs) >= PAIRS_AT_ONCE:
                break  # more than enough for three numbers
        if not pairs or not any(true.any() for _, _, true in pairs):
            return None
        return LearntScore.fit(*(np.concatenate(part) for part in zip(*pairs, strict=True)))

    def recall(self, matched: Matched, labels: CSR) -> float:
        """Share of the true labels that are in the searched clusters."""
        searched = matched.clusters[:, : self.params.clusters_kept]
        rows = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
        needed = self.tree.parents[1][self.tree.leaf_positions[labels.indices]]
        hits = (searched[rows] == needed[:, None]).any(axis=1)
        return float(hits.mean()) if len(hits) else 0.0

    def _margins(
        self, terms: CSR, matched: Matched, count: int, mask: LabelMask | None = None
    ) -> Iterator[tuple[slice, CSR, Float32]]:
        """Blocks of documents: rows, a sparse matrix of g over their candidates, and h."""
        clusters = matched.clusters[:, :count]
        largest = int(np.diff(self.tree.children(1)).max()) * clusters.shape[1]
        step = max(1, PAIRS_AT_ONCE // largest)
        for first in range(0, len(clusters), step):
            rows = slice(first, first + step)
            g = self._candidates(clusters[rows], matched.margins[rows, :count], mask)
            features = ranker_features(terms[rows], matched.vectors[rows], self.params)
            h = self.ranker.score(features, g, params=OWN_MARGIN)
            yield rows, g, h.data

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
