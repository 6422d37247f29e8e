"""The linear method on text vectors that it makes itself: the baselines of the neural papers.

Vectors come from an encoder as it is, or from one that was fine-tuned as X-Transformer's matcher
is; they are used alone or beside tf-idf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, Progress, Table
from labelgrove.core.params import AutoFloat, Params, param
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, Strings
from labelgrove.data.features import DenseBlock, Features
from labelgrove.data.inputs import check_texts_alone, with_texts
from labelgrove.disk.stages import Stages
from labelgrove.labels.tree import TreeParams
from labelgrove.methods import neural, preparation
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cost_estimate import CostEstimate, linear_space
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.inputs import scaled
from labelgrove.methods.linear.method import Linear
from labelgrove.methods.networks import network_pieces
from labelgrove.methods.searching import best_labels, tree_cost_estimate, tree_growth
from labelgrove.methods.settings import Group, LabelTexts, check_count, group
from labelgrove.methods.terms import FeatureChoice, choose_features, terms_stage, without_matrix
from labelgrove.methods.updating.growth import GrowthView
from labelgrove.methods.xtransformer import matching
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.network import Network, embed, network_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.tfidf import Tfidf, TfidfParams

Embedder = Encoder | Network
# What makes vectors, the documents to learn from, and theirs.
Embedded: TypeAlias = tuple[Embedder, Corpus, DenseBlock]


@dataclass
class VectorParams(Params):
    """Where text vectors come from."""

    kind: Literal["pretrained", "fine-tuned"] = param(
        "pretrained",
        help="an encoder as it comes, or one that learnt clusters of the labels first (see the "
        "tables indexing, heads and training)",
    )
    beside_tfidf: bool = param(True, help="tf-idf features besides; false = vectors alone")


@dataclass(kw_only=True, eq=False, repr=False)
class LinearVectors(Model):
    """A linear model, such as Parabel's, on text vectors with or without tf-idf.

    ``held_out`` documents choose the checkpoint if an encoder is fine-tuned; otherwise all
    documents are learnt from. Scores are those of the linear method.
    """

    method: ClassVar[str] = "linear-vectors"

    workers: ClassVar[Workers] = "processes"

    vectors: Group[VectorParams] = group(VectorParams)
    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    indexing: Group[matching.IndexingParams] = group(matching.IndexingParams)
    heads: Group[matching.MatcherParams] = group(matching.MatcherParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
    tree: Group[TreeParams] = group(TreeParams)
    ranker: Group[RankerParams] = group(RankerParams)
    search: Group[SearchParams] = group(SearchParams)
    n_trees: int = 1
    features: FeatureChoice = "auto"
    label_texts: LabelTexts = None
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    fit = neural.fit
    estimate_memory = neural.estimate_memory
    _best_labels = best_labels

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        check_texts_alone(self.method, corpus)
        tuned = self.vectors.kind == "fine-tuned"
        make = self._from_fine_tuned if tuned else self._from_pretrained
        embedder, learnt_from, dense = make(corpus, stages)
        rows, vectorizer, read = None, None, without_matrix(corpus)
        if self.vectors.beside_tfidf:
            source = choose_features(self.features, corpus).source
            stage = terms_stage(stages, learnt_from, self.tfidf, source)
            rows, vectorizer, read = stage.value.rows, stage.value.reader.tfidf, corpus
        features = Features(rows, dense)
        linear = Linear(
            tree=self.tree,
            ranker=self.ranker,
            search=self.search,
            n_trees=self.n_trees,
            sparse_norm=None,  # rows are scaled already, or are tf-idf as its settings say
            random_state=self.random_state,
        ).fit(
            Corpus(None, learnt_from.labels, corpus.index, features=features),
            callbacks=stages.reporter.callbacks,
            run=stages.run,
        )
        self.embedder_ = embedder
        self.vectorizer_ = vectorizer
        self.rankers_ = linear.rankers()
        self.remember(read, {**stages.reporter.timings, **linear.timings_})
        self.facts_ = replace(self.facts_, width=features.width)

    def _from_pretrained(self, corpus: Corpus, stages: Stages) -> Embedded:
        encoder = load_encoder(self.encoder)
        vectors = stages(
            "vectors",
            embed_texts,
            encoder=stages.derive(lambda: encoder, content=EncoderContent(self.encoder)),
            tokens=preparation.tokens_stage(stages, "tokens", corpus.texts, encoder),
            precision=self.training.precision,
        )
        return encoder, corpus, vectors.value.arrays["dense"]

    def _from_fine_tuned(self, corpus: Corpus, stages: Stages) -> Embedded:
        data = preparation.prepare(self, corpus, stages, baseline=False)  # it is a baseline itself
        training = matching.ClusterMatcher(data, stages, self, self.indexing, self.heads)
        matcher = training.train(training.index_labels())
        self.history_ = matcher.value.history
        vectors = training.match(matcher, data.tokens).value.vectors
        return matcher.value.network, data.learnt_from, vectors

    def resolve_defaults(self, corpus: Corpus) -> Self:
        return neural.resolve_defaults(self, corpus)

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features:
        documents, terms = with_texts(self.method, X), None
        assert documents.texts is not None
        if self.vectors.beside_tfidf:
            terms = self.term_reader().rows(documents)
        return scaled(Features(terms, self._vectors_of(documents.texts)), "l2")

    def _vectors_of(self, texts: Strings) -> DenseBlock:
        embedder = self.embedder_
        encoder = embedder.encoder if isinstance(embedder, Network) else embedder
        tokens = tokenize(texts, encoder, encoder.max_tokens)
        if isinstance(embedder, Network):
            runner = neural.make_runner(embedder, self.training.precision)
            return matching.match(runner, tokens, 1).vectors
        precision = self.training.precision
        return embed_texts(embedder, tokens, precision).arrays["dense"]

    def growth(self) -> GrowthView:
        return tree_growth(self, self.tree.max_leaf_size, reads_names=not self.facts_.given)

    def exported_parts(self) -> ExportedParts:
        if isinstance(self.embedder_, Network):
            return network_pieces(self.embedder_, self._ranking_parts())
        return ExportedParts(self.embedder_, (-1,), self._ranking_parts())

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        """Vectors, trees and rankers."""
        fine_tuned = 1.0 if self.vectors.kind == "fine-tuned" else 0.0
        return replace(
            tree_cost_estimate(self, labels, trees=self.n_trees),
            encoder=neural.encoder_work(self, documents, trainings=fine_tuned, reads=1),
            has_vectors=True,
        )

    def search_space(self) -> Table:
        return linear_space(self.tree) | {"ranker.dense_C": [None, 0.3, 1.0, 3.0, 10.0]}

    def _ranking_parts(self) -> dict[str, Part]:
        parts = {f"ranker-{n}": ranker.state() for n, ranker in enumerate(self.rankers_)}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def parts(self) -> dict[str, Part]:
        if isinstance(self.embedder_, Network):
            embedder = network_part(self.embedder_, self.history_ or {})
        else:
            embedder = self.embedder_.state()
        return {"embedder": embedder} | self._ranking_parts()

    def _restore(self, parts: Mapping[str, Part]) -> None:
        stored = parts["embedder"]
        if self.vectors.kind == "pretrained":
            self.embedder_ = Encoder.from_state(stored)
        else:
            self.embedder_ = matching.stored_matcher(stored, self.heads)
            self.history_ = stored.config["story"]
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        check_count("n_trees", self.n_trees)
        self.rankers_ = [Ranker.from_state(parts[f"ranker-{n}"]) for n in range(self.n_trees)]


def embed_texts(
    encoder: Encoder, tokens: Tokens, precision: str, *, progress: Progress | None = None
) -> Part:
    """Unit vectors of texts by an encoder as it is; half precision is enough for them."""
    encoder = encoder.to(choose_device())
    vectors = embed(encoder, tokens, precision=precision, progress=progress)
    return Part({}, {"dense": np.asarray(vectors, np.float16)})
