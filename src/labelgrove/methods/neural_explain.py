"""Why a network gives a label: what the words of a text give to the logits on the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from labelgrove.beam import SearchParams
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.explanation import Path, Step
from labelgrove.features import Features
from labelgrove.methods.neural import prediction_runner
from labelgrove.methods.reranking import Reranker
from labelgrove.nn.attribution import Attribution, attribute, word_reasons
from labelgrove.nn.batches import Batch
from labelgrove.nn.heads import NodeLogit
from labelgrove.nn.network import Network
from labelgrove.nn.tokens import TokenPlace, token_places
from labelgrove.ranker_path import (
    Examples,
    dense_weights,
    labels_below,
    probability,
    ranker_steps,
    weighted,
)
from labelgrove.term_spans import terms_by_column
from labelgrove.tree import LabelTree

OWN_MARGIN = SearchParams(last_level="noop")


def neural_paths(
    model: Any, text: Any, column: int, *, examples: Examples, gradient_steps: int
) -> list[Path]:
    """The network's way to a label and, where there is one, its reranker's; scores add up."""
    if not isinstance(text, str):
        raise DataError(f"{model.method} reads text: explain one string, not {type(text).__name__}")
    if not hasattr(model.network_.heads, "path"):
        raise UnsupportedError(f"{model.method} cannot be explained: its network shows no path")
    runner = prediction_runner(model)
    network = runner.network.eval()
    reading = _Reading(network, text, runner.device)
    reranker: Reranker | None = model.reranker_
    weights = None
    if reranker is not None:
        last = len(reranker.ranker.tree.parents) - 1
        leaf = int(reranker.ranker.tree.leaf_positions[column])
        weights = dense_weights(reranker.ranker, last, leaf)
    logits, vector, found = reading.explain(
        column,
        weights,
        normalise=reranker is not None and reranker.params.normalise,
        steps=gradient_steps,
    )
    tree = getattr(model, "tree_", None)
    steps = [
        _network_step(reading, logit, found, number, len(logits), tree, examples)
        for number, logit in enumerate(logits)
    ]
    steps = weighted(steps, "sigmoid")
    chances = [step.probability for step in steps if step.counts and step.probability is not None]
    score = float(np.prod(chances))
    share = 0.0 if reranker is None else reranker.params.share
    paths = [Path("network", 1.0 - share, score, tuple(steps))]
    if reranker is not None:
        paths.append(_rerank_path(reranker, reading, column, vector, found, examples))
    return paths


@dataclass(frozen=True)
class _Reading:
    """A text as a network reads it."""

    network: Network
    text: str
    device: torch.device

    def tokens(self) -> tuple[Tensor, list[TokenPlace]]:
        encoder = self.network.encoder
        ids, places = token_places(self.text, encoder, encoder.max_tokens)
        return torch.from_numpy(ids.astype(np.int64))[None].to(self.device), places

    def explain(
        self, column: int, weights: Any, *, normalise: bool, steps: int
    ) -> tuple[list[NodeLogit], Any, Attribution]:
        """Logits on the way, the text vector, and what tokens give to them and weights x vector."""
        ids, places = self.tokens()
        special = [place.word < 0 for place in places]
        kept: dict[str, Any] = {}
        dense = None if weights is None else torch.as_tensor(weights, device=self.device)

        def read(ids: Tensor) -> Sequence[Tensor]:
            rows = np.arange(len(ids))
            batch = Batch(rows, ids, torch.ones_like(ids), tokens=ids.numel())
            states = self.network.states(batch)
            logits = self.network.heads.path(states, column)
            numbers = [logit.logit for logit in logits]
            kept["logits"] = logits
            if dense is not None:
                vector = self.network.heads.text(states).float()
                vector = functional.normalize(vector) if normalise else vector
                kept["vector"] = vector[-1:].detach().cpu().numpy()
                numbers.append(vector.double() @ dense)
            return numbers

        found = attribute(self.network.encoder, ids, read, special=special, steps=steps)
        return kept["logits"], kept.get("vector"), found


def _network_step(
    reading: _Reading,
    logit: NodeLogit,
    found: Attribution,
    number: int,
    count: int,
    tree: LabelTree | None,
    examples: Examples,
) -> Step:
    margin = found.values[number]
    reasons, others = word_reasons(reading.text, reading.tokens()[1], found.shares[number])
    given = sum(reason.contribution for reason in reasons) + others
    last = number == count - 1
    names: tuple[str, ...] = ()
    below = 1
    if not last and tree is not None:
        columns = labels_below(tree, len(tree.parents) - count + number, logit.node)
        names, below = examples(columns), len(columns)
    return Step(
        level=logit.level,
        node=logit.node,
        nodes=logit.nodes,
        margin=margin,
        probability=probability(margin, "sigmoid"),
        counts=logit.counts,
        labels=below,
        examples=names,
        bias=logit.bias,
        rest=others,
        unattributed=margin - given - logit.bias,
        reasons=reasons,
    )


def _rerank_path(
    reranker: Reranker,
    reading: _Reading,
    column: int,
    vector: Any,
    found: Attribution,
    examples: Examples,
) -> Path:
    """One step: the ranker's margin for the label, from tf-idf terms and from the text vector.

    What the vector gives is handed on to the words that the network read.
    """
    terms = reranker.vectorizer.transform([reading.text])
    features = Features(sparse=terms, dense=vector)
    features = features.normalised() if reranker.params.normalise else features
    step = ranker_steps(
        reranker.ranker,
        features.parts(),
        column,
        params=OWN_MARGIN,
        terms=terms_by_column(reading.text, reranker.vectorizer),
        examples=examples,
    )[-1]
    words, others = word_reasons(reading.text, reading.tokens()[1], found.shares[-1])
    given = sum(reason.contribution for reason in words) + others
    chance = probability(step.margin, "sigmoid")
    assert chance is not None
    step = replace(
        step,
        level=1,
        probability=chance,
        rest=others,
        vector=step.vector - given,
        reasons=(*step.reasons, *words),
    )
    return Path("reranker", reranker.params.share, chance, (step,))
