"""Why a neural method gives a label: what words give to networks and to rankers that read vectors.

A network's words are tokens of the encoder, found by gradients. A ranker's words are tf-idf terms;
what it makes of a text vector is handed on to the tokens that the vector was made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from labelgrove.data.features import Features
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.explaining.attribution import Attribution, attribute, word_reasons
from labelgrove.explaining.rankers import (
    Examples,
    dense_weights,
    labels_below,
    node_path,
    probability,
    ranker_steps,
    weighted,
)
from labelgrove.explaining.spans import terms_by_column
from labelgrove.explaining.types import Path, Reason, Step
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.inputs import document_parts
from labelgrove.methods.neural import prediction_runner
from labelgrove.nn.batches.padded import Batch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import token_places
from labelgrove.nn.heads.layers import NodeLogit
from labelgrove.nn.network import Network
from labelgrove.nn.training.devices import choose_device
from labelgrove.ranking.beam import OWN_MARGIN, SearchParams
from labelgrove.ranking.ranker import Ranker
from labelgrove.scores.predictions import ScoreKind
from labelgrove.text.tfidf import Tfidf

Rows = npt.NDArray[np.float64]


class NeuralPaths(NamedTuple):
    """The ways to a label, and what their scores are."""

    paths: list[Path]
    kind: ScoreKind


def neural_paths(
    model: Any, text: Any, column: int, *, examples: Examples, gradient_steps: int
) -> NeuralPaths:
    """How a fitted neural method comes to a label's score."""
    if not isinstance(text, str):
        raise DataError(f"{model.method} reads text: explain one string, not {type(text).__name__}")
    explained: Callable[..., NeuralPaths] | None = None
    if hasattr(model, "reranker_") and hasattr(model.network_.heads, "path"):
        explained = _by_network
    elif hasattr(model, "network_") and hasattr(model, "ranking"):
        explained = _by_matcher
    elif hasattr(model, "encoder_") and isinstance(getattr(model, "ranker_", None), Ranker):
        explained = _by_ranker
    elif hasattr(model, "embedder_"):
        explained = _by_vectors
    if explained is None:
        raise UnsupportedError(
            f"the method {model.method} cannot be explained; train linear on the same documents "
            "and ask it"
        )
    return explained(model, text, column, examples, gradient_steps)


def _by_network(
    model: Any, text: str, column: int, examples: Examples, gradient_steps: int
) -> NeuralPaths:
    """LightXML and CascadeXML: the network's own path, and its reranker's where there is one."""
    reading = _Reading.of_network(model, text, gradient_steps)
    reranker = model.reranker_
    weights = None
    if reranker is not None:
        weights = _label_weights(reranker.ranker, column)
    unit = reranker is not None and reranker.params.normalise
    logits, vector, found = reading.logits(column, weights, unit=unit)
    tree = getattr(model, "tree_", None)
    steps = [
        _network_step(reading, logit, found, number, len(logits), tree, examples)
        for number, logit in enumerate(logits)
    ]
    steps = weighted(steps, "sigmoid")
    share = 0.0 if reranker is None else reranker.params.share
    paths = [Path("network", 1.0 - share, _product(steps), tuple(steps))]
    if reranker is not None:
        features = Features(sparse=reranker.vectorizer.transform([text]), dense=vector)
        features = features.normalised() if unit else features
        step = _label_step(
            reading, reranker.ranker, reranker.vectorizer, features, column, found.shares[-1]
        )
        step = replace(step, probability=probability(step.margin, "sigmoid"))
        paths.append(Path("reranker", share, _product([step]), (step,)))
    return NeuralPaths(paths, "product")


