"""An exported model, as ``labelgrove.load`` reads it from a folder of ``labelgrove.export``.

Nothing here imports torch or transformers.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self, TypeAlias

import numpy as np

from labelgrove.core.arrays import Float32, csr_parts
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.params import Settings
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex, Strings
from labelgrove.data.documents import Documents
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import DenseBlock, Features
from labelgrove.data.inputs import texts_only
from labelgrove.disk.bundle import regular_size
from labelgrove.disk.model_folder import StoredModel, reading_parts, save_model
from labelgrove.errors import ConfigError, ModelFormatError, UnsupportedError
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.predictions import Predictions
from labelgrove.exchange.export.heads import Heads, OnnxRunner
from labelgrove.exchange.export.onnx_encoder import GRAPH, TOKENIZER, WEIGHTS, OnnxEncoder
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import Model
from labelgrove.methods.dual.search import label_vectors, search
from labelgrove.methods.explaining.explanation import ExplanationRequest
from labelgrove.methods.folders import check_trees, without_gone
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.neighbours.memory import Memory, Queries
from labelgrove.methods.neighbours.voting import VotingParams
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.xtransformer.ranking import (
    ClusterRanker,
    LearntScore,
    Matched,
    RankingParams,
)
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.text.tfidf import Tfidf

RUNTIME = "onnx"
CONFIG = "config.toml"  # for people


class ExportedModel(Model):
    """A trained model whose encoder runs in onnxruntime; it predicts and cannot be trained.

    ``method``, ``params`` and the kind of scores are those of the original model; ``precision`` is
    fp32 or int8.
    """

    params: Settings
    precision: str
    stored: dict[str, Part]
    folder: Path
    metadata: JsonObject
    engine: Engine

    def __init__(self, *, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs

    @classmethod
    def _from_stored(cls, stored: StoredModel) -> Self:
        path = stored.path
        if stored.metadata.get("runtime") != RUNTIME:
            raise ConfigError(f"{path} is not an exported model; load it with labelgrove.load")
        for name in (GRAPH, TOKENIZER, WEIGHTS):
            if name != WEIGHTS or os.path.lexists(path / name):
                regular_size(path, name)  # refuses links that lead out of the folder
        model, parts = cls(), stored.parts
        model.__dict__["method"] = stored.method  # a class constant in other models
        model.params, model.stored = stored.params, parts
        model.folder, model.metadata = stored.path, stored.metadata
        model.precision = stored.metadata["precision"]
        model.index_ = LabelIndex.from_state(parts["labels"])
        model.facts_ = TrainingFacts.from_state(parts["training"])
        model.facts_.check_fits(len(model.index_))
        model.engine = make_engine(stored, model.index_)
        check_trees(model.trees(), model.index_, path)
        model.report_ = parts["encoder"].config.get("report") or {}
        if "calibration" in parts:
            model.calibration_ = Calibration.from_state(parts["calibration"])
        return model

    def __repr__(self) -> str:
        return f"ExportedModel({self.method}, {self.precision}, {str(self.folder)!r})"

    def trees(self) -> dict[str, LabelTree]:
        """The label tree that is searched, if there is one."""
        return {} if self.engine.tree is None else {"tree": self.engine.tree}

    def _best_labels(self, X: Any, k: int, *, dense: Any, mask: LabelMask | None) -> Predictions:
        texts = texts_only(self.method, X)
        # What the graph gives fits the other parts, or not, only when it has run.
        with reading_parts(self.folder):
            return self.engine.predict(texts, k, mask)

    def paths(self, question: ExplanationRequest) -> NoReturn:
        """Refused: gradients need the network itself."""
        raise UnsupportedError(
            "an exported model has no gradients to explain it with; explain the original model"
        )

    def growth(self) -> NoReturn:
        """Refused: only the original model learns."""
        raise UnsupportedError(
            "an exported model cannot learn; update the original model and export it again"
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the folder again, with the current calibration."""
        parts = {name: part for name, part in self.stored.items() if name != "calibration"}
        if self.calibration_ is not None:
            parts["calibration"] = self.calibration_.state()
        parts["labels"] = self.index_.state()

        def copy_files(folder: Path) -> None:
            for name in (GRAPH, WEIGHTS, TOKENIZER, CONFIG):
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, folder / name)

        save_model(
            path,
            method=self.method,
            params=self.params,
            metadata=self.metadata,
            parts=parts,
            extra=copy_files,
            overwrite=overwrite,
        )


