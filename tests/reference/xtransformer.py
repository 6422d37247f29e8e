"""X-Transformer, literally: one document, one cluster, one label at a time.

Semantic label indexing gives clusters; the matcher learns which clusters a document needs; a ranker
per label learns from the documents whose true or predicted clusters hold the label.
"""

from __future__ import annotations

import math

import numpy as np

from reference.solver import solve


def cluster_count(labels):
    """2 to the depth of the public code, int(log2(L // 100 + 1)) + 1."""
    return 2 ** (int(math.log2(labels // 100 + 1)) + 1)


def label_vectors(features, labels, kind="weighted"):
    """PIFA: the sum of a label's documents, in unit length.

    In the public code a document counts one over the root of its number of labels; in the paper
    ("plain") v_l = sum of phi(x_i) over the documents with the label.
    """
    vectors = np.zeros((labels.shape[1], features.shape[1]))
    for label in range(labels.shape[1]):
        for document in range(len(labels)):
            if labels[document, label]:
                count = (labels[document] > 0).sum() if kind == "weighted" else 1
                vectors[label] += features[document] / math.sqrt(count)
        length = math.sqrt((vectors[label] ** 2).sum())
        if length:
            vectors[label] /= length
    return vectors


def cluster_targets(labels, cluster_of, clusters):
    """m: 1 where a document has a label in the cluster, however many; else 0."""
    targets = np.zeros((len(labels), clusters))
    for document in range(len(labels)):
        for label in range(labels.shape[1]):
            if labels[document, label]:
                targets[document, cluster_of[label]] = 1
    return targets


def matcher_loss(states, targets, weight, bias):
    """Mean over documents and clusters of max(0, 1 - m~ z)^2, m~ in {-1, 1}, z = w x + b."""
    total = 0.0
    for document, state in enumerate(states):
        for cluster in range(len(weight)):
            sign = 1.0 if targets[document, cluster] else -1.0
            margin = sign * (weight[cluster] @ state + bias[cluster])
            total = total + (1.0 - margin).clamp(min=0.0) ** 2
    return total / (len(states) * len(weight))


def best_clusters(scores, b):
    """The b best clusters of one document, best first, the lower number first of equals."""
    return sorted(range(len(scores)), key=lambda cluster: (-scores[cluster], cluster))[:b]


def seen_clusters(labels, cluster_of, matcher_scores, *, negatives, b):
    """M: whose labels learn from a document. tfn: true clusters; man: the matcher's b best."""
    seen = np.zeros(matcher_scores.shape, bool)
    if negatives in ("tfn", "tfn+man"):
        seen |= cluster_targets(labels, cluster_of, matcher_scores.shape[1]) > 0
    if negatives in ("man", "tfn+man"):
        for document, scores in enumerate(matcher_scores):
            seen[document, best_clusters(scores, b)] = True
    return seen


def ranker_features(terms, vectors, *, which, scale):
    """Each block of unit length; "joint" makes both together of unit length again."""

    def unit(rows):
        lengths = np.sqrt((rows**2).sum(axis=1, keepdims=True))
        return rows / np.where(lengths > 0, lengths, 1.0)

    blocks = {"tfidf": [terms], "neural": [vectors], "both": [terms, vectors]}[which]
    joined = np.hstack([unit(block.astype(np.float64)) for block in blocks])
    return unit(joined) if scale == "joint" else joined


def ranker_weights(features, labels, cluster_of, seen, *, C=1.0):
    """Per label (bias last): squared hinge over the documents that see it and its positives.

    A label that nobody bears says -1; one that is alone in its cluster and borne by all who see it
    has nothing to learn and says 1.
    """
    rows = np.hstack([features, np.ones((len(features), 1))])
    weights = []
    for label in range(labels.shape[1]):
        positive = labels[:, label] > 0
        part = positive | seen[:, cluster_of[label]]
        if not positive.any():
            weights.append(np.append(np.zeros(features.shape[1]), -1.0))
            continue
        if (np.asarray(cluster_of) == cluster_of[label]).sum() == 1 and positive[part].all():
            weights.append(np.append(np.zeros(features.shape[1]), 1.0))
            continue
        signs = np.where(positive, 1.0, -1.0)
        costs = np.full(int(part.sum()), C)
        weights.append(solve(rows[part], signs[part], costs, "squared_hinge"))
    return np.array(weights)


def combined(g, h, learnt=None):
    """sigma(g, h): h alone, or a logistic of both."""
    if learnt is None:
        return h
    return 1.0 / (1.0 + math.exp(-(learnt[0] * g + learnt[1] * h + learnt[2])))


def predict(matcher_scores, features, weights, cluster_of, k, *, b, learnt=None):
    """The k best (label, f) of one document; labels outside the b best clusters have no score."""
    kept = best_clusters(matcher_scores, b)
    scored = []
    for label, cluster in enumerate(cluster_of):
        if cluster in kept:
            h = float(weights[label, :-1] @ features + weights[label, -1])
            scored.append((label, combined(float(matcher_scores[cluster]), h, learnt)))
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]
