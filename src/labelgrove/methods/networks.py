"""Functions for methods whose labels are scored by a network, with or without a ranker over its
shortlists: LightXML and CascadeXML, whose files have the heads and ``fit``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from labelgrove.core.aliases import DenseInput, DocumentInput, Table, TableView
from labelgrove.core.callbacks import StageTiming
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import Documents, with_texts
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams
from labelgrove.methods import neural, preparation, reranking
from labelgrove.methods.cost_estimate import RERANK_SPACE, TRAINING_SPACE, CostEstimate
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.neural import make_runner, train_heads
from labelgrove.methods.preparation import Neural, Prepared, TrainingExamples
from labelgrove.methods.terms import Terms, without_matrix
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.network import MakeHeads, Network, Runner, network_part
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import NEGATIVE_SETTINGS, RankerParams, refuse_idle

# The network was fitted to the documents that the ranker learns from: its vectors of these say more
# about their labels than those of new documents do, so they count less than the terms.
VECTORS_C = 0.1


class LabelNetwork(Neural, Protocol):
    """What both methods have.

    ``baseline`` also trains the linear method and reports both on the held-out documents.
    ``rerank`` is a linear ranker over the shortlists of the network and of the linear method, with
    settings in ``ranker``.
    """

    baseline: bool
    tree: TreeParams
    rerank: reranking.RerankParams
    index_: LabelIndex
    tree_: LabelTree | None
    network_: Network
    reranker_: reranking.Reranker | None
    history_: TableView | None
    report_: TableView

    def remember(self, corpus: Corpus, timings: Mapping[str, StageTiming]) -> None: ...


def check(model: LabelNetwork) -> None:
    """Refuses settings that contradict each other, before hours of training."""
    if model.rerank.enabled:
        why = "rerank.shortlist selects the negative documents"
        refuse_idle(model.ranker, "ranker", NEGATIVE_SETTINGS, why)


def prepare(model: LabelNetwork, corpus: Corpus, stages: Stages) -> Prepared:
    """The documents; the linear method is trained for the comparison or for its shortlists."""
    linear = model.rerank.proposes
    return preparation.prepare(model, corpus, stages, baseline=model.baseline, linear=linear)


def train_network(
    model: LabelNetwork, data: Prepared, stages: Stages, heads: MakeHeads
) -> CachedResult[Part]:
    """The encoder with these heads, trained together."""
    return stages(
        "network",
        train_heads,
        examples=data.examples(stages),
        encoder=data.encoder,
        heads=heads,
        training=model.training,
        seed=model.random_state,
    )


def rerank(
    model: LabelNetwork,
    data: Prepared,
    stages: Stages,
    network: CachedResult[Network],
    tree: CachedResult[LabelTree] | None,
) -> reranking.Reranker | None:
    """The ranker over the shortlists of a trained network, if the settings ask for it."""
    if not model.rerank.reranks:
        return None
    precision = model.training.precision
    runner = stages.derive(
        lambda: make_runner(network.value, precision), network=network, precision=precision
    )
    more: Table = {}  # other keys stay as they are
    if model.rerank.linear:
        more["linear"] = data.linear().ranker
    ranker = stages(
        "rerank",
        train_reranker,
        runner=runner,
        examples=data.examples(stages),
        terms=data.terms,
        tree=tree,
        params=model.rerank.only("shortlist", "normalise"),
        ranker=model.ranker,
        seed=model.random_state,
        **more,
    ).value
    linear = more["linear"].value if more else None
    return reranking.Reranker(data.terms.value.reader, ranker, model.rerank, linear)


def remember(model: LabelNetwork, data: Prepared, stages: Stages, history: TableView) -> None:
    """Marks the model as fitted, and measures it beside the linear one on the held-out part."""
    model.history_ = history
    # Only the ranker reads a given matrix when the model predicts.
    read = data.corpus if model.rerank.reranks else without_matrix(data.corpus)
    model.remember(read, stages.reporter.timings)
    model.report_ = {}
    if data.held_out is None or data.held_out_tokens is None:
        return
    tokens = data.held_out_tokens.value
    predictions = rank_labels(model, data.held_out, tokens, 10, mask=None)
    runner = make_runner(model.network_, model.training.precision)
    recall = runner.shortlist_recall(tokens, data.held_out.labels)
    model.report_ = neural.compared(model.method, data, stages, predictions, recall)


def best_labels(
    self: LabelNetwork, X: DocumentInput, k: int, *, dense: DenseInput, mask: LabelMask | None
) -> Predictions:
    """The k best labels of documents."""
    documents = with_texts(self.method, X)
    assert documents.texts is not None
    encoder = self.network_.encoder
    tokens = tokenize(documents.texts, encoder, encoder.max_tokens)
    return rank_labels(self, documents, tokens, k, mask=mask)


def rank_labels(
    model: LabelNetwork,
    documents: Documents | Corpus,
    tokens: Tokens,
    k: int,
    *,
    mask: LabelMask | None,
) -> Predictions:
    """The k best labels by the network and, if there is one, the ranker over its shortlist."""
    runner = make_runner(model.network_, model.training.precision)
    if model.reranker_ is None:
        return neural.best_labels(runner, tokens, model.index_, k=k, mask=mask)
    most = min(k, len(model.index_ if mask is None else mask))
    columns, scores = model.reranker_.best_labels(runner, documents, tokens, most, mask=mask)
    counts = (columns >= 0).sum(axis=1).astype(np.int32)
    return Predictions(columns, scores, counts, model.index_, "product")


def cost_estimate(
    model: LabelNetwork, documents: int, widths: tuple[int, ...], *, has_tree: bool = True
) -> CostEstimate:
    """An encoder with heads, and the ranker over its shortlists."""
    reranks = model.rerank.reranks
    return CostEstimate(
        model.tfidf,
        model.tree,
        model.ranker,
        widths,
        has_tree=has_tree,
        has_ranker=reranks,
        encoder=neural.encoder_work(model, documents, reads=1.0 if reranks else 0.0),
        has_vectors=reranks,
        shortlist=model.rerank.shortlist,
    )


def search_space(model: LabelNetwork) -> Table:
    """The training, and the reranker if there is one."""
    return TRAINING_SPACE | (RERANK_SPACE if model.rerank.reranks else {})


def parts(self: LabelNetwork) -> dict[str, Part]:
    """The network, its tree, and the ranker over its shortlists."""
    parts = {"network": network_part(self.network_, self.history_ or {}, dict(self.report_))}
    if self.tree_ is not None:
        parts["tree"] = self.tree_.state()
    if self.reranker_ is not None:
        parts |= self.reranker_.parts()
    return parts


def train_reranker(
    runner: Runner,
    examples: TrainingExamples,
    terms: Terms,
    tree: LabelTree,
    params: reranking.RerankParams,
    ranker: RankerParams,
    seed: int,
    linear: Ranker | None = None,
) -> Ranker:
    """The ranker that puts the shortlists of a trained network, and of the linear one, in order."""
    length = min(params.shortlist, tree.labels)
    columns, _, vectors = runner.read(examples.tokens, length, vectors=True)
    if linear is not None:
        columns = np.hstack([columns, reranking.proposed(linear, terms.rows, length)])
    features = reranking.reranker_features(terms.rows, vectors, params)
    del vectors  # large, and the features are a copy
    return train_ranker(
        features,
        examples.labels,
        tree,
        ranker,
        shortlist=reranking.shortlist_matrix(columns, tree.labels),
        seed=seed,
    )


def network_pieces(network: Network, parts: dict[str, Part]) -> ExportedParts:
    """A network for export, with what else the model needs."""
    mean, scale = (value.detach().float().cpu().numpy() for value in (network.mean, network.scale))
    return ExportedParts(network.encoder, network.layers, parts, mean, scale)


def layer_arrays(name: str, layer: Any) -> Table:
    """A layer's weight and bias under names of an exported model's heads."""
    arrays = {"weight": layer.weight, "bias": layer.bias}
    return {
        f"{name}/{key}": value.detach().float().cpu().numpy()
        for key, value in arrays.items()
        if value is not None
    }
