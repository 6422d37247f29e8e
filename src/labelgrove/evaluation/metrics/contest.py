"""``compare_all``: several runs on the same documents, with intervals and paired tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from labelgrove.core.arrays import Float64
from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics.evaluation import Comparison, Evaluation, checked_request
from labelgrove.evaluation.metrics.measures import Ratio, bootstrap, interval
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import Counts, Truth
from labelgrove.evaluation.predictions import Predictions

FLIPS = 2000
_SIGNS_AT_ONCE = 4_000_000  # 32 MB of signs for any number of documents


@dataclass(frozen=True)
class Contest:
    """Several runs: their evaluations with intervals, and a comparison of every pair.

    ``pairs[i, j]`` with i < j is run i minus run j. Its p-values are adjusted (Holm) for the number
    of pairs, so that the more runs there are, the more it takes to call two of them different.
    """

    evaluations: tuple[Evaluation, ...]
    pairs: dict[tuple[int, int], Comparison]


def compare_all(
    runs: Sequence[Predictions],
    truth: Truth,
    *,
    unknown: Counts = None,
    metrics: Sequence[str],
    train_frequencies: Counts = None,
    n_train: int | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    intervals: int = 1000,
) -> Contest:
    """Which of several runs are better than which others, beyond chance.

    All runs are resampled with the same documents. The test of a pair swaps the two runs' results
    of random documents ``FLIPS`` times: p is how often the difference is then as large as it is.
    Arguments are those of ``evaluate``; averages over labels (macro, coverage) are refused.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> right, wrong = np.eye(2)[[0, 1] * 20], np.eye(2)[[1, 0] * 20]
    >>> runs = [Predictions.from_scores(s, k=1, index=LabelIndex("ab")) for s in (right, wrong)]
    >>> pair = compare_all(runs, right, metrics=["P@1"]).pairs[0, 1]
    >>> pair.differences["P@1"], pair.p["P@1"] < 0.001
    (1.0, True)
    """
    if not runs:
        raise ConfigError("compare_all needs at least one run")
    measures: list[Ratio] = []
    evaluations = []
    for run in runs:
        request = checked_request(run, metrics, train_frequencies, n_train, propensity)
        measured, evaluation = request.measure(run, truth, unknown, None)
        for name, measure in measured.items():
            if not isinstance(measure, Ratio):
                raise ConfigError(
                    f"{name} is an average over labels; compare runs by a metric over documents"
                )
            measures.append(measure)
        evaluations.append(evaluation)
    names, n = list(evaluations[0].values), len(runs[0])
    draws = bootstrap(measures, n, times=intervals, seed=0)
    draws = draws.reshape(len(draws), len(runs), len(names))
    evaluations = [
        replace(e, intervals={name: interval(draws[:, i, m]) for m, name in enumerate(names)})
        for i, e in enumerate(evaluations)
    ]
    couples = list(combinations(range(len(runs)), 2))
    p = _holm(_swapped(measures, len(runs), couples, n))
    pairs = {}
    for row, (i, j) in enumerate(couples):
        first, second = evaluations[j], evaluations[i]
        changes = draws[:, i] - draws[:, j]
        pairs[i, j] = Comparison(
            first,
            second,
            {name: second.values[name] - first.values[name] for name in names},
            {name: interval(changes[:, m]) for m, name in enumerate(names)},
            {name: float(p[row, m]) for m, name in enumerate(names)},
        )
    return Contest(tuple(evaluations), pairs)


def _swapped(
    measures: Sequence[Ratio],
    runs: int,
    couples: Sequence[tuple[int, int]],
    n: int,
) -> Float64:
    """The p-value of each pair (row) and metric (column)."""
    count = len(measures) // runs
    numerators = np.stack([m.numerators for m in measures], axis=1)
    denominators = np.stack([m.denominators for m in measures], axis=1)
    first = np.array([i for i, _ in couples], np.int64)
    second = np.array([j for _, j in couples], np.int64)
    # Of most metrics they depend on the truth alone, and swapping does not change their sums.
    shared = bool((denominators == np.tile(denominators[:, :count], runs)).all())

    def sides(flipped: Float64, total: Float64) -> tuple[Float64, Float64]:
        """Sums of both sides of each pair after swapping, from sums with random signs."""
        moved = flipped.reshape(-1, runs, count)
        change = moved[:, first] - moved[:, second]
        both = total.reshape(runs, count)[first] + total.reshape(runs, count)[second]
        return (both + change) / 2, (both - change) / 2

    def differences(signs: Float64) -> Float64:
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN, as in Ratio.value
            tops = sides(signs @ numerators, numerators.sum(axis=0))
            flipped = np.zeros((1, len(measures))) if shared else signs @ denominators
            bottoms = sides(flipped, denominators.sum(axis=0))
            result: Float64 = tops[0] / bottoms[0] - tops[1] / bottoms[1]
        return result

    seen = np.abs(differences(np.ones((1, n)))[0])
    # Sums in another order differ in their last bits, which must not make a tie a smaller value.
    bar = seen - 1e-9
    as_large = np.zeros(seen.shape)
    for signs in _signs(n, FLIPS):
        as_large += (np.abs(differences(signs)) >= bar).sum(axis=0)
    p: Float64 = (as_large + 1) / (FLIPS + 1)
    p[np.isnan(seen)] = np.nan
    return p


def _signs(n: int, times: int) -> Iterator[Float64]:
    """Blocks of rows of random signs, one per document."""
    rng = np.random.default_rng([0, 1])  # not the stream of the resamples
    block = max(1, _SIGNS_AT_ONCE // n)
    for start in range(0, times, block):
        rows = min(block, times - start)
        # Whole words of four bytes per row, so that blocks of any size get the same signs.
        bits = np.frombuffer(rng.bytes(rows * 4 * -(-n // 32)), np.uint8).reshape(rows, -1)
        yield np.unpackbits(bits, axis=1, count=n).astype(np.float64) * 2 - 1


def _holm(p: Float64) -> Float64:
    """p-values adjusted for the number of rows, column by column."""
    if len(p) < 2:
        return p
    order = np.argsort(p, axis=0)  # NaN last
    factors = np.arange(len(p), 0, -1)[:, None]
    steps = np.maximum.accumulate(np.take_along_axis(p, order, axis=0) * factors, axis=0)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(steps, 1.0), axis=0)
    return adjusted
