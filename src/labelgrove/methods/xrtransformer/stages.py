"""The stages of XR-Transformer's fine-tuning: each level's start, network, vectors and shortlists.

Each is kept in the run folder under the content of what it depends on. So a killed run goes on in
the middle of a level, and a run with another ranker finds tokens, tf-idf and vectors as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse

from labelgrove.core.arrays import CSR, Float32, csr_arrays, csr_from_arrays
from labelgrove.core.callbacks import Reporter
from labelgrove.core.topk import top_k
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.part import Part
from labelgrove.disk.stages import Stages
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.neural import make_batches
from labelgrove.methods.preparation import CHOSEN_BY, Prepared
from labelgrove.methods.xrtransformer.descending import (
    Margins,
    below_root,
    best_nodes,
    bootstrapped,
    chosen_nodes,
    head_margins,
    linear_margins,
    train_level,
)
from labelgrove.methods.xrtransformer.net import LevelBatches, XrHead, level_tree, nodes_of_labels
from labelgrove.methods.xrtransformer.vectors import Standard, beside, embedded, network_of, restore
from labelgrove.metrics import evaluate
from labelgrove.nn.batches.padded import prefetched
from labelgrove.nn.encoders.files import EncoderContent
from labelgrove.nn.network import Network, network_part
from labelgrove.nn.training.devices import choose_device, derived_seed
from labelgrove.nn.training.loop import LoopParams, LoopResult, train
from labelgrove.ranking.relevance import relevance
from labelgrove.scores.predictions import Predictions


@dataclass(frozen=True)
class Descent:
    """What all levels share: the method's settings, the documents, and the tree to go down."""

    model: Any
    data: Prepared
    tree: LabelTree
    stages: Stages
    standard: Standard | None

    @cached_property
    def counts(self) -> list[CSR]:
        """Per level, documents x nodes: how many of a document's labels lie below a node."""
        return relevance(_ones(self.data.learnt_from.labels), self.tree)

    @cached_property
    def held_out_counts(self) -> list[CSR]:
        """The same of the held-out documents."""
        assert self.data.held_out is not None
        return relevance(_ones(self.data.held_out.labels), self.tree)

    @cached_property
    def held_out_terms(self) -> CSR:
        """tf-idf rows of the held-out documents."""
        assert self.data.held_out is not None and self.data.held_out.texts is not None
        return self.data.features.vectorizer.transform(self.data.held_out.texts)

    def settings(self, *names: str) -> dict[str, Any]:
        """Some of the levels' settings, for a stage that depends on these alone."""
        return {name: getattr(self.model.heads, name) for name in names}

    @property
    def keys(self) -> dict[str, Any]:
        """What stands for documents, labels and tree among the inputs of a stage."""
        return {
            "tokens": self.stages.key("tokens"),
            "held_out": self.stages.key("held-out-tokens"),
            "labels": self.data.corpus.labels,
            "tree": self.stages.key("tree"),
            "seed": self.model.random_state,
        }


@dataclass(frozen=True)
class Vectors:
    """The documents' text vectors as an encoder gave them, not scaled; and what rankers read."""

    descent: Descent
    train: Float32
    held_out: Float32 | None

    @cached_property
    def features(self) -> Features:
        """tf-idf and unit-length vectors of the documents to learn from."""
        return beside(self.descent.data.features.rows, self.train)

    @cached_property
    def held_out_features(self) -> Features:
        """tf-idf and unit-length vectors of the held-out documents."""
        assert self.held_out is not None
        return beside(self.descent.held_out_terms, self.held_out)


@dataclass(frozen=True)
class Shortlists:
    """The nodes of a level that are predicted for each document, with their scores."""

    train: CSR
    held_out: CSR | None


def vectors_stage(descent: Descent, level: int, network: Part | None) -> Vectors:
    """Text vectors by the encoder as level ``level`` (from 1) left it; by the pretrained for 0."""
    model, data = descent.model, descent.data
    stages, standard = descent.stages, descent.standard

    def compute(progress: Any) -> Part:
        encoder = data.encoder if network is None else restore(data.encoder, network)
        arrays = {"train": embedded(model, encoder, data.tokens, standard, progress.update)}
        if data.held_out_tokens is not None:
            arrays["held_out"] = embedded(model, encoder, data.held_out_tokens, standard)
        return Part({}, arrays)

    inputs = {
        "network": stages.key(f"network-{level}") if network else EncoderContent(model.encoder),
        "tokens": stages.key("tokens"),
        "held_out": stages.key("held-out-tokens"),
        "precision": model.training.precision,
        "standard": stages.key("standard"),
    }
    made = stages(f"vectors-{level}", inputs, compute)
    return Vectors(descent, made.arrays["train"], made.arrays.get("held_out"))


