"""Tallies of parts give the figures of all documents together, to the last bit."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import evaluate
from labelgrove.evaluation.metrics.measures import Ratio, Sums, mean
from labelgrove.evaluation.metrics.tallies import Tally
from labelgrove.evaluation.predictions import Predictions

METRICS = [
    *("P@3", "nDCG@5", "PSP@5", "PSnDCG@3", "R@5", "RP@5", "F1@3", "micro-F1@5", "tail-R@5"),
    *("macro-F1@5", "macro-P@3", "macro-R@5", "coverage@5", "head-P@3", "F1@t=0.7"),
]


def documents(seed, count=400, labels=60):
    """Predictions, true labels, numbers of unknown ones, and training frequencies."""
    random = np.random.default_rng(seed)
    frequencies = random.choice([0, 3, 50, 300], labels)
    scores = random.random((count, labels), np.float32)
    truth = sparse.csr_array((random.random((count, labels)) < 0.06).astype(np.float32))
    index = LabelIndex([f"l{number:02}" for number in range(labels)])
    found = Predictions.from_scores(scores, k=int(random.integers(3, 8)), index=index)
    return found, truth, random.integers(0, 2, count), frequencies


def in_parts(cuts, found, truth, unknown, **settings):
    edges = [0, *cuts, len(found)]
    rows = [range(first, last) for first, last in pairwise(edges)]
    tallies = [
        Tally.of(
            found.of_rows(np.array(part)),
            truth[list(part)],
            unknown=unknown[list(part)],
            **settings,
        )
        for part in rows
    ]
    # Joined in any way: three at once, then the rest.
    return Tally.joined([Tally.joined(tallies[:3]), *tallies[3:]])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("intervals", [None, 20])
def test_parts_give_the_bits_of_the_whole(seed, intervals):
    found, truth, unknown, frequencies = documents(seed)
    settings = {"metrics": METRICS, "train_frequencies": frequencies}
    settings |= {"n_train": 5000}
    whole = evaluate(found, truth, unknown=unknown, intervals=intervals, **settings)
    resampled = {"resampled": intervals is not None}
    tally = in_parts([1, 130, 131, 302], found, truth, unknown, **settings, **resampled)
    assert tally.evaluation(intervals=intervals) == whole
    assert whole.notes and len(set(whole.values.values())) > 8


def test_sums_are_exact():
    values = np.array([1e16, 1.0, -1e16, 1e-30, 3.0] * 3)
    for cut in range(1, len(values)):
        halves = [mean(values[:cut]).sums(), mean(values[cut:]).sums()]
        assert math.fsum(Sums.joined(halves).numerator) == math.fsum(values)
    thirds = Ratio(np.full(9, 1 / 3), np.ones(9))
    assert thirds.value() == math.fsum([1 / 3] * 9) / 9
    assert math.isnan(Sums((), ()).value())
    found, truth, unknown, _ = documents(0)
    with pytest.raises(DataError, match="no documents"):
        Tally.of(found.of_rows(np.arange(0)), truth[[]], unknown=unknown[[]], metrics=["P@1"])
