"""How long the linear stages take: rates from a sample, times the work of each stage.

The work is computed from sizes. tf-idf reads every term; a tree is grown from the terms of the
labels, once per halving; on each level of a ranker, all children of a document's nodes (its own and
mined ones) learn from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.methods.linear.method import Linear
from labelgrove.model.outline import Outline
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.negatives import nodes_to_mine
from labelgrove.ranking.solver import RankerParams

WARM_UP, FIRST_SAMPLE = 30, 250  # documents; each further sample is two or four times as large
LONGEST = 0.5  # seconds for one sample; then it is large enough
LARGEST_SHARE = 8  # at most one in this many documents, unless there are few
MARGIN = {"tfidf": 1.6, "tree": 2.0, "ranker": 1.7}  # from measured cases
# A unit of work costs more in a larger problem (caches, larger clusters): documents^GROWTH.
GROWTH = {"tfidf": 0.0, "tree": 0.0, "ranker": 0.1}


@dataclass(frozen=True)
class Estimate:
    """A range of seconds, because samples differ from the corpus and machines are busy at times."""

    low: float = 0.0
    high: float = 0.0

    @classmethod
    def around(cls, seconds: float, factor: float) -> Estimate:
        """From ``seconds / factor`` to ``seconds * factor``."""
        return cls(seconds / factor, seconds * factor)

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.low + other.low, self.high + other.high)

    def __str__(self) -> str:
        low, high = duration(self.low), duration(self.high)
        if self.high < 1:
            return high
        return f"about {high}" if low == high else f"{low} to {high}"


def duration(seconds: float) -> str:
    """Rounded to the precision of an estimate.

    >>> duration(0.2), duration(14.4), duration(200), duration(9000)
    ('under 1 s', '14 s', '3 min', '2.5 h')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{round(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class Work:
    """Amounts of work per stage, each in its own unit."""

    tfidf: float
    tree: float
    ranker: float


@dataclass(frozen=True)
class Rates:
    """Seconds per unit of work: wall time, and CPU time of all threads."""

    wall: Work
    cpu: Work
    terms_per_document: float
    documents: int  # of the sample


def linear_work(
    corpus: Corpus, widths: Sequence[int], ranker: RankerParams, *, terms: float, trees: int = 1
) -> Work:
    """The work of fitting the linear method."""
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
        ranked += documents * below * (width / above) * size
    return Work(
        tfidf=documents * terms,
        tree=trees * label_terms * (1 + math.log2(clusters)),
        ranker=trees * ranked,
    )


def sampled(corpus: Corpus, size: int, seed: int) -> Corpus:
    """A random sample of documents, over the labels that occur in it."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(corpus))[:size])
    taken = corpus.take(rows)
    used = np.flatnonzero(np.bincount(taken.labels.indices, minlength=len(corpus.index)))
    old = corpus.index
    texts = None if old.texts is None else [old.texts[int(column)] for column in used]
    index = LabelIndex([str(column) for column in used], texts=texts)
    return Corpus(taken.texts, taken.labels[:, used], index, None, taken.features)


def linear_rates(
    outline: Outline, corpus: Corpus, *, given: Mapping[str, Any], seed: int, threads: int | None
) -> Rates:
    """Fit larger and larger samples until one takes long enough to trust.

    ``given`` are settings of how given features are read.
    """
    probe = Linear(
        tfidf=outline.tfidf,
        tree=outline.tree,
        ranker=outline.ranker,
        search=outline.search or SearchParams(),
        **given,
        random_state=seed,
        n_jobs=threads,
    )

    def fitted(size: int) -> tuple[Corpus, float]:
        sample = sampled(corpus, size, seed=seed)
        sample = sample if sample.labels.nnz else corpus
        start = time.perf_counter()
        probe.fit(sample)
        return sample, time.perf_counter() - start

    most = max(min(len(corpus), FIRST_SAMPLE), len(corpus) // LARGEST_SHARE)
    size = min(FIRST_SAMPLE, len(corpus))
    fitted(min(WARM_UP, size))  # without the work that a process does only once
    sample, spent = fitted(size)
    while spent <= LONGEST and size < most:
        size = min(most, size * 4 if spent < LONGEST / 8 else size * 2)
        sample, spent = fitted(size)
    return _rates(probe, sample)


def _rates(probe: Linear, sample: Corpus) -> Rates:
    terms = _terms(probe, sample)
    work = linear_work(sample, probe.rankers()[0].tree.widths, probe.ranker, terms=terms)
    rates = {}
    for kind in ("wall", "cpu"):
        spent = {name: getattr(timing, kind) for name, timing in probe.timings_.items()}
        spent["tfidf"] = spent.get("tfidf", spent.get("features", 0.0))
        rates[kind] = Work(**{name: spent[name] / max(getattr(work, name), 1.0) for name in MARGIN})
    return Rates(rates["wall"], rates["cpu"], terms, len(sample))


def _terms(probe: Linear, sample: Corpus) -> float:
    """Distinct terms of a document, on average."""
    given = 0.0
    if probe.facts_.given and sample.features is not None and sample.features.sparse is not None:
        given = sample.features.sparse.nnz / len(sample)
    if sample.texts is None or probe.vectorizer_ is None:
        return given
    few = sample.texts[: min(200, len(sample))]
    return given + float(probe.vectorizer_.transform(few).nnz) / len(few)


def estimated(
    rates: Rates, work: Work, documents: int, *, kind: str = "wall"
) -> dict[str, Estimate]:
    """Seconds per stage for this work on this many documents."""
    per_unit = getattr(rates, kind)
    larger = max(1.0, documents / rates.documents)
    return {
        name: Estimate.around(
            getattr(per_unit, name) * getattr(work, name) * larger ** GROWTH[name], margin
        )
        for name, margin in MARGIN.items()
    }