def bootstrap_stage(
    descent: Descent,
    level: int,
    before: Part | None,
    vectors: Vectors | None,
    above: Shortlists | None,
) -> Part | None:
    """Where the head of level ``level`` (from 1) begins; None: anywhere.

    ``before`` is the network of the level before, ``vectors`` are those that it gave.
    """
    model, stages = descent.model, descent.stages
    kind = model.heads.bootstrap
    if kind == "none" or vectors is None or (kind == "inherit" and before is None):
        return None

    def compute(_: Any) -> Part:
        if kind == "inherit":
            assert before is not None
            parents = descent.tree.parents[level - 1]
            weights, bias = (before.arrays[f"heads/table.{n}"][parents] for n in ("weight", "bias"))
        else:
            weights, bias = bootstrapped(
                vectors.train,
                descent.counts[level - 1],
                level_tree(descent.tree, level - 1),
                C=model.heads.bootstrap_C,
                scaled=model.heads.bootstrap_scaled,
                weighted=kind == "weighted-linear",
                above=_chosen(descent, level, above),
                seed=model.random_state,
                threads=model.n_jobs,
            )
        return Part({}, {"weights": weights, "bias": bias})

    solved = () if kind == "inherit" else ("bootstrap_C", "bootstrap_scaled", "negatives")
    inputs = descent.keys | {
        "network": stages.key(f"network-{level - 1}"),
        "vectors": stages.key(f"vectors-{level - 1}"),
        "shortlists": stages.key(f"matcher-{level - 1}"),
        "heads": descent.settings("bootstrap", *solved),
    }
    return stages(f"bootstrap-{level}", inputs, compute)


def level_stage(
    descent: Descent,
    level: int,
    loop: LoopParams,
    *,
    before: Part | None,
    start: Part | None,
    above: Shortlists | None,
) -> Part:
    """Fine-tunes the encoder under the head of level ``level`` (from 1); gives a network's part."""
    model, data, stages = descent.model, descent.data, descent.stages
    name = f"network-{level}"

    def compute(_: Any) -> Part:
        encoder = data.encoder if before is None else restore(data.encoder, before)
        with torch.random.fork_rng([]):
            torch.manual_seed(derived_seed(model.random_state, level))
            head = XrHead(encoder.width, level_tree(descent.tree, level - 1), model.heads)
        if start is not None:
            head.start_from(start.arrays["weights"], start.arrays["bias"])
        network = network_of(encoder, head, descent.standard)
        folder = stages.checkpoint_folder(name)
        result = _train_level(descent, level, network, loop, above, folder)
        return network_part(network, result.story())

    inputs = descent.keys | {
        "encoder": EncoderContent(model.encoder),
        "standard": stages.key("standard"),
        "training": loop.identity(),
        "before": stages.key(f"network-{level - 1}"),
        "start": stages.key(f"bootstrap-{level}") if start is not None else None,
        "shortlists": stages.key(f"matcher-{level - 1}"),
        "heads": descent.settings(
            *("loss", "relevance", "alpha", "reduction", "dropout", "logits"),
            *("max_candidates", "row_table_from", *(["negatives"] if level > 1 else [])),
        ),
    }
    return stages(name, inputs, compute)


