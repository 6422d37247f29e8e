"""What each exported method does with texts: states or vectors by ONNX, then heads and rankers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.errors import ModelFormatError
from labelgrove.exporting.heads import Heads, heads_from_part
from labelgrove.exporting.onnx_encoder import OnnxEncoder, OnnxRunner
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.xtransformer.ranking import (
    ClusterRanker,
    LearntScore,
    Matched,
    RankingParams,
)
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf


class Engine(Protocol):
    """The part of a method that turns texts into labels."""

    @property
    def tree(self) -> LabelTree | None: ...

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions: ...


@dataclass(frozen=True)
class NetworkEngine:
    """LightXML and CascadeXML: heads on the encoder's states; perhaps a ranker over their list."""

    encoder: OnnxEncoder
    heads: Heads
    reranker: Reranker | None
    index: LabelIndex
    tree: LabelTree | None

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """Scores are probabilities, of clusters times labels."""
        tokens = self.encoder.tokens(texts, threads=threads)
        runner: Any = OnnxRunner(self.encoder, self.heads, threads=threads)
        k = min(k, len(self.index if mask is None else mask))
        if self.reranker is None:
            columns, scores, _ = runner.read(tokens, k, mask=mask)
        else:
            columns, scores = self.reranker.best_labels(
                runner, texts, tokens, k, mask=mask, threads=threads
            )
        counts = (columns >= 0).sum(axis=1).astype(np.int32)
        return Predictions(columns, scores, counts, self.index, "product")


@dataclass(frozen=True)
class MatcherEngine:
    """X-Transformer: a head over clusters, and a ranker for the labels of the best of them."""

    encoder: OnnxEncoder
    heads: Heads
    ranker: ClusterRanker
    vectorizer: Tfidf
    index: LabelIndex

    @property
    def tree(self) -> LabelTree:
        return self.ranker.tree

    def predict(
        self, texts: Any, k: int, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        """What scores are depends on ``ranking.combine``."""
        tokens = self.encoder.tokens(texts, threads=threads)
        runner = OnnxRunner(self.encoder, self.heads, threads=threads)
        most = min(self.ranker.clusters_for(k, mask), self.tree.widths[0])
        within = self.ranker.cluster_mask(mask)
        clusters, margins, vectors = runner.read(tokens, most, vectors=True, mask=within)
        matched = Matched(clusters, margins, half(l2_normalised(vectors).dense))
        terms = self.vectorizer.transform(texts)
        found = self.ranker.best_labels(terms, matched, k, mask=mask, threads=threads)
        return Predictions(*found, self.index, self.ranker.params.score_kind)


@dataclass(frozen=True)
class VectorEngine:
    """XR-Transformer, and the linear method on text vectors: a ranker reads vectors and tf-idf."""

    vectors: Callable[..., Any]
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
        """Scores are as ``search`` says."""
        terms = None if self.vectorizer is None else self.vectorizer.transform(texts)
        documents = Features(terms, self.vectors(texts, threads=threads))
        found = search_trees(
            self.rankers, documents, k=k, params=self.search, allow=mask, threads=threads
        )
        return Predictions(*found, self.index, self.search.score_kind)


def make_engine(
    method: str,
    params: Mapping[str, Any],
    parts: Mapping[str, Part],
    encoder: OnnxEncoder,
    index: LabelIndex,
) -> Engine:
    """The engine of a stored model; parts that are missing are KeyErrors."""
    makers: dict[str, Callable[..., Engine]] = {
        "lightxml": _network_engine,
        "cascadexml": _network_engine,
        "xtransformer": _matcher_engine,
        "xrtransformer": _xr_engine,
        "linear-vectors": _linear_engine,
    }
    if method not in makers:
        raise ModelFormatError(f"an exported {method!r} model is not known to this labelgrove")
    return makers[method](params, parts, encoder, index)


def _network_engine(
    params: Mapping[str, Any], parts: Mapping[str, Part], encoder: OnnxEncoder, index: LabelIndex
) -> Engine:
    tree = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
    heads = heads_from_part(parts["heads"], tree)
    reranker = Reranker.from_parts(parts, RerankParams(**params["rerank"]))
    return NetworkEngine(encoder, heads, reranker, index, tree)


def _matcher_engine(
    params: Mapping[str, Any], parts: Mapping[str, Part], encoder: OnnxEncoder, index: LabelIndex
) -> Engine:
    learnt = parts["score"].config["learnt"]
    ranker = ClusterRanker(
        Ranker.from_state(parts["ranker"]),
        RankingParams(**params["ranking"]),
        None if learnt is None else LearntScore(**learnt),
    )
    heads = heads_from_part(parts["heads"], None)
    return MatcherEngine(encoder, heads, ranker, Tfidf.from_state(parts["tfidf"]), index)


def _xr_engine(
    params: Mapping[str, Any], parts: Mapping[str, Part], encoder: OnnxEncoder, index: LabelIndex
) -> Engine:
    def vectors(texts: Any, *, threads: int | None) -> Any:
        tokens = encoder.tokens(texts, threads=threads)
        return beside_terms(encoder.vectors(tokens, threads=threads), "l2")

    return _vector_engine(vectors, params, parts, index)


def _linear_engine(
    params: Mapping[str, Any], parts: Mapping[str, Part], encoder: OnnxEncoder, index: LabelIndex
) -> Engine:
    def vectors(texts: Any, *, threads: int | None) -> Any:
        tokens = encoder.tokens(texts, threads=threads)
        return half(l2_normalised(encoder.vectors(tokens, threads=threads)).dense)

    return _vector_engine(vectors, params, parts, index)


def _vector_engine(
    vectors: Callable[..., Any],
    params: Mapping[str, Any],
    parts: Mapping[str, Part],
    index: LabelIndex,
) -> Engine:
    rankers = [Ranker.from_state(parts[f"ranker-{n}"]) for n in range(params.get("n_trees", 1))]
    vectorizer = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
    return VectorEngine(vectors, rankers, SearchParams(**params["search"]), vectorizer, index)


def half(vectors: Any) -> Any:
    """In half precision, which unit vectors lose nothing by that matters."""
    return np.asarray(vectors, np.float16)
