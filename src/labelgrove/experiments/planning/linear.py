"""How long the linear stages take: a sample is trained, and its seconds grow with the work.

The work is computed from sizes. tf-idf reads every term; a tree is grown from the terms of the
labels, once per halving; on each level of a ranker, all children of a document's nodes (its own and
mined ones) learn from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.experiments.planning import constants
from labelgrove.methods.base import Model
from labelgrove.methods.cost_estimate import CostEstimate
from labelgrove.methods.linear.method import Linear
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.solver import RankerParams


def linear_work(
    corpus: Corpus, widths: Sequence[int], ranker: RankerParams, *, terms: float
) -> dict[str, float]:
    """The work of each stage of fitting one tree, in units of its own."""
    documents = len(corpus)
    per_document = corpus.labels.nnz / max(documents, 1)
    size = terms + corpus.width
    counts = np.bincount(corpus.labels.indices, minlength=1).astype(np.float64)
    # The documents of a label share terms: n documents have about n^0.7 times those of one.
    label_terms = float((counts**0.7).sum()) * size
    clusters = widths[-2] if len(widths) > 1 else 1
    ranked = 0.0
    for level, width in enumerate(widths):
        above = widths[level - 1] if level else 1
        below = min(per_document, above) if level else 1.0
        last = level == len(widths) - 1
        if level and "man" in ranker.negatives and (last or ranker.mined_levels == "all"):
            below = min(below + nodes_to_mine(ranker.mined_nodes or "auto", terms, beam=0), above)
        ranked += documents**constants.RANKER_GROWTH * below * (width / above) * size
    tree = label_terms * (1 + math.log2(clusters))
    return {"tfidf": documents * terms, "tree": tree, "ranker": ranked}


def sampled(corpus: Corpus, size: int, seed: int, vectors: int = 0) -> Corpus:
    """A random sample of documents, over the labels that occur in it, with made-up text vectors."""
    rng = np.random.default_rng(seed)
    taken = corpus.take(np.sort(rng.permutation(len(corpus))[:size]))
    used = np.flatnonzero(np.bincount(taken.labels.indices, minlength=len(corpus.index)))
    old = corpus.index
    texts = None if old.texts is None else [old.texts[int(column)] for column in used]
    index = LabelIndex([str(column) for column in used], texts=texts)
    features = taken.features
    if vectors:
        dense = rng.standard_normal((len(taken), vectors), np.float32)
        features = Features(None if features is None else features.sparse, dense)
    return Corpus(taken.texts, taken.labels[:, used], index, None, features)


def linear_rates(
    cost_estimate: CostEstimate, corpus: Corpus, given: Mapping[str, Any]
) -> tuple[dict[str, float], float]:
    """Seconds per unit of work and terms per document of a sample that is large enough to trust."""
    probe = Linear(
        tfidf=cost_estimate.tfidf,
        tree=cost_estimate.tree,
        ranker=cost_estimate.ranker,
        search=cost_estimate.search or SearchParams(),
        **given,
    )

    def fitted(size: int) -> tuple[Corpus, float]:
        sample = sampled(corpus, size, 0, cost_estimate.vectors)
        sample = sample if sample.labels.nnz else corpus
        start = time.perf_counter()
        probe.fit(sample)
        return sample, time.perf_counter() - start

    longest, size = constants.LONGEST, min(constants.FIRST_SAMPLE, len(corpus))
    most = max(size, len(corpus) // constants.LARGEST_SHARE)
    fitted(min(constants.WARM_UP, size))  # without the work that a process does only once
    sample, spent = fitted(size)
    while spent <= longest and size < most:
        size = min(most, size * 4 if spent < longest / 8 else size * 2)
        sample, spent = fitted(size)
    seconds = {name: timing.wall for name, timing in probe.timings_.items()}
    seconds["tfidf"] = seconds.get("tfidf", seconds.get("features", 0.0))
    terms = _terms(probe, sample)
    work = linear_work(sample, probe.rankers()[0].tree.widths, probe.ranker, terms=terms)
    return {name: seconds[name] / max(units, 1.0) for name, units in work.items()}, terms


def _terms(probe: Linear, sample: Corpus) -> float:
    """Distinct terms of a document, on average."""
    given = 0.0
    if probe.facts_.given and sample.features is not None and sample.features.sparse is not None:
        given = sample.features.sparse.nnz / len(sample)
    if sample.texts is None or probe.vectorizer_ is None:
        return given
    few = sample.texts[: min(200, len(sample))]
    return given + float(probe.vectorizer_.transform(few).nnz) / len(few)


def two_samples(model: Model, corpus: Corpus) -> float:
    """Seconds of a method whose stages are not known: those of samples, in a line further on."""
    spent: list[float] = []
    sizes = [min(size, len(corpus)) for size in constants.TWO_SAMPLES]
    rows = np.random.default_rng(model.random_state).permutation(len(corpus))
    config = model.to_config()
    for size in (min(constants.WARM_UP, sizes[0]), *sizes):
        taken = corpus.take(np.sort(rows[:size]))
        start = time.perf_counter()
        type(model).from_config(config).fit(taken if taken.labels.nnz else corpus)
        spent.append(time.perf_counter() - start)
    _, first, second = spent
    slope = max(0.0, second - first) / max(1, sizes[1] - sizes[0])
    return max(first, second) + slope * (len(corpus) - sizes[1])