@dataclass(frozen=True)
class NetworkEngine:
    """LightXML and CascadeXML: heads on the encoder's states, perhaps a ranker over their list."""

    encoder: OnnxEncoder
    heads: Heads
    reranker: Reranker | None
    index: LabelIndex
    tree: LabelTree | None

    def predict(self, texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        """Scores are probabilities of clusters times those of labels."""
        tokens = self.encoder.tokens(texts)
        runner: Any = OnnxRunner(self.encoder, self.heads)
        k = min(k, len(self.index if mask is None else mask))
        if self.reranker is None:
            columns, scores, _ = runner.read(tokens, k, mask=mask)
        else:
            columns, scores = self.reranker.best_labels(
                runner, Documents(texts), tokens, k, mask=mask
            )
        counts = (columns >= 0).sum(axis=1).astype(np.int32)
        return Predictions(columns, scores, counts, self.index, "product")


@dataclass(frozen=True)
class MatcherEngine:
    """X-Transformer: a head over clusters, and a ranker for the labels of the best clusters."""

    encoder: OnnxEncoder
    heads: Heads
    ranker: ClusterRanker
    vectorizer: Tfidf
    index: LabelIndex

    @property
    def tree(self) -> LabelTree:
        return self.ranker.tree

    def predict(self, texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        """The kind of the scores depends on ``ranking.combine``."""
        tokens = self.encoder.tokens(texts)
        runner = OnnxRunner(self.encoder, self.heads)
        most = min(self.ranker.clusters_for(k, mask), self.tree.widths[0])
        within = self.ranker.cluster_mask(mask)
        clusters, margins, vectors = runner.read(tokens, most, vectors=True, mask=within)
        matched = Matched(clusters, margins, unit_vectors(vectors))
        terms = self.vectorizer.transform(texts)
        best = self.ranker.best_labels(terms, matched, k, mask=mask)
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

    def predict(self, texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        """The kind of the scores depends on ``search``."""
        terms = None if self.vectorizer is None else self.vectorizer.transform(texts)
        vectors = self.encoder.vectors(texts)
        dense = unit_vectors(vectors) if self.unit_half else beside_terms(vectors, "l2")
        documents, params = Features(terms, dense), self.search
        best = search_trees(self.rankers, documents, k=k, params=params, allow=mask)
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

    def predict(self, texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        """Scores are shares of the votes."""
        vectorizer = self.vectorizer
        terms = None if vectorizer is None else csr_parts(vectorizer.transform(texts))
        vectors = l2_normalised(self.encoder.vectors(texts)).dense
        queries = Queries(terms, vectors)
        best = self.memory.best_labels(queries, k, self.voting, mask=mask)
        return Predictions(*best, self.index)


@dataclass(frozen=True)
class TowersEngine:
    """Two towers: the nearest labels."""

    encoder: OnnxEncoder
    vectors: Float32
    temperature: float
    index: LabelIndex
    tree: None = None

    def predict(self, texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        """Scores as those of the method."""
        documents = np.asarray(l2_normalised(self.encoder.vectors(texts)).dense, np.float32)
        best = search(documents, self.vectors, k, self.temperature, mask=mask)
        return Predictions(*best, self.index)


Engine: TypeAlias = NetworkEngine | MatcherEngine | VectorEngine | NeighboursEngine | TowersEngine


def make_engine(stored: StoredModel, index: LabelIndex) -> Engine:
    """The engine of a stored model; a missing part is a KeyError."""
    method, params, parts = stored.method, without_gone(stored.params), stored.parts
    encoder = OnnxEncoder(stored.path, parts["encoder"].config)
    vectorizer = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
    if method in ("lightxml", "cascadexml"):
        tree = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        reranker = Reranker.from_parts(parts, RerankParams(**params["rerank"]))
        heads = Heads(parts["heads"], tree)
        check_trees({"network": heads.tree}, index, stored.path)
        return NetworkEngine(encoder, heads, reranker, index, tree)
    if method == "xtransformer":
        learnt = parts["score"].config["learnt"]
        ranker = ClusterRanker(
            Ranker.from_state(parts["ranker"]),
            RankingParams.from_dict(params["ranking"], "ranking"),
            None if learnt is None else LearntScore(**learnt),
        )
        heads = Heads(parts["heads"], None)
        return MatcherEngine(encoder, heads, ranker, Tfidf.from_state(parts["tfidf"]), index)
    if method == "neighbours":
        memory = Memory.from_state(parts["memory"], terms=vectorizer is not None, vectors=True)
        memory.check_fits(len(index), encoder.width)
        voting = VotingParams(**params["voting"])
        return NeighboursEngine(encoder, memory, voting, vectorizer, index)
    if method == "dual":
        vectors = label_vectors(parts["towers"], len(index), encoder.width)
        return TowersEngine(encoder, vectors, params["towers"]["temperature"], index)
    if method not in ("xrtransformer", "linear-vectors"):
        raise ModelFormatError(f"an exported {method!r} model is not known to this labelgrove")
    rankers = [Ranker.from_state(parts[f"ranker-{n}"]) for n in range(params.get("n_trees", 1))]
    search, unit_half = SearchParams(**params["search"]), method == "linear-vectors"
    return VectorEngine(encoder, unit_half, rankers, search, vectorizer, index)


def unit_vectors(vectors: Float32) -> DenseBlock:
    """Unit vectors in half precision, which is enough for them."""
    return np.asarray(l2_normalised(vectors).dense, np.float16)
