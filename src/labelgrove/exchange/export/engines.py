"""How exported methods predict: ONNX gives states or vectors; then come heads and rankers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from labelgrove.core.arrays import csr_parts
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.documents import Documents
from labelgrove.data.features import DenseBlock, Features
from labelgrove.errors import ModelFormatError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.exchange.export.heads import Heads, heads_from_part
from labelgrove.exchange.export.onnx_encoder import OnnxEncoder, OnnxRunner
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.neighbours.memory import Memory, Queries
from labelgrove.methods.neighbours.voting import VotingParams
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.xtransformer import ranking
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.text.tfidf import Tfidf


@dataclass(frozen=True)
class NetworkEngine:
    """LightXML and CascadeXML: heads on the encoder's states, perhaps a ranker over their list."""

    encoder: OnnxEncoder
    heads: Heads
    reranker: Reranker | None
    index: LabelIndex
    tree: LabelTree | None

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """Scores are probabilities of clusters times those of labels."""
        tokens = self.encoder.tokens(texts, threads=threads)
        runner: Any = OnnxRunner(self.encoder, self.heads, threads=threads)
        k = min(k, len(self.index if mask is None else mask))
        if self.reranker is None:
            columns, scores, _ = runner.read(tokens, k, mask=mask)
        else:
            columns, scores = self.reranker.best_labels(
                runner, Documents(texts), tokens, k, mask=mask, threads=threads
            )
        counts = (columns >= 0).sum(axis=1).astype(np.int32)
        return Predictions(columns, scores, counts, self.index, "product")


@dataclass(frozen=True)
class MatcherEngine:
    """X-Transformer: a head over clusters, and a ranker for the labels of the best clusters."""

    encoder: OnnxEncoder
    heads: Heads
    ranker: ranking.ClusterRanker
    vectorizer: Tfidf
    index: LabelIndex

    @property
    def tree(self) -> LabelTree:
        return self.ranker.tree

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """The kind of the scores depends on ``ranking.combine``."""
        tokens = self.encoder.tokens(texts, threads=threads)
        runner = OnnxRunner(self.encoder, self.heads, threads=threads)
        most = min(self.ranker.clusters_for(k, mask), self.tree.widths[0])
        within = self.ranker.cluster_mask(mask)
        clusters, margins, vectors = runner.read(tokens, most, vectors=True, mask=within)
        matched = ranking.Matched(clusters, margins, half(l2_normalised(vectors).dense))
        terms = self.vectorizer.transform(texts)
        best = self.ranker.best_labels(terms, matched, k, mask=mask, threads=threads)
        return Predictions(*best, self.index, self.ranker.params.score_kind)


@dataclass(frozen=True)
class VectorEngine:
    """XR-Transformer, and the linear method on text vectors: rankers read vectors and tf-idf."""

    encoder: OnnxEncoder
    unit_half: bool  # vectors of unit length in half precision, as the linear method stores them
    rankers: list[Ranker]
    search: SearchParams
    vectorizer: Tfidf | None
    index: LabelIndex

    @property
    def tree(self) -> LabelTree:
        return self.rankers[0].tree

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """The kind of the scores depends on ``search``."""
        terms = None if self.vectorizer is None else self.vectorizer.transform(texts)
        vectors = self.encoder.vectors(self.encoder.tokens(texts, threads=threads), threads=threads)
        unit = self.unit_half
        dense = half(l2_normalised(vectors).dense) if unit else beside_terms(vectors, "l2")
        documents, params = Features(terms, dense), self.search
        best = search_trees(
            self.rankers, documents, k=k, params=params, allow=mask, threads=threads
        )
        return Predictions(*best, self.index, params.score_kind)


@dataclass(frozen=True)
class NeighboursEngine:
    """Neighbours by text vectors, or by these and tf-idf."""

    encoder: OnnxEncoder
    memory: Memory
    voting: VotingParams
    vectorizer: Tfidf | None
    index: LabelIndex
    tree: None = None

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """Scores are shares of the votes."""
        vectorizer = self.vectorizer
        terms = None if vectorizer is None else csr_parts(vectorizer.transform(texts))
        vectors = self.encoder.vectors(self.encoder.tokens(texts, threads=threads), threads=threads)
        queries = Queries(terms, l2_normalised(vectors).dense)
        best = self.memory.best_labels(queries, k, self.voting, mask=mask, threads=threads)
        return Predictions(*best, self.index)


Engine: TypeAlias = NetworkEngine | MatcherEngine | VectorEngine | NeighboursEngine


def make_engine(
    method: str,
    params: Mapping[str, Any],
    parts: Mapping[str, Part],
    encoder: OnnxEncoder,
    index: LabelIndex,
) -> Engine:
    """The engine of a stored model; a missing part is a KeyError."""
    if method in ("lightxml", "cascadexml"):
        tree = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        heads = heads_from_part(parts["heads"], tree)
        reranker = Reranker.from_parts(parts, RerankParams(**params["rerank"]))
        return NetworkEngine(encoder, heads, reranker, index, tree)
    if method == "xtransformer":
        learnt = parts["score"].config["learnt"]
        ranker = ranking.ClusterRanker(
            Ranker.from_state(parts["ranker"]),
            ranking.RankingParams(**params["ranking"]),
            None if learnt is None else ranking.LearntScore(**learnt),
        )
        heads = heads_from_part(parts["heads"], None)
        return MatcherEngine(encoder, heads, ranker, Tfidf.from_state(parts["tfidf"]), index)
    if method == "neighbours":
        vectorizer = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        memory = Memory.from_state(parts["memory"], terms=vectorizer is not None, vectors=True)
        memory.check_fits(len(index), encoder.width)
        voting = VotingParams(**params["voting"])
        return NeighboursEngine(encoder, memory, voting, vectorizer, index)
    if method not in ("xrtransformer", "linear-vectors"):
        raise ModelFormatError(f"an exported {method!r} model is not known to this labelgrove")
    rankers = [Ranker.from_state(parts[f"ranker-{n}"]) for n in range(params.get("n_trees", 1))]
    vectorizer = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
    search = SearchParams(**params["search"])
    unit_half = method == "linear-vectors"
    return VectorEngine(encoder, unit_half, rankers, search, vectorizer, index)


def half(vectors: Any) -> DenseBlock:
    """The vectors in half precision, which is enough for unit vectors."""
    return np.asarray(vectors, np.float16)
