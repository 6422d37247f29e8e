"""How XR-Transformer's encoder goes down the preliminary tree, level by level.

Each level's start, network, vectors and shortlists are stages of the run folder. A killed run
continues in the middle of a level, and a run with another ranker finds vectors as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from labelgrove.core.aliases import Progress, Table
from labelgrove.core.arrays import CSR, Float32, csr_arrays, csr_from_arrays, with_values
from labelgrove.core.part import Part
from labelgrove.core.topk import top_k
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.disk.stages import CachedResult, Session, Stages
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.neural import learn, make_batches
from labelgrove.methods.preparation import CHOSEN_BY, Neural, Prepared, TrainingExamples
from labelgrove.methods.terms import Terms
from labelgrove.methods.xrtransformer import net
from labelgrove.methods.xrtransformer import vectors as reading
from labelgrove.methods.xrtransformer.net import XrParams, level_tree
from labelgrove.methods.xrtransformer.vectors import Standard, restore
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.heads.layers import per_level
from labelgrove.nn.network import network_part
from labelgrove.nn.training.devices import choose_device, derived_seed
from labelgrove.nn.training.loop import Task
from labelgrove.nn.training.params import TrainingParams
from labelgrove.ranking.negatives import relevance
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

    def embedded(
        self, encoder: Encoder, tokens: Tokens, *, progress: Progress | None = None
    ) -> Float32:
        """Text vectors by the encoder as it is now."""
        return reading.embedded(
            encoder, tokens, self.standard, precision=self.precision, progress=progress
        )

    def features(self, vectors: LevelVectors, *, held_out: bool = False) -> Features:
        """tf-idf and unit-length vectors of documents."""
        if not held_out:
            return reading.beside(self.terms.rows, vectors.train)
        assert self.examples.held_out is not None
        return reading.beside(self.terms.reader.rows(self.examples.held_out), vectors.held_out)

    def chosen(self, level: int, above: Shortlists | None, heads: XrParams) -> CSR | None:
        """Nodes above a level whose children see a document in training; None on the first."""
        if above is None:
            return None
        return reading.chosen_nodes(self.counts[level - 2], above.train, heads.negatives)

    def predicted(
        self, level: int, margins: reading.Margins, above: Shortlists | None, keep: int, part: str
    ) -> CSR:
        """The best nodes of a level below those predicted above; ``part``: train or held_out."""
        counts = self.held_out_counts if part == "held_out" else self.counts
        over = reading.below_root(counts[0].shape[0]) if above is None else getattr(above, part)
        return reading.best_nodes(margins, over, self.tree.children(level - 1), keep)


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
        held_out = {} if self.held_out is None else csr_arrays(self.held_out, "held_out")
        return Part({}, csr_arrays(self.train, "train") | held_out)

    @classmethod
    def from_state(cls, part: Part) -> Shortlists:
        held_out = None
        if any(name.startswith("held_out") for name in part.arrays):
            held_out = csr_from_arrays(part.arrays, "held_out")
        return cls(csr_from_arrays(part.arrays, "train"), held_out)


class LevelSettings(Neural, Protocol):
    """The settings of the method that levels read."""

    heads: XrParams
    matcher: RankerParams


def make_descent(
    model: LevelSettings, data: Prepared, stages: Stages, tree: CachedResult[LabelTree]
) -> CachedResult[LevelInputs]:
    """What all levels of the fine-tuning share."""
    precision, standard = model.training.precision, None
    if model.heads.standardise:
        read: Table = {"encoder": data.encoder, "tokens": data.tokens, "precision": precision}
        standard = stages("standard", reading.standardise, **read)
    plain: Table = {"precision": precision, "seed": model.random_state}
    made: dict[str, CachedResult[Any] | None] = {
        "examples": data.examples(stages),
        "terms": data.terms,
        "encoder": data.encoder,
        "tree": tree,
        "standard": standard,
    }

    def make() -> LevelInputs:
        values: Table = {name: result and result.value for name, result in made.items()}
        return LevelInputs(**values, **plain)

    return stages.derive(make, **made, **plain)


def go_down(
    model: LevelSettings, stages: Stages, inputs: CachedResult[LevelInputs]
) -> tuple[CachedResult[Part], CachedResult[LevelVectors], list[Shortlists], list[Table]]:
    """Fine-tunes level by level; the last network, its vectors, and what was shortlisted."""
    heads = model.heads
    levels = net.fine_tuned_levels(inputs.value.tree, heads.max_clusters)
    loops = net.level_training(heads, model.training, levels)
    kept = per_level(heads.kept, levels - 1, "kept")  # refuses a list of another length now
    network: CachedResult[Part] | None = None
    vectors: CachedResult[LevelVectors] | None = None
    if heads.bootstrap_first and heads.bootstrap != "none":
        vectors = stages("vectors-0", embed_documents, inputs=inputs, network=None)
    above: CachedResult[Shortlists] | None = None
    shortlists, histories = [], []
    for level, loop in enumerate(loops, 1):
        negatives = () if above is None else ("negatives",)
        start = None
        if heads.bootstrap != "none" and vectors is not None:
            costs = ("alpha",) if heads.bootstrap == "cost-linear" else ()
            start = stages(
                f"bootstrap-{level}",
                start_head,
                inputs=inputs,
                level=level,
                vectors=vectors,
                above=above,
                heads=heads.only(
                    "bootstrap", "bootstrap_C", "bootstrap_scaled", *negatives, *costs
                ),
            )
        network = stages(
            f"network-{level}",
            fine_tune,
            inputs=inputs,
            level=level,
            before=network,
            start=start,
            above=above,
            heads=heads.only(
                *("loss", "relevance", "alpha", "reduction", "l2", "dropout"),
                *("max_candidates", "row_table_from", *negatives),
            ),
            training=loop,
        )
        vectors = stages(f"vectors-{level}", embed_documents, inputs=inputs, network=network)
        histories.append(network.value.config["story"])
        if level < levels:
            above = stages(
                f"matcher-{level}",
                shortlist_nodes,
                inputs=inputs,
                level=level,
                vectors=vectors,
                above=above,
                keep=kept[level - 1],
                heads=heads.only(*negatives),
                matcher=model.matcher,
            )
            shortlists.append(above.value)
    assert network is not None and vectors is not None
    return network, vectors, shortlists, histories


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
    vectors: LevelVectors,
    above: Shortlists | None,
    heads: XrParams,
) -> Part:
    """What the head of a level (from 1) starts from, by the ``vectors`` of the level before."""
    weights, bias = reading.bootstrapped(
        vectors.train,
        inputs.counts[level - 1],
        level_tree(inputs.tree, level - 1),
        heads,
        above=inputs.chosen(level, above, heads),
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
    training: TrainingParams,
    *,
    session: Session,
) -> Part:
    """Fine-tunes the encoder under the head of a level (from 1); keeps the best checkpoint."""
    examples, seed = inputs.examples, derived_seed(inputs.seed, level)
    encoder = inputs.encoder if before is None else restore(inputs.encoder, before)
    true = net.nodes_of_labels(examples.labels, inputs.tree, level - 1)
    chosen = inputs.chosen(level, above, heads)
    scored = None
    if heads.l2:
        scored = net.documents_scoring(true, chosen, inputs.tree.parents[level - 1])
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        nodes_below = level_tree(inputs.tree, level - 1)
        head = net.XrHead(encoder.width, nodes_below, heads, scored=scored)
    if start is not None:
        head.start_from(start.arrays["weights"], start.arrays["bias"])
    network = reading.network_of(encoder, head, inputs.standard)
    batches = make_batches(examples.tokens, encoder, training, seed)
    nodes = LabelIndex([str(node) for node in range(inputs.tree.widths[level - 1])])

    def score() -> float:
        assert examples.held_out_tokens is not None
        vectors = inputs.embedded(encoder, examples.held_out_tokens)
        children = inputs.tree.children(level - 1)
        weights, bias = network.heads.weights()
        margins = reading.head_margins(vectors, weights, bias, children)
        best = top_k(inputs.predicted(level, margins, above, 5, "held_out"), 5)
        predictions = Predictions(*best, nodes, "margin")
        truth = with_values(inputs.held_out_counts[level - 1], 1)
        values = evaluate(predictions, truth, metrics=CHOSEN_BY)
        return float(np.mean([values[metric] for metric in CHOSEN_BY]))

    task = Task(
        net.LevelBatches(batches, true, chosen),
        lambda model, batch: model.heads.loss(model.states(batch.batch), batch.labels, batch.above)[
            0
        ],
        None if examples.held_out is None else score,
    )
    stage, network = f"training level {level}", network.to(choose_device())
    return network_part(network, learn(network, task, training, seed, session, stage))


def shortlist_nodes(
    inputs: LevelInputs,
    level: int,
    vectors: LevelVectors,
    above: Shortlists | None,
    keep: int,
    heads: XrParams,
    matcher: RankerParams,
) -> Shortlists:
    """The nodes of level ``level`` (from 1) that a linear model predicts for each document."""
    linear = reading.train_level(
        inputs.features(vectors),
        inputs.counts[level - 1],
        level_tree(inputs.tree, level - 1),
        matcher,
        weighted=False,
        above=inputs.chosen(level, above, heads),
        seed=inputs.seed,
    )

    def predicted(part: str) -> CSR:
        features = inputs.features(vectors, held_out=part == "held_out")
        margins = reading.linear_margins(features, linear)
        return inputs.predicted(level, margins, above, keep, part)

    held_out = None if vectors.held_out is None else predicted("held_out")
    return Shortlists(predicted("train"), held_out)
