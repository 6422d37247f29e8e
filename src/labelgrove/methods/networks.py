"""Methods whose labels are scored by a network, with or without a ranker over its shortlists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core.arrays import CSR
from labelgrove.core.params import fixed
from labelgrove.core.part import Part
from labelgrove.core.processes import process_count
from labelgrove.data.corpus import Corpus
from labelgrove.data.documents import Documents
from labelgrove.data.inputs import with_texts
from labelgrove.disk.stages import Made, Stages
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods.explaining.explanation import Paths, Question
from labelgrove.methods.explaining.networks import network_paths
from labelgrove.methods.interface import Pieces
from labelgrove.methods.name_rows import named_labels
from labelgrove.methods.neural import NeuralEstimator, estimate_memory
from labelgrove.methods.outline import Outline
from labelgrove.methods.preparation import Prepared, ReturnsHeldOut, linear_stage
from labelgrove.methods.reranking import (
    Reranker,
    RerankParams,
    check_reranking,
    proposed,
    reranker_features,
    shortlist_matrix,
)
from labelgrove.methods.settings import Group, group
from labelgrove.methods.spaces import RERANK_SPACE, TRAINING_SPACE
from labelgrove.methods.terms import Terms, without_matrix
from labelgrove.methods.training import best_labels, make_runner, train_heads
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.network import MakeHeads, Network, network_from_part, network_part
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams, Start


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkEstimator(ReturnsHeldOut, NeuralEstimator):
    """What LightXML and CascadeXML share; their files have the heads and ``fit``.

    ``rerank`` is a linear ranker over the shortlists of the network and of the linear method, with
    settings in ``ranker``.
    With ``return_held_out`` this ranker also learns from the held-out documents, which then only
    choose the network's checkpoint, and nothing is reported on them. ``baseline`` also trains the
    linear method and reports both on the held-out documents.
    """

    tree: Group[TreeParams] = group(TreeParams)
    rerank: Group[RerankParams] = group(RerankParams)
    # The network was fitted to the documents that the ranker learns from: its vectors of these say
    # more about their labels than those of new documents do, so they count less than the terms.
    ranker: Group[RankerParams] = group(RankerParams, dense_C=0.1)
    return_held_out: bool = False
    baseline: bool = True

    def _check(self) -> None:
        if vars(self)["heads"].sharded and process_count() == 1:
            raise ConfigError(
                "heads.sharded: one process holds all labels; start several (torchrun "
                "--nproc_per_node 2 -m labelgrove train ...), or leave it unset"
            )
        check_reranking(self.rerank, self.ranker)
        self._check_returned()
        if self.return_held_out and not self.reranks:
            raise ConfigError(
                "return_held_out: there is no ranker to return the documents to; set "
                "rerank.enabled, or held_out=0 to learn from all documents"
            )

    @property
    def reranks(self) -> bool:
        """Whether a ranker on tf-idf orders the shortlists."""
        return bool(fixed(self.rerank.enabled, True))

    @property
    def _proposes(self) -> bool:
        """Whether the linear method adds to the shortlists."""
        return self.reranks and self.rerank.linear

    def _heads(self, labels: int, tree: LabelTree | None) -> MakeHeads:
        """The heads that the settings describe."""
        raise NotImplementedError

    def _exported_heads(self) -> dict[str, Part]:
        """The heads, and the tree they search, as exported models read them."""
        raise NotImplementedError

    def _train(
        self,
        data: Prepared,
        stages: Stages,
        heads: MakeHeads,
        *,
        searched: LabelTree | None,
        tree: Made[LabelTree] | None,
    ) -> None:
        """Trains the network, then the ranker over its shortlists, and measures both."""
        trained = self._trained(data, stages, heads)
        network = self._network(trained.value, heads)
        reranker = None
        if self.reranks:
            seen = data.for_ranker(stages, returned=self.return_held_out)
            more: dict[str, Any] = {}  # other keys stay as they are
            if self.rerank.linear:
                more["linear"] = data.linear().ranker or linear_stage(
                    stages, seen.terms, seen.labels, threads=self.n_jobs
                )
            ranker = stages(
                "rerank",
                train_reranker,
                network=Made(lambda: network, trained.key),
                tokens=seen.tokens,
                terms=seen.terms,
                labels=seen.labels,
                tree=tree,
                params=self.rerank.only("shortlist", "start", "normalise"),
                ranker=self.ranker,
                precision=self.training.precision,
                seed=self.random_state,
                device=self.device,
                threads=self.n_jobs,
                **more,
            ).value
            linear = more["linear"].value if more else None
            reranker = Reranker(data.terms.value.reader, ranker, self.rerank, linear)
        self.tree_: LabelTree | None = searched
        self.network_: Network = network
        self.reranker_: Reranker | None = reranker
        self.story_ = trained.value.config["story"]
        # Only the ranker reads a given matrix when the model predicts.
        read = data.corpus if self.reranks else without_matrix(data.corpus)
        self._remember(read, stages.reporter.timings)
        self.report_ = self._report(data, stages)

    def _trained(self, data: Prepared, stages: Stages, heads: Any) -> Made[Part]:
        """The trained network, as :meth:`_network` reads it."""
        more: dict[str, Any] = {}  # other keys stay as they are
        if heads.params.name_logit:
            index, encoder = data.learnt_from.index, data.encoder.value
            more["names"] = named_labels(stages, index, encoder, threads=self.n_jobs)
        if heads.params.divides and process_count() > 1:
            more["divided"] = True
        return stages(
            "network",
            train_heads,
            examples=data.examples(stages),
            encoder=data.encoder,
            heads=heads,
            training=self.training,
            seed=self.random_state,
            device=self.device,
            reporter=stages.reporter,
            **more,
        )

    def _network(self, part: Part, heads: MakeHeads) -> Network:
        return network_from_part(part, heads)

    def _report(self, data: Prepared, stages: Stages) -> dict[str, Any]:
        """The method beside the linear one on the held-out part; says so when it is worse."""
        if data.held_out is None or data.held_out_tokens is None or self.return_held_out:
            return {}
        tokens = data.held_out_tokens.value
        predictions = self._ranked(data.held_out, tokens, 10, mask=None, threads=self.n_jobs)
        recall = self._runner(self.network_).shortlist_recall(tokens, data.held_out.labels)
        return self._compared(data, stages, predictions, recall)

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        documents = with_texts(self.method, X)
        assert documents.texts is not None
        encoder = self.network_.encoder
        tokens = tokenize(documents.texts, encoder, encoder.max_tokens, threads=threads)
        return self._ranked(documents, tokens, k, mask=mask, threads=threads)

    def _ranked(
        self,
        documents: Documents | Corpus,
        tokens: Tokens,
        k: int,
        *,
        mask: LabelMask | None,
        threads: int | None,
    ) -> Predictions:
        """The k best labels by the network and, if there is one, the ranker over its shortlist."""
        runner = self._runner(self.network_)
        if self.reranker_ is None:
            return best_labels(runner, tokens, self.index_, k=k, mask=mask)
        most = min(k, len(self.index_ if mask is None else mask))
        columns, scores = self.reranker_.best_labels(
            runner, documents, tokens, most, mask=mask, threads=threads
        )
        counts = (columns >= 0).sum(axis=1).astype(np.int32)
        return Predictions(columns, scores, counts, self.index_, "product")

    def trees(self) -> dict[str, LabelTree]:
        """The tree of the labels' groups or clusters."""
        return {} if self.tree_ is None else {"tree": self.tree_}

    def paths(self, question: Question) -> Paths:
        """The network's own way to the label, and the reranker's."""
        options: dict[str, Any] = {}
        if self.reranker_ is not None:
            params = self.reranker_.params
            options = {"share": params.share, "unit": params.normalise}
            options |= {"ranker": self.reranker_.ranker, "terms": self.reranker_.terms}
        device = choose_device(self.device)
        return network_paths(self.network_, question, device=device, tree=self.tree_, **options)

    def pieces(self) -> Pieces:
        """The encoder for the graph; heads and ranker beside it."""
        parts = self._exported_heads()
        if self.reranker_ is not None:
            parts |= self.reranker_.parts()
        return network_pieces(self.network_, parts)

    def _outline(self, documents: int, widths: tuple[int, ...], *, has_tree: bool) -> Outline:
        return Outline(
            self.tfidf,
            self.tree,
            self.ranker,
            widths,
            has_tree=has_tree,
            has_ranker=self.reranks,
            encoder=self._encoder_work(documents, reads=1.0 if self.reranks else 0.0),
            has_vectors=self.reranks,
            shortlist=self.rerank.shortlist,
        )

    def search_space(self) -> dict[str, Any]:
        """The training, and the reranker if there is one."""
        return TRAINING_SPACE | (RERANK_SPACE if self.reranks else {})

    def _memory(self, corpus: Corpus, **options: int) -> int:
        shortlist = (1 + self._proposes) * self.rerank.shortlist if self.reranks else None
        return estimate_memory(self, corpus, shortlist=shortlist, **options)

    def parts(self) -> dict[str, Part]:
        """The network, its tree, and the ranker over its shortlists."""
        parts = {"network": network_part(self.network_, self.story_ or {}, dict(self.report_))}
        if self.tree_ is not None:
            parts["tree"] = self.tree_.state()
        if self.reranker_ is not None:
            parts |= self.reranker_.parts()
        return parts

    def _restore(self, parts: Mapping[str, Part], folder: Path) -> None:
        self.tree_ = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
        heads = self._heads(len(self.index_), self.tree_)
        self.network_ = self._network(parts["network"], heads)
        self.reranker_ = Reranker.from_parts(parts, self.rerank, self.facts_.given)
        self.story_ = parts["network"].config["story"]
        self.report_ = parts["network"].config["report"] or {}