def _by_matcher(
    model: Any, text: str, column: int, examples: Examples, gradient_steps: int
) -> NeuralPaths:
    """X-Transformer: the matcher's margin for the label's cluster, the ranker's for the label."""
    from labelgrove.methods.xtransformer.ranking import ranker_features

    ranker, params, learnt = model.ranker_.ranker, model.ranking, model.ranker_.learnt
    cluster = node_path(ranker.tree, column)[0]
    reading = _Reading.of_network(model, text, gradient_steps)
    terms = model.vectorizer_.transform([text])
    # How long the vector is beside the terms does not depend on its direction.
    block = ranker_features(terms, np.ones((1, max(1, ranker.width))), params).dense
    length = 0.0 if block is None else float(np.linalg.norm(block))
    weights = length * _label_weights(ranker, column) if ranker.width else None
    (logit,), vector, found = reading.logits(cluster, weights, unit=True)
    above = _network_step(reading, logit, found, 0, 2, ranker.tree, examples)
    shares = found.shares[-1] if ranker.width else np.zeros(found.shares.shape[1])
    features = ranker_features(terms, vector, params)
    own = _label_step(reading, ranker, model.vectorizer_, features, column, shares)
    if params.combine == "product":
        kinds = params.cluster_transform, params.label_transform
        pair = [
            replace(step, probability=probability(step.margin, kind))
            for step, kind in zip((above, own), kinds, strict=True)
        ]
        # Both count alike; their transforms differ, so no common scale would weigh them better.
        steps = [replace(step, weight=0.5) for step in pair]
        return NeuralPaths(
            [Path("matcher and ranker", 1.0, _product(steps), tuple(steps))], "product"
        )
    above = replace(above, counts=False, weight=0.0, probability=None)
    if params.combine == "learnt":
        both = _joined(above, own, learnt.cluster, learnt.label, learnt.constant)
        chance = probability(both.margin, "sigmoid")
        both = replace(both, probability=chance)
        return NeuralPaths(
            [Path("matcher and ranker", 1.0, _product([both]), (both,))], "probability"
        )
    return NeuralPaths([Path("ranker", 1.0, own.margin, (above, own))], "margin")


def _by_ranker(
    model: Any, text: str, column: int, examples: Examples, gradient_steps: int
) -> NeuralPaths:
    """XR-Transformer: a ranker's path down its tree, on tf-idf and text vectors."""
    device = choose_device(model.device)
    reading = _Reading(model.encoder_.to(device).eval(), None, text, device, gradient_steps)
    document = model._features([text])
    return _ranker_paths(model, [model.ranker_], document, text, reading, column, examples)


def _by_vectors(
    model: Any, text: str, column: int, examples: Examples, gradient_steps: int
) -> NeuralPaths:
    """The linear method on vectors that an encoder makes, or word2vec, which has no tokens."""
    embedder = model.embedder_
    reading = None
    if isinstance(embedder, torch.nn.Module):
        device = choose_device(model.device)
        embedder = embedder.to(device).eval()
        network = embedder if isinstance(embedder, Network) else None
        encoder = embedder if isinstance(embedder, Encoder) else embedder.encoder
        reading = _Reading(cast(Encoder, encoder), network, text, device, gradient_steps)
    terms = None if model.vectorizer_ is None else model.vectorizer_.transform([text])
    document = document_parts(
        Features(terms, model._vectors_of([text], threads=1)),
        None,
        vectorizer=None,
        terms=model.linear_.ranker_.features,
        width=model.facts_.width,
        dense_norm=model.linear_.dense_norm,
    )
    rankers = model.linear_.rankers_
    return _ranker_paths(model, rankers, document, text, reading, column, examples)


def _ranker_paths(
    model: Any,
    rankers: Sequence[Ranker],
    document: Any,
    text: str,
    reading: _Reading | None,
    column: int,
    examples: Examples,
) -> NeuralPaths:
    """Paths down one tree or several on terms and a text vector, which is handed on to words."""
    search: SearchParams = model.search
    terms = terms_by_column(text, model.vectorizer_) if rankers[0].features else None
    found = [
        ranker_steps(
            ranker, ranker.parts(document), column, params=search, terms=terms, examples=examples
        )
        for ranker in rankers
    ]
    if reading is not None:
        weights = [
            dense_weights(ranker, level, node)
            for ranker in rankers
            for level, node in enumerate(node_path(ranker.tree, column))
        ]
        shares = iter(reading.products(np.stack(weights)).shares)
        found = [[_handed_on(reading, step, next(shares)) for step in steps] for steps in found]
        kind = "noop" if search.last_level == "noop" else search.post_processor
        found = [weighted(steps, kind) for steps in found]
    paths = []
    for number, (ranker, steps) in enumerate(zip(rankers, found, strict=True), 1):
        parts = ranker.parts(document)
        score = float(ranker.score(parts, [column], params=search, threads=1)[0, 0])
        name = "tree" if len(rankers) == 1 else f"tree {number}"
        paths.append(Path(name, 1.0 / len(rankers), score, tuple(steps)))
    return NeuralPaths(paths, search.score_kind)


