"""The stages of XR-Transformer's fine-tuning: each level's start, network, vectors and shortlists.

Each is kept in the run folder. A killed run continues in the middle of a level, and a run with
another ranker finds tokens, tf-idf and vectors as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Float32, csr_arrays, csr_from_arrays, with_values
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.stages import Session
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.preparation import CHOSEN_BY, TrainingExamples
from labelgrove.methods.terms import Terms
from labelgrove.methods.training import make_batches
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
from labelgrove.methods.xrtransformer.net import (
    LevelBatch,
    LevelBatches,
    XrHead,
    XrParams,
    documents_scoring,
    level_tree,
    nodes_of_labels,
)
from labelgrove.methods.xrtransformer.vectors import Standard, beside, embedded, network_of, restore
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network, network_part
from labelgrove.nn.training.devices import choose_device, derived_seed
from labelgrove.nn.training.loop import LoopParams, Task, train
from labelgrove.ranking.relevance import relevance
from labelgrove.ranking.solver import RankerParams


@dataclass(frozen=True)
class LevelInputs:
    """What all levels share: the documents, the tree to go down, and how the encoder runs."""

    examples: TrainingExamples
    terms: Terms
    encoder: Encoder
    tree: LabelTree
    standard: Standard | None
    precision: str
    seed: int

    @cached_property
    def counts(self) -> list[CSR]:
        """Per level, documents x nodes: how many of a document's labels lie below a node."""
        return relevance(with_values(self.examples.labels, 1), self.tree)

    @cached_property
    def held_out_counts(self) -> list[CSR]:
        """The same for the held-out documents."""
        assert self.examples.held_out is not None
        return relevance(with_values(self.examples.held_out.labels, 1), self.tree)

    @cached_property
    def held_out_terms(self) -> CSR:
        """Sparse rows of the held-out documents."""
        assert self.examples.held_out is not None
        return self.terms.reader.rows(self.examples.held_out)

    def embedded(
        self, encoder: Encoder, tokens: Tokens, *, progress: Progress | None = None
    ) -> Float32:
        """Text vectors by the encoder as it is now."""
        return embedded(encoder, tokens, self.standard, precision=self.precision, progress=progress)

    def features(self, vectors: LevelVectors, *, held_out: bool = False) -> Features:
        """tf-idf and unit-length vectors of documents."""
        if held_out:
            return beside(self.held_out_terms, vectors.held_out)
        return beside(self.terms.rows, vectors.train)


@dataclass(frozen=True)
class LevelVectors:
    """The documents' text vectors as an encoder gave them, not scaled."""

    train: Float32
    held_out: Float32 | None

    def state(self) -> Part:
        return Part({}, {name: rows for name, rows in vars(self).items() if rows is not None})

    @classmethod
    def from_state(cls, part: Part) -> LevelVectors:
        return cls(part.arrays["train"], part.arrays.get("held_out"))


@dataclass(frozen=True)
class Shortlists:
    """The nodes of a level that are predicted for each document, with their scores."""

    train: CSR
    held_out: CSR | None

    def state(self) -> Part:
        arrays = csr_arrays(self.train, "train")
        if self.held_out is not None:
            arrays |= csr_arrays(self.held_out, "held_out")
        return Part({}, arrays)

    @classmethod
    def from_state(cls, part: Part) -> Shortlists:
        held_out = None
        if any(name.startswith("held_out") for name in part.arrays):
            held_out = csr_from_arrays(part.arrays, "held_out")
        return cls(csr_from_arrays(part.arrays, "train"), held_out)


def embed_documents(
    inputs: LevelInputs, network: Part | None, *, progress: Progress | None = None
) -> LevelVectors:
    """Text vectors by the encoder as a level's ``network`` left it, or as it was pretrained."""
    encoder = inputs.encoder if network is None else restore(inputs.encoder, network)
    tokens, held_out = inputs.examples.tokens, inputs.examples.held_out_tokens
    rows = inputs.embedded(encoder, tokens, progress=progress)
    return LevelVectors(rows, None if held_out is None else inputs.embedded(encoder, held_out))


def start_head(
    inputs: LevelInputs,
    level: int,
    before: Part | None,
    vectors: LevelVectors,
    above: Shortlists | None,
    heads: XrParams,
) -> Part:
    """Weights and bias that the head of level ``level`` (from 1) starts from.

    ``before`` is the network of the level before, ``vectors`` are those that it gave.
    """
    if heads.bootstrap == "inherit":
        assert before is not None
        parents = inputs.tree.parents[level - 1]
        weights, bias = (before.arrays[f"heads/table.{n}"][parents] for n in ("weight", "bias"))
    else:
        weights, bias = bootstrapped(
            vectors.train,
            inputs.counts[level - 1],
            level_tree(inputs.tree, level - 1),
            heads,
            above=_chosen(inputs, level, above, heads),
            seed=inputs.seed,
        )
    return Part({}, {"weights": weights, "bias": bias})


