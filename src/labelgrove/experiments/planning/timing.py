"""How long stages take: samples are trained, and their seconds grow with the work.

The work of linear stages is computed from sizes. tf-idf reads every term; a tree is grown from the
terms of the labels, once per halving; on each level of a ranker, all children of a document's nodes
(its own and mined ones) learn from it. Of an encoder, a few updates are timed.

What cannot be measured in a second is a number here, with its source. ``benchmarks/scale/plans.py``
compares plans with trainings: refit the numbers to what it prints.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features
from labelgrove.methods.base import Model
from labelgrove.methods.cost_estimate import CostEstimate, EncoderWork
from labelgrove.methods.linear.method import Linear
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.solver import RankerParams

# A plan is a range, from the estimate divided by this to the estimate times this.
MARGIN = 1.6
# Documents of the samples that are trained, and the seconds after which one is large enough.
WARM_UP, FIRST_SAMPLE, LONGEST, LARGEST_SHARE = 30, 250, 0.5, 4
# Documents of the two samples of methods whose stages are not known.
TWO_SAMPLES = (100, 800)
# A ranker's time grows with documents to this power: a document costs 1.25 times more among 6,000
# of eurlex57k than among 1,000, and 1.14 times more among 8,000 of tibkat.
RANKER_GROWTH = 1.1
# A ranker over shortlists, per document, label and column, beside one below a tree: 2.1 to 2.8 ns
# and 0.56 to 0.8 (384 dense columns, 500 and 2,000 documents of eurlex57k and tibkat).
SHORTLIST_COST = 3.5
# Seconds of a learnt merge per validation document and member, with the lists that it merges: 0.6
# to 1 ms with 450 of them and two members (commits, eurlex57k, tibkat) on a fast core, twice that
# on a slow one.
MERGE = 1.5e-3

# Tokens per second of reading, beside learning: one pass of three on a CPU; on
# an H200 3.4 to 3.8 million beside 1.1 (eurlex57k and tibkat).
READING = {"cpu": 3.0, "cuda": 3.2}
# Loading the encoder, moving it, and the first batch: H200 trainings of neural.jsonl take so much
# longer than their stages and updates.
START = {"cpu": 0.5, "cuda": 8.0}
# On a CPU the timed batch has as many tokens as are this many products of tokens and parameters
# (about half a second on two cores); larger batches have the same speed.
TIMED_ON_CPU = 1e10
# Updates that are timed at most, the first without counting, and the seconds of a long one.
UPDATES, LONG_UPDATE = 4, 1.0
# The plain layer in place of heads has all labels, or as many as a shortlist if there are more.
WIDEST_HEAD, SHORTLIST = 30_000, 2_000


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
        ranked += documents**RANKER_GROWTH * below * (width / above) * size
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

    longest, size = LONGEST, min(FIRST_SAMPLE, len(corpus))
    most = max(size, len(corpus) // LARGEST_SHARE)
    fitted(min(WARM_UP, size))  # without the work that a process does only once
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
    sizes = [min(size, len(corpus)) for size in TWO_SAMPLES]
    rows = np.random.default_rng(model.random_state).permutation(len(corpus))
    config = model.to_config()
    for size in (min(WARM_UP, sizes[0]), *sizes):
        taken = corpus.take(np.sort(rows[:size]))
        start = time.perf_counter()
        type(model).from_config(config).fit(taken if taken.labels.nnz else corpus)
        spent.append(time.perf_counter() - start)
    _, first, second = spent
    slope = max(0.0, second - first) / max(1, sizes[1] - sizes[0])
    return max(first, second) + slope * (len(corpus) - sizes[1])


class EncoderCosts(NamedTuple):
    """Seconds per text of tokenising, per token of the passes, and per update of the optimiser."""

    text: float
    token: float
    update: float
    tokens: float  # per text
    cut: float  # share of texts that are too long
    device: str


def encoder_costs(work: EncoderWork, texts: Sequence[Any], labels: int) -> EncoderCosts:
    """Times a few updates of the encoder with a plain layer for its heads."""
    import torch  # a plan of the linear method must work without it
    from torch import nn

    from labelgrove.methods.neural import make_batches
    from labelgrove.nn.batches import PackedBatch
    from labelgrove.nn.encoders.encoder import load_encoder
    from labelgrove.nn.encoders.tokens import tokenize
    from labelgrove.nn.training.devices import (
        autocast,
        choose_device,
        choose_precision,
        own_settings,
    )
    from labelgrove.nn.training.optim import AdamW
    from labelgrove.nn.training.params import TrainingParams

    def now() -> float:
        """The time when all work so far is done."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    params, device = work.training, choose_device()
    encoder = load_encoder(work.encoder)
    count = min(len(texts), UPDATES * max(64, params.batch_size))
    rows = np.random.default_rng(0).permutation(len(texts))[:count]
    sample, start = [texts[row] for row in rows], time.perf_counter()
    tokens = tokenize(sample, encoder, encoder.max_tokens)
    per_text, mean = (time.perf_counter() - start) / count, float(tokens.lengths.mean())
    if device.type == "cpu":
        count = sum(weight.numel() for weight in encoder.parameters())
        size = min(params.batch_size, max(1, int(TIMED_ON_CPU / count / mean)))
        params = replace(params, batch_size=size)
    outputs = labels if labels <= WIDEST_HEAD else SHORTLIST
    head = nn.Linear(encoder.width, outputs).to(device)
    encoder.record(device.type == "cuda")
    weights = [*encoder.to(device).train().parameters(), *head.parameters()]
    optimizer = AdamW([{"params": weights, "lr": 1e-6, "weight_decay": 0.0}], TrainingParams())
    spent: list[tuple[float, float]] = []
    batches: Any = make_batches(tokens, encoder, params, seed=0)
    with own_settings(device, tf32=params.tf32):
        for batch in islice(batches.epoch(0), UPDATES):
            optimizer.clear()
            start, here = now(), batch.to(device)
            with autocast(choose_precision(params.precision, device), device):
                packed = isinstance(here, PackedBatch)
                (state,) = encoder.packed(here) if packed else encoder(here.ids, here.attention)
                loss = nn.functional.softplus(head(state)).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            middle = now()
            optimizer.step()
            end = now()
            spent.append(((middle - start) / batch.tokens, end - middle))
            if len(spent) > 1 and end - start > LONG_UPDATE:
                break
    counted = spent[1:] or spent  # the first one also sets things up
    token, update = map(median, zip(*counted, strict=True))
    cut = float((tokens.lengths >= encoder.max_tokens).mean())
    return EncoderCosts(per_text, token, update, mean, cut, device.type)
