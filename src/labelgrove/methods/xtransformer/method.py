"""X-Transformer (Chang et al., KDD 2020): clusters of labels, a neural matcher, linear rankers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import Params
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.part import Part
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import (
    check_fitted,
    check_params,
    load_estimator,
    save_estimator,
    texts_of,
    training_corpus,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.neural import (
    comparison,
    estimate_memory,
    prediction_runner,
)
from labelgrove.methods.preparation import Prepared, measured, prepare
from labelgrove.methods.xtransformer.indexing import IndexingParams
from labelgrove.methods.xtransformer.matching import (
    BYTES_PER_VECTOR,
    indexed_labels,
    match,
    matcher_stage,
    matching_stage,
    stored_matcher,
)
from labelgrove.methods.xtransformer.net import MatcherParams
from labelgrove.methods.xtransformer.ranking import (
    ClusterRanker,
    LearntScore,
    Matched,
    RankingParams,
    check_ranking,
    ranker_features,
    train_cluster_ranker,
)
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import network_part
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import Tfidf, TfidfParams


class XTransformer(Estimator):
    """An encoder finds the clusters of labels that a text needs; linear rankers order their labels.

    ``indexing`` says what labels are clustered by, ``ranking`` what the rankers read and how both
    margins become a score, ``ranker.negatives`` what a label learns from. One model is one indexing
    and one encoder; the paper's nine are an ensemble of such models.
    ``held_out`` is the share of the documents that choose the checkpoint; nothing is learnt from
    them but the two weights of ``ranking.combine="learnt"``. ``baseline`` trains the linear method,
    too, and reports both on them.
    """

    method: ClassVar[str] = "xtransformer"
    groups: ClassVar[dict[str, type[Params]]] = {
        "encoder": EncoderParams,
        "indexing": IndexingParams,
        "heads": MatcherParams,
        "training": LoopParams,
        "tfidf": TfidfParams,
        "ranking": RankingParams,
        "ranker": RankerParams,
    }

    def __init__(
        self,
        *,
        encoder: EncoderParams | None = None,
        indexing: IndexingParams | None = None,
        heads: MatcherParams | None = None,
        training: LoopParams | None = None,
        tfidf: TfidfParams | None = None,
        ranking: RankingParams | None = None,
        ranker: RankerParams | None = None,
        held_out: float = 0.05,
        baseline: bool = True,
        device: str = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.encoder = EncoderParams() if encoder is None else encoder
        self.indexing = IndexingParams() if indexing is None else indexing
        self.heads = MatcherParams() if heads is None else heads
        self.training = LoopParams() if training is None else training
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.ranking = RankingParams() if ranking is None else ranking
        self.ranker = RankerParams() if ranker is None else ranker
        self.held_out = held_out
        self.baseline = baseline
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        """Indexes, fine-tunes and ranks; with a ``run`` folder, goes on where it stopped."""
        check_params(self)
        corpus = training_corpus(X, y, index)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        data = prepare(self, corpus, stages)
        check_ranking(self.ranking, self.ranker, held_out=data.held_out is not None)
        tree = indexed_labels(self, data, stages)
        network, self.story_ = matcher_stage(self, data, tree, stages)
        matched = matching_stage(
            self, data.tokens, network, stages, at_least=self.ranking.clusters_kept
        )
        ranker = self._train_ranker(data, tree, matched, stages)
        self.network_ = network
        self.vectorizer_ = data.features.vectorizer
        self.ranker_ = ClusterRanker(ranker, self.ranking)
        self._remember(corpus)
        self.report_ = self._held_out_report(data, stages)
        self.timings_ = reporter.timings
        return self

    def _train_ranker(
        self, data: Prepared, tree: LabelTree, matched: Matched, stages: Stages
    ) -> Ranker:
        def compute(progress: Any) -> Part:
            return train_cluster_ranker(
                ranker_features(data.features.rows, matched.vectors, self.ranking),
                data.learnt_from.labels,
                tree,
                matched,
                self.ranking,
                self.ranker,
                seed=self.random_state,
                threads=self.n_jobs,
                progress=progress.update,
            ).state()

        inputs = {
            "tfidf": stages.key("tfidf"),
            "matching": stages.key("matching"),
            "clusters": stages.key("clusters"),
            "labels": data.learnt_from.labels,
            "reads": [self.ranking.features, self.ranking.scale],
            "kept": self.ranking.clusters_kept if "man" in self.ranker.negatives else None,
            "ranker": self.ranker,
            "seed": self.random_state,
        }
        return Ranker.from_state(stages("ranker", inputs, compute))

    def _held_out_report(self, data: Prepared, stages: Stages) -> dict[str, Any]:
        """This method beside the linear one on the held-out part, where there is one."""
        if data.held_out is None or data.held_out_tokens is None:
            return {}
        threads = self.n_jobs
        matched = matching_stage(
            self,
            data.held_out_tokens,
            self.network_,
            stages,
            at_least=self.ranker_.clusters_for(10),
            part="held-out-",
        )
        assert data.held_out.texts is not None
        terms = self.vectorizer_.transform(data.held_out.texts)
        if self.ranking.combine == "learnt":
            self.ranker_.learn(terms, matched, data.held_out.labels, threads=threads)
        found = self.ranker_.best_labels(terms, matched, 10, threads=threads)
        kind = self.ranking.score_kind
        found_labels = Predictions(*found, self.index_, kind)
        ours = measured(found_labels, data.held_out, data.learnt_from)
        stages.reporter.message(comparison(self.method, ours, data.linear))
        recall = [self.ranker_.recall(matched, data.held_out.labels)]
        return {self.method: ours, "linear": data.linear, "shortlist_recall": recall}

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        texts = texts_of(self, X)
        encoder = self.network_.encoder
        tokens = tokenize(texts, encoder, encoder.max_tokens, threads=threads)
        runner = prediction_runner(self)
        most = self.ranker_.clusters_for(k, mask)
        matched = match(runner, tokens, most, mask=self.ranker_.cluster_mask(mask))
        terms = self.vectorizer_.transform(texts)
        found = self.ranker_.best_labels(terms, matched, k, mask=mask, threads=threads)
        return Predictions(*found, self.index_, self.ranking.score_kind)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes of main memory that fitting will need at its peak, a cautious guess."""
        return estimate_memory(self, corpus) + BYTES_PER_VECTOR * len(corpus)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file, the encoder included."""
        check_fitted(self)
        learnt = self.ranker_.learnt
        parts = {
            "network": network_part(self.network_, self.story_, self.report_),
            "tfidf": self.vectorizer_.state(),
            "ranker": self.ranker_.ranker.state(),
            "score": Part({"learnt": None if learnt is None else asdict(learnt)}),
        }
        save_estimator(self, path, parts, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.device = "auto"  # whatever it was trained on
        ranker = Ranker.from_state(parts["ranker"])
        learnt = parts["score"].config["learnt"]
        model.ranker_ = ClusterRanker(
            ranker, model.ranking, None if learnt is None else LearntScore(**learnt)
        )
        model.network_ = stored_matcher(parts["network"], model.heads)
        model.vectorizer_ = Tfidf.from_state(parts["tfidf"])
        model.story_ = parts["network"].config["story"]
        model.report_ = parts["network"].config["report"]
        return cast(Self, model)
