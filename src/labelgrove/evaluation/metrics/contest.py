"""``compare_all``: several runs on the same documents, with intervals of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics.evaluation import Evaluation, measured
from labelgrove.evaluation.metrics.measures import Interval, Ratio, bootstrap, interval
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import Counts, Truth
from labelgrove.evaluation.predictions import Predictions


@dataclass(frozen=True)
class Comparison:
    """Two sets of predictions for the same documents; ``differences`` are second minus first.

    A difference whose interval does not include zero is probably not due to chance.
    """

    first: Evaluation
    second: Evaluation
    differences: dict[str, float]
    intervals: dict[str, Interval]


@dataclass(frozen=True)
class Contest:
    """Evaluations of several runs with intervals; ``pairs[i, j]``, i < j, is run i minus run j."""

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

    All runs are resampled with the same documents. Arguments are those of ``evaluate``; averages
    over labels (macro, coverage) are refused.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> right, wrong = [[1, 0], [0, 1]] * 20, [[0, 1], [1, 0]] * 20
    >>> runs = [Predictions.from_scores(s, k=1, index=LabelIndex("ab")) for s in (right, wrong)]
    >>> pair = compare_all(runs, right, metrics=["P@1"]).pairs[0, 1]
    >>> pair.differences["P@1"], pair.intervals["P@1"]
    (1.0, Interval(low=1.0, high=1.0))
    """
    if not runs:
        raise ConfigError("compare_all needs at least one run")
    measures: list[Ratio] = []
    evaluations = []
    for run in runs:
        by_name, evaluation = measured(
            run,
            truth,
            metrics,
            unknown=unknown,
            train_frequencies=train_frequencies,
            n_train=n_train,
            propensity=propensity,
        )
        for name, measure in by_name.items():
            if not isinstance(measure, Ratio):
                raise ConfigError(
                    f"{name} is an average over labels; compare runs by a metric over documents"
                )
            measures.append(measure)
        evaluations.append(evaluation)
    names = list(evaluations[0].values)
    draws = bootstrap(measures, len(runs[0]), times=intervals, seed=0)
    draws = draws.reshape(len(draws), len(runs), len(names))
    evaluations = [
        replace(e, intervals={name: interval(draws[:, i, m]) for m, name in enumerate(names)})
        for i, e in enumerate(evaluations)
    ]
    pairs = {}
    for i, j in combinations(range(len(runs)), 2):
        second, first, changes = evaluations[i], evaluations[j], draws[:, i] - draws[:, j]
        pairs[i, j] = Comparison(
            first,
            second,
            {name: second.values[name] - first.values[name] for name in names},
            {name: interval(changes[:, m]) for m, name in enumerate(names)},
        )
    return Contest(tuple(evaluations), pairs)
