"""X-Transformer (Chang et al., KDD 2020): clusters of labels, a neural matcher, linear rankers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, Table
from labelgrove.core.arrays import CSR
from labelgrove.core.params import AutoFloat
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.features import Features
from labelgrove.data.inputs import with_texts
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.evaluation.predictions import Predictions, ScoreKind
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import TreeParams
from labelgrove.methods import neural, preparation
from labelgrove.methods.base import Model, Workers
from labelgrove.methods.cost_estimate import C_SPACE, TRAINING_SPACE, CostEstimate
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.networks import network_pieces
from labelgrove.methods.settings import Group, LabelTexts, group
from labelgrove.methods.terms import FeatureChoice, without_matrix
from labelgrove.methods.updating.growth import GrowthView, Read
from labelgrove.methods.xtransformer import matching
from labelgrove.methods.xtransformer import ranking as ordering
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import network_part
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.beam import transformed
from labelgrove.ranking.growing import Routed
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams, refuse_idle
from labelgrove.text.tfidf import Tfidf, TfidfParams


@dataclass(kw_only=True, eq=False, repr=False)
class XTransformer(Model):
    """An encoder finds the clusters of labels that a text needs; linear rankers order their labels.

    ``indexing`` says what labels are clustered by, ``ranking`` what the rankers read,
    ``ranker.negatives`` what a label learns from. One model is one indexing and one encoder; the
    paper's nine are an ensemble of such models.
    ``methods/preparation.py`` explains the settings that all methods with an encoder have.
    """

    method: ClassVar[str] = "xtransformer"

    workers: ClassVar[Workers] = "processes"

    encoder: Group[EncoderParams] = group(EncoderParams)
    training: Group[TrainingParams] = group(TrainingParams)
    indexing: Group[matching.IndexingParams] = group(matching.IndexingParams)
    heads: Group[matching.MatcherParams] = group(matching.MatcherParams)
    tfidf: Group[TfidfParams] = group(TfidfParams)
    ranking: Group[ordering.RankingParams] = group(ordering.RankingParams)
    ranker: Group[RankerParams] = group(RankerParams)
    features: FeatureChoice = "auto"
    label_texts: LabelTexts = None
    held_out: AutoFloat = "auto"  # type: ignore[assignment]
    baseline: bool = True
    device: str = "auto"
    random_state: int = 0
    n_jobs: int | None = None

    fit = neural.fit
    estimate_memory = neural.estimate_memory

    def _train(self, corpus: Corpus, stages: Stages) -> None:
        data = preparation.prepare(self, corpus, stages, baseline=self.baseline)
        reason = "all documents of a cluster count the same"
        refuse_idle(self.ranker, "ranker", ["mined_weight"], reason)
        training = matching.ClusterMatcher(data, stages, self, self.indexing, self.heads)
        tree = training.index_labels()
        matcher = training.train(tree)
        matched = training.match(matcher, data.tokens, at_least=self.ranking.clusters_kept)
        read = self.ranking.only("features", "scale")
        mines = "man" in self.ranker.negatives
        ranker = stages(
            "ranker",
            ordering.train_cluster_ranker,
            features=stages.derive(
                lambda: ordering.ranker_features(
                    data.terms.value.rows, matched.value.vectors, read
                ),
                terms=data.terms,
                matched=matched,
                params=read,
            ),
            labels=data.learnt_from.labels,
            tree=tree,
            matched=matched,
            params=self.ranking.only("clusters_kept") if mines else ordering.RankingParams(),
            ranker=self.ranker,
            seed=self.random_state,
        )
        self.network_, self.history_ = matcher.value
        self.vectorizer_ = data.terms.value.reader.tfidf
        self.orderer_ = ordering.ClusterRanker(ranker.value, self.ranking)
        known = without_matrix(corpus) if self.ranking.features == "neural" else corpus
        self.remember(known, stages.reporter.timings)
        self.report_ = self._held_out_report(data, training, matcher)

    def _held_out_report(
        self,
        data: preparation.Prepared,
        training: matching.ClusterMatcher,
        matcher: CachedResult[matching.TrainedMatcher],
    ) -> Table:
        """This method beside the linear one on the held-out part, if there is one."""
        if data.held_out is None or data.held_out_tokens is None:
            return {}
        matched = training.match(
            matcher, data.held_out_tokens, at_least=self.orderer_.clusters_for(10), part="held-out-"
        ).value
        terms = data.terms.value.reader.rows(data.held_out)
        best = self.orderer_.best_labels(terms, matched, 10)
        predictions = Predictions(*best, self.index_, self.score_kind)
        recall = [self.orderer_.recall(matched, data.held_out.labels)]
        return neural.compared(self.method, data, training.stages, predictions, recall)

    def resolve_defaults(self, corpus: Corpus) -> Self:
        return neural.resolve_defaults(self, corpus)

    def encoders(self) -> list[EncoderParams]:
        """The one that is fine-tuned, and the one that labels' vectors come from."""
        own = self.indexing.text_encoder
        if own is None:
            return [self.encoder]
        return [self.encoder, EncoderParams(**self.encoder.get_params() | {"encoder": own})]

    @property
    def score_kind(self) -> ScoreKind:
        return self.orderer_.score_kind if self.fitted else "margin"

    def rankers(self) -> list[Ranker]:
        return [self.orderer_.ranker]

    def _matched(
        self, X: DocumentInput, most: int, mask: LabelMask | None = None
    ) -> tuple[CSR, ordering.Matched]:
        """Sparse rows of documents, and what the matcher makes of their texts."""
        documents = with_texts(self.method, X)
        assert documents.texts is not None
        encoder = self.network_.encoder
        tokens = tokenize(documents.texts, encoder, encoder.max_tokens)
        runner = neural.make_runner(self.network_, self.training.precision)
        matched = matching.match(runner, tokens, most, mask=mask)
        return self.term_reader().rows(documents), matched

    def _best_labels(
        self, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
    ) -> Predictions:
        most = self.orderer_.clusters_for(k, mask)
        clusters = self.orderer_.cluster_mask(mask)
        terms, matched = self._matched(X, most, clusters)
        best = self.orderer_.best_labels(terms, matched, k, mask=mask)
        return Predictions(*best, self.index_, self.score_kind)

    def read(self, X: DocumentInput, *, dense: DenseInput = None) -> Features:
        terms, matched = self._matched(X, 1)
        return ordering.ranker_features(terms, np.asarray(matched.vectors), self.ranking)

    def growth(self) -> GrowthView:
        ranker = self.orderer_.ranker
        mined = self.ranker.mined_nodes
        mined = mined if isinstance(mined, int) else self.ranking.clusters_kept

        def read(documents: DocumentInput) -> Read:
            most = max(mined, self.ranking.clusters_kept)
            terms, matched = self._matched(documents, most)
            features = ordering.ranker_features(terms, np.asarray(matched.vectors), self.ranking)
            scores = transformed(matched.margins, "sigmoid")
            return Read(features, [Routed(matched.clusters, scores)], mined)

        def replaced(rankers: list[Ranker]) -> Table:
            return {
                "orderer_": ordering.ClusterRanker(rankers[0], self.ranking, self.orderer_.learnt)
            }

        sizes = np.diff(ranker.tree.children(len(ranker.tree.parents) - 1))
        leaf_size = max(1, round(float(np.mean(sizes))))
        reads_names = not self.facts_.given
        return GrowthView([ranker], self.ranker, leaf_size, read, replaced, reads_names)

    def exported_parts(self) -> ExportedParts:
        weight, bias = self.network_.heads.output_layer()
        config = {"reads": "single", "sigmoid": False, "probabilities": False, "kept": None}
        heads = Part(config, {"tables/0/weight": weight, "tables/0/bias": bias})
        return network_pieces(self.network_, {"heads": heads} | self._ranking_parts())

    def cost_estimate(self, documents: int, labels: int) -> CostEstimate:
        indexing = self.indexing
        twice = indexing.vectors == "pifa-neural" and indexing.embeddings == "fine-tuned"
        passes = 2 if twice else 1
        return CostEstimate(
            self.tfidf,
            TreeParams(),
            self.ranker,
            (matching.cluster_count(labels, indexing.clusters), labels),
            encoder=neural.encoder_work(self, documents, trainings=passes, reads=passes),
            has_vectors=True,
        )

    def search_space(self) -> Table:
        heads = {"heads.dropout": {"low": 0.0, "high": 0.5}}
        return TRAINING_SPACE | C_SPACE | heads | {"ranking.clusters_kept": [5, 10, 20, 40]}

    def _ranking_parts(self) -> dict[str, Part]:
        score = Part({"learnt": self.orderer_.learnt})
        parts = {"ranker": self.orderer_.ranker.state(), "score": score}
        if self.vectorizer_ is not None:
            parts["tfidf"] = self.vectorizer_.state()
        return parts

    def parts(self) -> dict[str, Part]:
        network = network_part(self.network_, self.history_ or {}, dict(self.report_))
        return {"network": network} | self._ranking_parts()

    def _restore(self, parts: Mapping[str, Part]) -> None:
        ranker, learnt = Ranker.from_state(parts["ranker"]), parts["score"].config["learnt"]
        self.orderer_ = ordering.ClusterRanker(ranker, self.ranking, learnt)
        self.network_ = matching.stored_matcher(parts["network"], self.heads)
        self.vectorizer_ = Tfidf.from_state(parts["tfidf"]) if "tfidf" in parts else None
        self.history_ = parts["network"].config["story"]
        self.report_ = parts["network"].config["report"] or {}
