"""Why X-Transformer gives a label: margins of the matcher for its cluster, of the ranker for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from labelgrove.explaining.networks import (
    Reading,
    joined_steps,
    label_step,
    label_weights,
    network_step,
    product,
)
from labelgrove.explaining.rankers import node_path, probability
from labelgrove.methods.xtransformer.ranking import ClusterRanker, ranker_features
from labelgrove.model.explanation import Path, Paths, Question
from labelgrove.nn.network import Network
from labelgrove.text.tfidf import Tfidf


def matcher_paths(
    network: Network,
    orderer: ClusterRanker,
    vectorizer: Tfidf,
    question: Question,
    device: torch.device,
) -> Paths:
    """One path of two steps: the cluster, and the label in it."""
    ranker, params, learnt = orderer.ranker, orderer.params, orderer.learnt
    column = question.column
    cluster = node_path(ranker.tree, column)[0]
    reading = Reading(network.encoder, network, question, device)
    terms = vectorizer.transform([reading.text])
    # How long the vector is beside the terms does not depend on its direction.
    block = ranker_features(terms, np.ones((1, max(1, ranker.width))), params).dense
    length = 0.0 if block is None else float(np.linalg.norm(block))
    weights = length * label_weights(ranker, column) if ranker.width else None
    (logit,), vector, attribution = reading.logits(cluster, weights, unit=True)
    above = network_step(reading, logit, attribution, 0, 2, ranker.tree)
    shares = attribution.shares[-1] if ranker.width else np.zeros(attribution.shares.shape[1])
    features = ranker_features(terms, vector, params)
    own = label_step(reading, ranker, vectorizer, features, shares)
    if params.combine == "product":
        kinds = params.cluster_transform, params.label_transform
        # Both count alike; their transforms differ, so no common scale would weigh them better.
        steps = [
            replace(step, probability=probability(step.margin, kind), weight=0.5)
            for step, kind in zip((above, own), kinds, strict=True)
        ]
        return Paths([Path("matcher and ranker", 1.0, product(steps), tuple(steps))], "product")
    above = replace(above, counts=False, weight=0.0, probability=None)
    if params.combine == "learnt":
        assert learnt is not None
        both = joined_steps(above, own, learnt.cluster, learnt.label, learnt.constant)
        both = replace(both, probability=probability(both.margin, "sigmoid"))
        return Paths([Path("matcher and ranker", 1.0, product([both]), (both,))], "probability")
    return Paths([Path("ranker", 1.0, own.margin, (above, own))], "margin")