def train_reranker(
    network: Network,
    tokens: Tokens,
    terms: Terms,
    labels: CSR,
    tree: LabelTree,
    params: RerankParams,
    ranker: RankerParams,
    precision: str,
    seed: int,
    linear: Ranker | None = None,
    *,
    device: str,
    threads: int | None,
) -> Ranker:
    """The ranker that puts the shortlists of a trained network, and of the linear one, in order."""
    runner = make_runner(network, device, precision)
    length = min(params.shortlist, tree.labels)
    more = None if linear is None else proposed(linear, terms.rows, length, threads=threads)
    columns, _, vectors = runner.read(tokens, length, vectors=True, more=more)
    settings, start = ranker.get_params(), None
    if params.start != "none":
        settings["start"] = params.start
        weights, bias = network.heads.output_layer()
        # The layer was trained with longer vectors; this is their mean length.
        scale = np.linalg.norm(vectors, axis=1).mean() if params.normalise else 1.0
        start = Start(weights * scale, bias)
    features = reranker_features(terms.rows, vectors, params)
    del vectors  # large, and the features are a copy
    return train_ranker(
        features,
        labels,
        tree,
        RankerParams(**settings),
        shortlist=shortlist_matrix(columns, tree.labels),
        start=start,
        labels_only=True,
        seed=seed,
        threads=threads,
    )


def network_pieces(network: Network, parts: dict[str, Part]) -> Pieces:
    """A network for export, with what else the model needs."""
    mean, scale = (value.detach().float().cpu().numpy() for value in (network.mean, network.scale))
    return Pieces(network.encoder, network.layers, parts, mean, scale)


def layer_arrays(name: str, layer: Any) -> dict[str, Any]:
    """A layer's weight and bias under names of an exported model's heads."""
    arrays = {"weight": layer.weight, "bias": layer.bias}
    return {
        f"{name}/{key}": value.detach().float().cpu().numpy()
        for key, value in arrays.items()
        if value is not None
    }