@dataclass(frozen=True)
class _Reading:
    """A text as an encoder, and a network around it, read it."""

    encoder: Encoder
    network: Network | None
    text: str
    device: torch.device
    steps: int

    @classmethod
    def of_network(cls, model: Any, text: str, steps: int) -> _Reading:
        runner = prediction_runner(model)
        network = runner.network.eval()
        return cls(network.encoder, network, text, runner.device, steps)

    def words(self, shares: Rows) -> tuple[tuple[Reason, ...], float]:
        """What words give, and special tokens."""
        places = token_places(self.text, self.encoder, self.encoder.max_tokens)[1]
        return word_reasons(self.text, places, shares)

    def attribute(self, read: Callable[[Tensor], Sequence[Tensor]]) -> Attribution:
        """What tokens give to what is read."""
        ids, places = token_places(self.text, self.encoder, self.encoder.max_tokens)
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        special = [place.word < 0 for place in places]
        return attribute(self.encoder, tokens, read, special=special, steps=self.steps)

    def logits(
        self, column: int, weights: Rows | None, *, unit: bool
    ) -> tuple[list[NodeLogit], Any, Attribution]:
        """Logits on the way, the text vector, and what tokens give to them and weights x vector."""
        kept: dict[str, Any] = {}
        dense = None if weights is None else torch.as_tensor(weights, device=self.device)
        network = self.network
        assert network is not None

        def read(ids: Tensor) -> Sequence[Tensor]:
            states = self._states(ids)
            kept["logits"] = network.heads.path(states, column)
            numbers = [node.logit for node in kept["logits"]]
            vector = network.heads.text(states).float()
            vector = functional.normalize(vector) if unit else vector
            kept["vector"] = vector[-1:].detach().cpu().numpy()
            if dense is not None:
                numbers.append(vector.double() @ dense)
            return numbers

        found = self.attribute(read)
        return kept["logits"], kept["vector"], found

    def _states(self, ids: Tensor) -> list[Tensor]:
        assert self.network is not None
        rows = np.arange(len(ids))
        return self.network.states(Batch(rows, ids, torch.ones_like(ids), tokens=ids.numel()))

    def products(self, weights: Rows) -> Attribution:
        """What tokens give to each of ``weights`` times the unit text vector."""
        table = torch.as_tensor(weights, device=self.device)

        def read(ids: Tensor) -> Sequence[Tensor]:
            if self.network is None:
                vectors = self.encoder.forward(ids, None)[0]
            else:
                vectors = self.network.heads.text(self._states(ids))
            return list((functional.normalize(vectors.float()).double() @ table.T).T)

        return self.attribute(read)


def _label_weights(ranker: Ranker, column: int) -> Rows:
    """A label's weights for the text vector."""
    level = len(ranker.tree.parents) - 1
    return dense_weights(ranker, level, int(ranker.tree.leaf_positions[column]))


def _network_step(
    reading: _Reading,
    node: NodeLogit,
    found: Attribution,
    number: int,
    count: int,
    tree: LabelTree | None,
    examples: Examples,
) -> Step:
    margin = found.values[number]
    reasons, others = reading.words(found.shares[number])
    given = sum(reason.contribution for reason in reasons) + others
    names: tuple[str, ...] = ()
    below = 1
    if number < count - 1 and tree is not None:
        columns = labels_below(tree, len(tree.parents) - count + number, node.node)
        names, below = examples(columns), len(columns)
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
        unattributed=margin - given - node.bias,
        reasons=reasons,
    )


def _label_step(
    reading: _Reading,
    ranker: Ranker,
    vectorizer: Tfidf,
    features: Features,
    column: int,
    shares: Rows,
) -> Step:
    """The label's own margin by a ranker that knows no other nodes, from terms and the vector."""
    step = ranker_steps(
        ranker,
        features.parts(),
        column,
        params=OWN_MARGIN,
        terms=terms_by_column(reading.text, vectorizer),
        examples=lambda columns: (),
    )[-1]
    return _handed_on(reading, step, shares)


def _handed_on(reading: _Reading, step: Step, shares: Rows) -> Step:
    """What the text vector gives, handed on to the words that it was made of."""
    words, others = reading.words(shares)
    given = sum(reason.contribution for reason in words) + others
    reasons = (*step.reasons, *words)
    return replace(step, rest=step.rest + others, vector=step.vector - given, reasons=reasons)


def _joined(above: Step, own: Step, factor: float, own_factor: float, constant: float) -> Step:
    """One step whose margin is a weighted sum of two."""

    def scaled(step: Step, by: float) -> list[Reason]:
        return [replace(r, contribution=by * r.contribution) for r in step.reasons]

    sums = {
        name: factor * getattr(above, name) + own_factor * getattr(own, name)
        for name in ("margin", "bias", "vector", "rest", "unattributed")
    }
    sums["margin"] += constant
    sums["bias"] += constant
    reasons = (*scaled(above, factor), *scaled(own, own_factor))
    return replace(own, weight=1.0, counts=True, reasons=reasons, **sums)


def _product(steps: Sequence[Step]) -> float:
    chances = [step.probability for step in steps if step.counts and step.probability is not None]
    return float(np.prod(chances))