def fine_tune(
    inputs: LevelInputs,
    level: int,
    before: Part | None,
    start: Part | None,
    above: Shortlists | None,
    heads: XrParams,
    training: LoopParams,
    *,
    session: Session,
) -> Part:
    """Fine-tunes the encoder under the head of level ``level`` (from 1); gives a network's part.

    The checkpoint that is best on the held-out documents' nodes is kept.
    """
    examples, seed = inputs.examples, derived_seed(inputs.seed, level)
    encoder = inputs.encoder if before is None else restore(inputs.encoder, before)
    true = nodes_of_labels(examples.labels, inputs.tree, level - 1)
    chosen = _chosen(inputs, level, above, heads)
    scored = None
    if heads.l2:
        scored = documents_scoring(true, chosen, inputs.tree.parents[level - 1])
    costs = None
    if level == len(inputs.tree.parents):  # that of the labels
        by_column = heads.positive_costs(examples.labels)
        costs = None if by_column is None else by_column[inputs.tree.leaf_labels]
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        nodes_below = level_tree(inputs.tree, level - 1)
        head = XrHead(encoder.width, nodes_below, heads, scored=scored, costs=costs)
    if start is not None:
        head.start_from(start.arrays["weights"], start.arrays["bias"])
    network = network_of(encoder, head, inputs.standard)
    batches = make_batches(examples.tokens, encoder, training, seed)
    nodes = LabelIndex([str(node) for node in range(inputs.tree.widths[level - 1])])

    def score() -> float:
        assert examples.held_out_tokens is not None
        vectors = inputs.embedded(encoder, examples.held_out_tokens)
        weights, bias = network.heads.weights()
        children = inputs.tree.children(level - 1)
        margins = head_margins(vectors, weights, bias, children)
        best = top_k(_predicted(inputs, level, [margins], above, keep=5, held_out=True), 5)
        predictions = Predictions(best.columns, best.scores, best.counts, nodes, "margin")
        truth = with_values(inputs.held_out_counts[level - 1], 1)
        values = evaluate(predictions, truth, metrics=CHOSEN_BY)
        return float(np.mean([values[metric] for metric in CHOSEN_BY]))

    result = train(
        network.to(choose_device()),
        Task(
            LevelBatches(batches, true, chosen),
            _level_loss,
            None if examples.held_out is None else score,
        ),
        training,
        folder=session.checkpoints,
        reporter=session.reporter,
        seed=seed,
        stage=f"training level {level}",
    )
    return network_part(network, result.summary())


def _level_loss(network: Network, batch: LevelBatch) -> Tensor:
    states = network.states(batch.batch)
    loss: Tensor = network.heads.loss(states, batch.labels, batch.above)[0]
    return loss


def shortlist_nodes(
    inputs: LevelInputs,
    level: int,
    network: Part,
    vectors: LevelVectors,
    above: Shortlists | None,
    keep: int,
    heads: XrParams,
    matcher: RankerParams | None,
) -> Shortlists:
    """The nodes of level ``level`` (from 1) that are predicted for each document.

    ``matcher`` are the settings of a linear model; None if the level's head predicts alone.
    """
    linear = None
    if matcher is not None:
        linear = train_level(
            inputs.features(vectors),
            inputs.counts[level - 1],
            level_tree(inputs.tree, level - 1),
            matcher,
            weighted=False,
            above=_chosen(inputs, level, above, heads),
            seed=inputs.seed,
        )

    def predicted(held_out: bool) -> CSR:
        models: list[Margins] = []
        if linear is not None:
            features = inputs.features(vectors, held_out=held_out)
            models.append(linear_margins(features, linear))
        if heads.matcher != "linear":
            weights, bias = (network.arrays[f"heads/table.{n}"] for n in ("weight", "bias"))
            texts = vectors.held_out if held_out else vectors.train
            assert texts is not None
            models.append(head_margins(texts, weights, bias, inputs.tree.children(level - 1)))
        return _predicted(inputs, level, models, above, keep=keep, held_out=held_out)

    return Shortlists(predicted(False), None if vectors.held_out is None else predicted(True))


def _predicted(
    inputs: LevelInputs,
    level: int,
    models: list[Margins],
    above: Shortlists | None,
    *,
    keep: int,
    held_out: bool,
) -> CSR:
    """The best nodes of a level below those that were predicted above; truth plays no part."""
    counts = inputs.held_out_counts if held_out else inputs.counts
    over = below_root(counts[0].shape[0])
    if above is not None:
        shortlist = above.held_out if held_out else above.train
        assert shortlist is not None
        over = shortlist
    children = inputs.tree.children(level - 1)
    return best_nodes(models, over, children, keep)


def _chosen(
    inputs: LevelInputs, level: int, above: Shortlists | None, heads: XrParams
) -> CSR | None:
    """Nodes above a level whose children see a document in training; None on the first level."""
    if above is None:
        return None
    return chosen_nodes(inputs.counts[level - 2], above.train, heads.negatives)
