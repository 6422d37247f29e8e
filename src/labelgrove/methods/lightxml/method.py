"""LightXML (Jiang et al., AAAI 2021): an encoder fine-tuned with dynamic negative sampling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import Params
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.base import (
    check_fitted,
    check_params,
    load_estimator,
    save_estimator,
    training_corpus,
)
from labelgrove.methods.estimator import Estimator
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams, idle_settings
from labelgrove.methods.neural import (
    estimate_memory,
    network_parts,
    network_stage,
    predict_texts,
    report,
    rerank_stage,
    restore_network,
)
from labelgrove.methods.preparation import prepare, tree_stage
from labelgrove.methods.reranking import RerankParams, check_reranking
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.network import MakeHeads, network_from_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.params import LoopParams
from labelgrove.ranking.solver import RankerParams
from labelgrove.scores.predictions import Predictions
from labelgrove.text.tfidf import TfidfParams


class LightXML(Estimator):
    """The last layers of an encoder, read by one head over all labels, or by groups and labels.

    Scores are probabilities of labels (``heads.score``). ``held_out`` is the share of the documents
    that choose the checkpoint; nothing is learnt from them. ``baseline`` trains the linear method,
    too, and reports both on them.
    """

    method: ClassVar[str] = "lightxml"
    groups: ClassVar[dict[str, type[Params]]] = {
        "encoder": EncoderParams,
        "heads": LightXmlParams,
        "training": LoopParams,
        "tfidf": TfidfParams,
        "tree": TreeParams,
        "rerank": RerankParams,
        "ranker": RankerParams,
    }

    def __init__(
        self,
        *,
        encoder: EncoderParams | None = None,
        heads: LightXmlParams | None = None,
        training: LoopParams | None = None,
        tfidf: TfidfParams | None = None,
        tree: TreeParams | None = None,
        rerank: RerankParams | None = None,
        ranker: RankerParams | None = None,
        held_out: float = 0.05,
        baseline: bool = True,
        device: str = "auto",
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.encoder = EncoderParams() if encoder is None else encoder
        self.heads = LightXmlParams() if heads is None else heads
        self.training = LoopParams() if training is None else training
        self.tfidf = TfidfParams() if tfidf is None else tfidf
        self.tree = TreeParams() if tree is None else tree
        self.rerank = RerankParams() if rerank is None else rerank
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
        """Fine-tunes from texts and labels; with a ``run`` folder, goes on where it stopped."""
        check_params(self)
        check_reranking(self.rerank, self.ranker)
        corpus = training_corpus(X, y, index)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        grouped = len(corpus.index) > self.heads.one_head_up_to
        if idle := idle_settings(self.heads, grouped=grouped):
            form = "groups" if grouped else "one head without groups"
            reporter.message(
                f"{', '.join(idle)}: without effect, {len(corpus.index):,} labels get {form} "
                f"(heads.one_head_up_to={self.heads.one_head_up_to})"
            )
        data = prepare(self, corpus, stages)
        depth = data.encoder.depth
        if self.heads.layers > max(depth, LightXmlParams().layers):
            reporter.message(f"heads.layers: the encoder has {depth}, and all of them are read")
        tree = None  # of the groups, or for the ranker alone
        if grouped or self.rerank.enabled:
            tree = tree_stage(
                stages,
                data.features,
                data.learnt_from,
                self.tree,
                seed=self.random_state,
                threads=self.n_jobs,
            )
        groups = tree if grouped else None
        # A large label table is drawn where it is trained.
        heads = self._heads(len(corpus.index), groups, choose_device(self.device))
        trained = network_stage(self, data, heads, {"tree": groups, "heads": self.heads}, stages)
        self.tree_ = groups
        self.network_ = network_from_part(trained, self._heads(len(corpus.index), groups))
        self.story_ = trained.config["story"]
        self._remember(corpus)
        self.reranker_ = rerank_stage(self, data, tree, stages)
        self.report_ = report(self, data, reporter)
        self.timings_ = reporter.timings
        return self

    def _heads(
        self, labels: int, tree: LabelTree | None, device: torch.device | None = None
    ) -> MakeHeads:
        def make(encoder: Encoder) -> tuple[torch.nn.Module, Sequence[int]]:
            layers = min(self.heads.layers, encoder.depth)
            params = LightXmlParams(**self.heads.get_params() | {"layers": layers})
            table = None
            if tree is not None and labels >= params.row_table_from:
                table = RowTable(labels, params.bottleneck, device=device)
            heads = LightXmlNet(encoder.width, labels, tree, params, table=table)
            return heads, range(-layers, 0)

        return make

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        return predict_texts(self, X, k, mask=mask, threads=threads)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes of main memory that fitting will need at its peak, a cautious guess."""
        one_head = len(corpus.index) <= self.heads.one_head_up_to
        return estimate_memory(self, corpus, layers=self.heads.layers if one_head else 1)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file, the encoder included."""
        check_fitted(self)
        save_estimator(self, path, network_parts(self), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.tree_ = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        restore_network(model, parts, model._heads(len(model.index_), model.tree_))
        return cast(Self, model)
