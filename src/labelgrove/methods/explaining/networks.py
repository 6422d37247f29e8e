"""Why a neural method gives a label: what words contribute to networks and to vector rankers.

A network's words are tokens of the encoder, measured by gradients. A ranker's words are tf-idf
terms; the contribution of a text vector is traced back to the tokens of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from labelgrove.core.aliases import Table
from labelgrove.data.features import Features
from labelgrove.data.records import BETWEEN
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining.attribution import Attribution, attribute, word_reasons
from labelgrove.methods.explaining.explanation import (
    DecisionPaths,
    ExplanationRequest,
    Path,
    Reason,
    Span,
    Step,
)
from labelgrove.methods.explaining.rankers import (
    dense_weights,
    labels_below,
    node_path,
    probability,
    ranker_steps,
    tree_paths,
    weighted,
)
from labelgrove.methods.explaining.spans import named_terms
from labelgrove.nn.batches.padded import Batch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Section, reading_of, token_places
from labelgrove.nn.heads.layers import NodeLogit
from labelgrove.nn.network import Network
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.beam import OWN_MARGIN, SearchParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.text.tfidf import TermReader

Rows = npt.NDArray[np.float64]


def network_paths(
    network: Network,
    question: ExplanationRequest,
    *,
    tree: LabelTree | None,
    ranker: Ranker | None = None,
    terms: TermReader | None = None,
    share: float = 0.0,
    unit: bool = False,
) -> DecisionPaths:
    """A network's own path to a label, and that of the ranker over its shortlist, if any.

    ``share`` is the ranker's share of the score; with ``unit`` it reads vectors of unit length.
    """
    reading = NetworkInput(network.encoder, network, question)
    weights = None if ranker is None else label_weights(ranker, question.column)
    logits, vector, attribution = reading.logits(question.column, weights, unit=unit)
    steps = [
        network_step(reading, logit, attribution, number, len(logits), tree)
        for number, logit in enumerate(logits)
    ]
    steps = weighted(steps, "sigmoid")
    paths = [Path("network", 1.0 - share, product(steps), tuple(steps))]
    if ranker is not None:
        assert terms is not None
        features = Features(sparse=terms.rows(question.documents), dense=vector)
        features = features.normalised() if unit else features
        step = label_step(reading, ranker, terms, features, attribution.shares[-1])
        step = replace(step, probability=probability(step.margin, "sigmoid"))
        paths.append(Path("reranker", share, product([step]), (step,)))
    return DecisionPaths(paths, "product")


def vector_paths(
    rankers: Sequence[Ranker],
    features: Features,
    question: ExplanationRequest,
    *,
    search: SearchParams,
    terms: TermReader,
    reading: NetworkInput | None,
) -> DecisionPaths:
    """Paths down the trees of rankers that read text vectors, traced back to words.

    Without a ``reading``, as for word vectors, there are no tokens to trace back to.
    """
    names = named_terms(question, terms) if rankers[0].features else None

    def traced(steps: list[list[Step]]) -> list[list[Step]]:
        if reading is None:
            return steps
        weights = [
            dense_weights(ranker, level, node)
            for ranker in rankers
            for level, node in enumerate(node_path(ranker.tree, question.column))
        ]
        shares = iter(reading.products(np.stack(weights)).shares)
        steps = [[traced_step(reading, step, next(shares)) for step in own] for own in steps]
        kind = "noop" if search.last_level == "noop" else search.post_processor
        return [weighted(own, kind) for own in steps]

    parts = features.parts()
    return tree_paths(rankers, parts, question, search=search, terms=names, revise=traced)


@dataclass(frozen=True)
class NetworkInput:
    """A text as an encoder, or a network around it, reads it."""

    encoder: Encoder
    network: Network | None
    question: ExplanationRequest

    def __post_init__(self) -> None:
        (self.encoder if self.network is None else self.network).to(self.device).eval()

    @cached_property
    def device(self) -> torch.device:
        return choose_device()

    @property
    def text(self) -> str:
        return self.question.text

    def words(self, shares: Rows) -> tuple[tuple[Reason, ...], float]:
        """The contributions of words, and of special tokens."""
        string, sections = reading_of(self.text, self.encoder)
        places = token_places(string, self.encoder, self.encoder.max_tokens)[1]
        reasons, others = word_reasons(string, places, shares)
        return tuple(_placed(reason, sections) for reason in reasons), others

    def attribute(self, read: Callable[[Tensor], Sequence[Tensor]]) -> Attribution:
        """The contributions of tokens to the numbers that ``read`` returns."""
        string, _ = reading_of(self.text, self.encoder)
        ids, places = token_places(string, self.encoder, self.encoder.max_tokens)
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        special, steps = [place.word < 0 for place in places], self.question.gradient_steps
        return attribute(self.encoder, tokens, read, special=special, steps=steps)

    def logits(
        self, column: int, weights: Rows | None, *, unit: bool
    ) -> tuple[list[NodeLogit], Any, Attribution]:
        """Logits on the path, the text vector, and contributions to logits and weights x vector."""
        values: Table = {}
        dense = None if weights is None else torch.as_tensor(weights, device=self.device)
        network = self.network
        assert network is not None

        def read(ids: Tensor) -> Sequence[Tensor]:
            states = self._states(ids)
            values["logits"] = network.heads.path(states, column)
            numbers = [node.logit for node in values["logits"]]
            vector = network.heads.text(states).float()
            vector = functional.normalize(vector) if unit else vector
            values["vector"] = vector[-1:].detach().cpu().numpy()
            if dense is not None:
                numbers.append(vector.double() @ dense)
            return numbers

        attribution = self.attribute(read)
        return values["logits"], values["vector"], attribution

    def _states(self, ids: Tensor) -> list[Tensor]:
        assert self.network is not None
        rows = np.arange(len(ids))
        return self.network.states(Batch(rows, ids, torch.ones_like(ids), tokens=ids.numel()))

    def products(self, weights: Rows) -> Attribution:
        """What tokens contribute to each row of ``weights`` times the unit text vector."""
        table = torch.as_tensor(weights, device=self.device)

        def read(ids: Tensor) -> Sequence[Tensor]:
            if self.network is None:
                vectors = self.encoder.forward(ids, None)[0]
            else:
                vectors = self.network.heads.text(self._states(ids))
            return list((functional.normalize(vectors.float()).double() @ table.T).T)

        return self.attribute(read)


def _placed(reason: Reason, sections: Sequence[tuple[int, Section]]) -> Reason:
    """A word of a document with fields with its place among the texts, or with its field's name."""
    if not sections:
        return reason
    span = reason.spans[0]
    start, section = max(
        (entry for entry in sections if entry[0] <= span.start), key=lambda entry: entry[0]
    )
    if section.start < 0:
        return replace(reason, text=f"{section.field}{BETWEEN}{reason.text}", spans=())
    shift = section.start - start
    return replace(reason, spans=(Span(span.start + shift, span.end + shift),))