def _train_level(
    descent: Descent,
    level: int,
    network: Network,
    loop: LoopParams,
    above: Shortlists | None,
    folder: Path | None,
) -> LoopResult:
    """Trains in place; the checkpoint that is best on the held-out documents' nodes is kept."""
    model, data, encoder = descent.model, descent.data, network.encoder
    device = choose_device(model.device)
    seed = derived_seed(model.random_state, level)
    batches = make_batches(data.tokens, encoder, loop, device, seed)
    true = nodes_of_labels(data.learnt_from.labels, descent.tree, level - 1)
    nodes = LabelIndex([str(node) for node in range(descent.tree.widths[level - 1])])

    def score() -> float:
        assert data.held_out_tokens is not None
        vectors = embedded(model, encoder, data.held_out_tokens, descent.standard)
        weights, bias = network.heads.weights()
        children = descent.tree.children(level - 1)
        margins = head_margins(vectors, weights, bias, children, device)
        found = _predicted(descent, level, [margins], above, keep=5, held_out=True)
        best = top_k(found, 5)
        predictions = Predictions(best.columns, best.scores, best.counts, nodes, "margin")
        truth = _ones(descent.held_out_counts[level - 1])
        values = evaluate(predictions, truth, metrics=CHOSEN_BY)
        return float(np.mean([values[metric] for metric in CHOSEN_BY]))

    return train(
        network,
        LevelBatches(batches, true, _chosen(descent, level, above)),
        lambda net, batch: net.heads.loss(net.states(batch.batch), batch.true, batch.above)[0],
        loop,
        evaluate=None if data.held_out is None else score,
        folder=folder,
        reporter=Reporter(descent.stages.reporter.callbacks),  # the stage counts its seconds
        device=device,
        seed=seed,
        prefetch=prefetched,
        stage=f"training level {level}",
    )


def matcher_stage(
    descent: Descent, level: int, network: Part, vectors: Vectors, above: Shortlists | None
) -> Shortlists:
    """The nodes of level ``level`` (from 1) that are predicted for each document."""
    model, stages = descent.model, descent.stages
    keep = model.heads.kept
    keep = keep[level - 1] if isinstance(keep, list) else keep

    def compute(_: Any) -> Part:
        linear = None
        if model.heads.matcher != "head":
            linear = train_level(
                vectors.features,
                descent.counts[level - 1],
                level_tree(descent.tree, level - 1),
                model.matcher,
                weighted=False,
                above=_chosen(descent, level, above),
                seed=model.random_state,
                threads=model.n_jobs,
            )

        def predicted(held_out: bool) -> CSR:
            models: list[Margins] = []
            if linear is not None:
                features = vectors.held_out_features if held_out else vectors.features
                models.append(linear_margins(features, linear, threads=model.n_jobs))
            if model.heads.matcher != "linear":
                weights, bias = (network.arrays[f"heads/table.{n}"] for n in ("weight", "bias"))
                texts = vectors.held_out if held_out else vectors.train
                children, device = descent.tree.children(level - 1), choose_device(model.device)
                models.append(head_margins(texts, weights, bias, children, device))
            return _predicted(descent, level, models, above, keep=keep, held_out=held_out)

        arrays = csr_arrays(predicted(False), "train")
        if vectors.held_out is not None:
            arrays |= csr_arrays(predicted(True), "held_out")
        return Part({}, arrays)

    inputs = descent.keys | {
        "features": stages.key("tfidf"),
        "vectors": stages.key(f"vectors-{level}"),
        "above": stages.key(f"matcher-{level - 1}"),
        "heads": descent.settings("matcher", *(("negatives",) if level > 1 else ()))
        | {"kept": keep},
        "matcher": None if model.heads.matcher == "head" else model.matcher,
    }
    made = stages(f"matcher-{level}", inputs, compute)
    held_out = None if vectors.held_out is None else csr_from_arrays(made.arrays, "held_out")
    return Shortlists(csr_from_arrays(made.arrays, "train"), held_out)


def _predicted(
    descent: Descent,
    level: int,
    models: list[Margins],
    above: Shortlists | None,
    *,
    keep: int,
    held_out: bool,
) -> CSR:
    """The best nodes of a level below those that were predicted above; truth plays no part."""
    counts = descent.held_out_counts if held_out else descent.counts
    over = below_root(counts[0].shape[0])
    if above is not None:
        over = above.held_out if held_out else above.train
    children = descent.tree.children(level - 1)
    return best_nodes(models, over, children, keep, threads=descent.model.n_jobs)


def _chosen(descent: Descent, level: int, above: Shortlists | None) -> CSR | None:
    """Nodes above a level whose children see a document in training; None on the first level."""
    if above is None:
        return None
    return chosen_nodes(descent.counts[level - 2], above.train, descent.model.heads.negatives)


def _ones(matrix: CSR) -> CSR:
    ones = np.ones(matrix.nnz, np.float32)
    return sparse.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape)
