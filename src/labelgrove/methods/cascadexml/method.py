"""CascadeXML (Kharbanda et al., NeurIPS 2022): all resolutions of a label tree learnt at once."""

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
from labelgrove.methods.cascadexml.net import CascadeNet
from labelgrove.methods.cascadexml.params import (
    CascadeParams,
    cascade_layers,
    cascade_tree_params,
    idle_settings,
)
from labelgrove.methods.estimator import Estimator
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


class CascadeXML(Estimator):
    """Clusters of labels read an encoder's middle layers, labels its last; each level shortlists.

    ``tree`` says what labels are clustered by; the widths of its levels come from ``heads``.
    Scores are probabilities (see ``heads.score``).
    ``held_out`` is the share of the documents that choose the checkpoint; nothing is learnt from
    them. ``baseline`` trains the linear method, too, and reports both on them.
    """

    method: ClassVar[str] = "cascadexml"
    groups: ClassVar[dict[str, type[Params]]] = {
        "encoder": EncoderParams,
        "heads": CascadeParams,
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
        heads: CascadeParams | None = None,
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
        self.heads = CascadeParams() if heads is None else heads
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
        shape = cascade_tree_params(len(corpus.index), self.heads, self.tree)
        reporter = Reporter(callbacks)
        stages = Stages(reporter, run)
        if idle := idle_settings(self.heads, len(corpus.index)):
            few = f"{len(corpus.index):,} labels get no clusters"
            reporter.message(f"{', '.join(idle)}: without effect, {few}")
        data = prepare(self, corpus, stages)
        tree = tree_stage(
            stages,
            data.features,
            data.learnt_from,
            shape,
            seed=self.random_state,
            threads=self.n_jobs,
        )
        # A large label table is drawn where it is trained.
        heads = self._heads(tree, choose_device(self.device))
        trained = network_stage(self, data, heads, {"tree": tree, "heads": self.heads}, stages)
        self.tree_ = tree
        self.network_ = network_from_part(trained, self._heads(tree))
        self.story_ = trained.config["story"]
        self._remember(corpus)
        self.reranker_ = rerank_stage(self, data, tree, stages)
        self.report_ = report(self, data, reporter)
        self.timings_ = reporter.timings
        return self

    def _heads(self, tree: LabelTree, device: torch.device | None = None) -> MakeHeads:
        def make(encoder: Encoder) -> tuple[torch.nn.Module, Sequence[int]]:
            levels = cascade_layers(encoder.depth, len(tree.widths), self.heads.layers)
            table = None
            if tree.labels >= self.heads.row_table_from:
                table = RowTable(tree.labels, encoder.width, bias=True, device=device)
            heads = CascadeNet(encoder.width, tree, self.heads, table=table)
            return heads, [layer for level in levels for layer in level]

        return make

    def _best_labels(
        self, X: Any, k: int, *, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        return predict_texts(self, X, k, mask=mask, threads=threads)

    def estimate_memory(self, corpus: Corpus) -> int:
        """Bytes of main memory that fitting will need at its peak, a cautious guess."""
        return estimate_memory(self, corpus)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes a model folder that needs no other file, the encoder included."""
        check_fitted(self)
        save_estimator(self, path, network_parts(self), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Self:
        """Reads a model folder that :meth:`save` wrote."""
        model, parts = load_estimator(cls, path, **options)
        model.tree_ = LabelTree.from_state(parts["tree"])
        restore_network(model, parts, model._heads(model.tree_))
        return cast(Self, model)