def label_weights(ranker: Ranker, column: int) -> Rows:
    """A label's weights for the text vector."""
    level = len(ranker.tree.parents) - 1
    return dense_weights(ranker, level, int(ranker.tree.leaf_positions[column]))


def network_step(
    reading: NetworkInput,
    node: NodeLogit,
    attribution: Attribution,
    number: int,
    count: int,
    tree: LabelTree | None,
) -> Step:
    """The step of a network's path at one node, the ``number``-th of ``count``."""
    margin = attribution.values[number]
    reasons, others = reading.words(attribution.shares[number])
    total = sum(reason.contribution for reason in reasons) + others
    names: tuple[str, ...] = ()
    below = 1
    if number < count - 1 and tree is not None:
        columns = labels_below(tree, len(tree.parents) - count + number, node.node)
        names, below = reading.question.examples(columns), len(columns)
    return Step(
        level=node.level,
        node=node.node,
        nodes=node.nodes,
        margin=margin,
        probability=probability(margin, "sigmoid"),
        counts=node.counts,
        labels=below,
        examples=names,
        bias=node.bias,
        rest=others,
        unattributed=margin - total - node.bias,
        reasons=reasons,
    )


def label_step(
    reading: NetworkInput, ranker: Ranker, terms: TermReader, features: Features, shares: Rows
) -> Step:
    """The label's own margin by a ranker that has no other nodes, from terms and the vector."""
    step = ranker_steps(
        ranker,
        features.parts(),
        reading.question.column,
        params=OWN_MARGIN,
        terms=named_terms(reading.question, terms),
        examples=lambda columns: (),
    )[-1]
    return traced_step(reading, step, shares)


def traced_step(reading: NetworkInput, step: Step, shares: Rows) -> Step:
    """The step with the text vector's contribution traced back to words."""
    words, others = reading.words(shares)
    total = sum(reason.contribution for reason in words) + others
    reasons = (*step.reasons, *words)
    return replace(step, rest=step.rest + others, vector=step.vector - total, reasons=reasons)


def joined_steps(above: Step, own: Step, factor: float, own_factor: float, constant: float) -> Step:
    """One step whose margin is a weighted sum of two."""

    reasons = [
        replace(reason, contribution=by * reason.contribution)
        for step, by in ((above, factor), (own, own_factor))
        for reason in step.reasons
    ]
    return replace(
        own,
        weight=1.0,
        counts=True,
        reasons=tuple(reasons),
        margin=factor * above.margin + own_factor * own.margin + constant,
        bias=factor * above.bias + own_factor * own.bias + constant,
        vector=factor * above.vector + own_factor * own.vector,
        rest=factor * above.rest + own_factor * own.rest,
        unattributed=factor * above.unattributed + own_factor * own.unattributed,
    )


def product(steps: Sequence[Step]) -> float:
    """The product of the probabilities that count."""
    probabilities = [
        step.probability for step in steps if step.counts and step.probability is not None
    ]
    return float(np.prod(probabilities))
