"""``evaluate`` measures predictions, ``compare_all`` several runs, ``scorer`` for scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labelgrove.core.aliases import DocumentInput
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.late import sparse
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.frames import label_column
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import ranking
from labelgrove.evaluation.metrics.measures import Interval, Measure, Ratio, bootstrap, interval
from labelgrove.evaluation.metrics.names import (
    MACRO,
    MICRO,
    PER_BIN,
    PROPENSITY_SCORED,
    Metric,
    parse_metric,
)
from labelgrove.evaluation.metrics.propensity import Propensity, propensity_measure
from labelgrove.evaluation.predictions import Pairs, Predictions

DEFAULT_METRICS = (
    *("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5"),
    *("R@1", "R@3", "R@5", "R@10", "RP@5", "F1@5", "micro-F1@5", "macro-F1@5"),
)


MOST_LABELS = 100  # that a model predicts for a metric with a threshold


@runtime_checkable
class Predicting(Protocol):
    """A fitted model."""

    facts_: TrainingFacts

    def predict(self, X: DocumentInput, k: int = 5) -> Predictions: ...


@dataclass(frozen=True)
class Evaluation:
    """Metric values between 0 and 1, and notes on what may be counted in an unexpected way.

    >>> ev = Evaluation({"P@1": 0.5}, n=2)
    >>> ev["p@1"], "R@5" in ev
    (0.5, False)
    """

    values: dict[str, float]
    n: int
    intervals: dict[str, Interval] = field(default_factory=dict)
    propensity: Propensity = field(default_factory=Propensity)
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        metric = str(parse_metric(name))
        if metric not in self.values:
            raise KeyError(f"{metric} was not measured, only {', '.join(self.values)}")
        return self.values[metric]

    def __contains__(self, name: object) -> bool:
        try:
            return str(parse_metric(str(name))) in self.values
        except ConfigError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def to_dict(self) -> JsonObject:
        """Everything as values for JSON; a metric that is not defined becomes None."""
        return {
            "documents": self.n,
            "values": {name: json_number(value) for name, value in self.values.items()},
            "intervals": {
                name: [json_number(v) for v in pair] for name, pair in self.intervals.items()
            },
            "propensity": {"A": self.propensity.a, "B": self.propensity.b},
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """A table in percent, with the number of documents and the notes below it.

        >>> print(Evaluation({"P@1": 0.5, "P@3": 0.25}, n=2).table())
                @1     @3
        P    50.00  25.00
        2 documents; percent
        """
        cutoffs, rows = _cells(self.values, self.intervals)
        first = max([3, *map(len, rows)])
        widths = {
            cutoff: max(len(cutoff) + 1, 5, *(len(row.get(cutoff, "")) for row in rows.values()))
            for cutoff in cutoffs
        }
        lines = ["  ".join([" " * first, *(f"@{c}".rjust(widths[c]) for c in cutoffs)])]
        for family, row in rows.items():
            cells = (row.get(cutoff, "").rjust(widths[cutoff]) for cutoff in cutoffs)
            lines.append("  ".join([family.ljust(first), *cells]).rstrip())
        lines.append(f"{self.n:,} documents; percent")
        if any(parse_metric(name).family in PROPENSITY_SCORED for name in self.values):
            lines[-1] += f"; propensity A = {self.propensity.a:g}, B = {self.propensity.b:g}"
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return self.table()


def evaluate(
    predictions: Predictions | Predicting,
    truth: ranking.Truth | DocumentInput,
    y: ranking.Truth | None = None,
    *,
    unknown: ranking.Counts = None,
    metrics: Sequence[str] | None = None,
    train_frequencies: ranking.Counts = None,
    n_train: int | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    filter_pairs: Pairs | None = None,
    intervals: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Measures predictions against true labels: a Corpus, label lists, a frame, or a matrix.

    ``evaluate(model, X, y)`` predicts first, and knows the training documents of the labels.

    - ``metrics``: names such as ``P@1``, ``nDCG@5``, ``PSP@5``, ``micro-F1@5``, ``macro-F1@t=0.3``
      (all labels with a score of at least 0.3), ``tail-R@5``, ``coverage@5``, in upper or lower
      case. The default is ``DEFAULT_METRICS``, as far as the arguments allow.
    - ``unknown``: how many labels of each document have no column (``Corpus.unknown``). They count
      as misses in recall, nDCG, F1 and the propensity-scored metrics.
    - ``train_frequencies`` (training documents per label) and ``n_train`` (training documents):
      propensity-scored metrics need both, metrics split by frequency only the first.
    - ``filter_pairs``: (document, column) pairs to remove from the predictions; the next label
      moves up, and the truth does not change. Predict a few labels more than the largest k.
    - ``intervals``: compute intervals from this many bootstrap resamples, except for averages over
      labels (macro, coverage).

    A document without labels has a score of zero in every mean.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> p = Predictions.from_scores([[0.9, 0.5], [0.2, 0.7]], k=2, index=LabelIndex("ab"))
    >>> evaluate(p, [[1, 0], [1, 1]], metrics=["P@1", "R@1"]).values
    {'P@1': 1.0, 'R@1': 0.75}
    """
    if isinstance(predictions, Predicting):
        facts = predictions.facts_
        if train_frequencies is None and n_train is None:
            train_frequencies, n_train = facts.frequencies, facts.documents
        if y is None and not isinstance(truth, Corpus):
            raise DataError("evaluate(model, documents, labels): the true labels are missing")
        if isinstance(metrics, str):
            raise ConfigError(f"metrics must be a list of names: [{metrics!r}]")
        places = [parse_metric(name).k or MOST_LABELS for name in metrics or DEFAULT_METRICS]
        documents, truth = truth, truth if y is None else y
        predictions = predictions.predict(documents, k=max(places))
    elif y is not None:
        raise DataError("evaluate(predictions, truth), or evaluate(model, documents, labels)")
    if not isinstance(predictions, Predictions):
        kind = type(predictions).__name__
        raise DataError(f"predictions: must be Predictions or a fitted model, got {kind}")
    measures, evaluation = measured(
        predictions,
        truth,
        metrics,
        unknown=unknown,
        train_frequencies=train_frequencies,
        n_train=n_train,
        propensity=propensity,
        filter_pairs=filter_pairs,
    )
    if intervals is None:
        return evaluation
    # A resample has fewer distinct labels, which shifts averages over labels so far that their
    # interval might not include their value.
    ratios = {name: m for name, m in measures.items() if isinstance(m, Ratio)}
    draws = bootstrap(list(ratios.values()), evaluation.n, times=intervals, seed=seed)
    ranges = {name: interval(draws[:, i], level) for i, name in enumerate(ratios)}
    return replace(evaluation, intervals=ranges)


def measured(
    predictions: Predictions,
    truth: ranking.Truth,
    names: Sequence[str] | None,
    *,
    unknown: ranking.Counts,
    train_frequencies: ranking.Counts,
    n_train: int | None,
    propensity: Propensity | str,
    filter_pairs: Pairs | None = None,
) -> tuple[dict[str, Measure], Evaluation]:
    """The measures by name, for resampling, and their values; None names the usual metrics."""
    notes: list[str] = []
    if isinstance(names, str):
        raise ConfigError(f"metrics must be a list of names: [{names!r}]")
    if names is None:
        least = max(predictions.k, 5)
        names = [name for name in DEFAULT_METRICS if (parse_metric(name).k or 0) <= least]
        if train_frequencies is None or n_train is None:
            names = [name for name in names if not name.startswith("PS")]
            notes = ["PSP is left out, because it needs train_frequencies and n_train"]
    metrics = list(dict.fromkeys(parse_metric(name) for name in names))
    if not metrics:
        raise ConfigError("metrics is empty; give at least one, such as P@5")
    for metric in metrics:
        scored = metric.family in PROPENSITY_SCORED
        if train_frequencies is None and (scored or metric.family in PER_BIN):
            raise ConfigError(f"{metric} needs train_frequencies, the documents per label")
        if n_train is None and scored:
            raise ConfigError(f"{metric} needs n_train, the number of training documents")
    if isinstance(propensity, str):
        propensity = Propensity.preset(propensity)
    frequencies = bin_of = weights = None
    if train_frequencies is not None:
        frequencies = ranking.check_frequencies(train_frequencies, len(predictions.index))
        bin_of = ranking.frequency_bin(frequencies)
        if n_train is not None:
            weights = propensity.inverse(np.append(frequencies, 0.0), n_train)
    if filter_pairs is not None:
        before = int(predictions.counts.sum())
        predictions = predictions.without(filter_pairs)
        removed = before - int(predictions.counts.sum())
        notes.append(f"the filter removed {removed:,} predicted labels")
    ks = [metric.k for metric in metrics if metric.k is not None]
    if len(ks) == len(metrics):
        predictions = predictions.top(max(ks))
    judged = ranking.judge(predictions, truth, unknown=unknown)

    def measure(metric: Metric) -> Measure:
        if metric.family in PROPENSITY_SCORED:
            assert weights is not None
            return propensity_measure(judged, metric, weights)
        if metric.family in PER_BIN:
            assert bin_of is not None
            return ranking.bin_measure(judged, metric, bin_of)
        if metric.family in MICRO:
            return ranking.micro_measure(judged, metric)
        if metric.family in MACRO or metric.family == "coverage":
            return ranking.per_label_measure(judged, metric)
        return ranking.ranking_measure(judged, metric)

    measures = {str(metric): measure(metric) for metric in metrics}
    values = {name: each.value() for name, each in measures.items()}
    notes += ranking.notes_on(judged, frequencies, max(ks, default=0))
    return measures, Evaluation(values, len(judged), {}, propensity, tuple(notes))


def _cells(
    values: Mapping[str, float], intervals: Mapping[str, Interval]
) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The cutoffs, and the cells by metric and cutoff."""
    metrics = [(parse_metric(name), name) for name in values]
    # Numbers of labels in ascending order, then thresholds in their given order.
    cutoffs = sorted(
        dict.fromkeys(metric.cutoff for metric, _ in metrics),
        key=lambda cutoff: int(cutoff) if cutoff.isdigit() else math.inf,
    )
    rows: dict[str, dict[str, str]] = {}
    for metric, name in metrics:
        cell = _percent(values[name])
        if name in intervals:
            low, high = (_percent(bound) for bound in intervals[name])
            cell += f" [{low}, {high}]"
        rows.setdefault(metric.family, {})[metric.cutoff] = cell
    return cutoffs, rows


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def json_number(value: float) -> float | None:
    """The value for JSON, which has no NaN."""
    return None if math.isnan(value) else value


@dataclass(frozen=True)
class Scorer:
    """A callable ``(estimator, X, y) -> float``; :func:`scorer` makes one."""

    metric: str
    k: int
    propensity: Propensity

    def __call__(self, estimator: Any, X: Any, y: ranking.Truth) -> float:
        predictions = estimator.predict(X, k=self.k)
        matrix = sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2)
        column = label_column(y)
        labels = y if column is None else column
        truth, unknown = (y, None) if matrix else estimator.index_.encode(labels)
        facts: TrainingFacts | None = getattr(estimator, "facts_", None)
        return evaluate(
            predictions,
            truth,
            unknown=unknown,
            metrics=[self.metric],
            train_frequencies=None if facts is None else facts.frequencies,
            n_train=None if facts is None else facts.documents,
            propensity=self.propensity,
        )[self.metric]


def scorer(name: str, *, k: int | None = None, propensity: Propensity | str = "default") -> Scorer:
    """A scorer for scikit-learn's tools; higher scores are better.

    ``y`` is a list of label lists or a documents x labels matrix with the estimator's columns. The
    estimator predicts ``k`` labels: by default as many as the metric needs, or 100 for a metric
    with a threshold.

    >>> scorer("ndcg@5")
    Scorer(metric='nDCG@5', k=5, propensity=Propensity(a=0.55, b=1.5))
    """
    metric = parse_metric(name)
    if k is None:
        k = metric.k or 100
    if k < (metric.k or 1):
        raise ConfigError(f"scorer {metric}: k = {k} predictions are too few")
    if isinstance(propensity, str):
        propensity = Propensity.preset(propensity)
    return Scorer(str(metric), k, propensity)


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
    truth: ranking.Truth,
    *,
    unknown: ranking.Counts = None,
    metrics: Sequence[str],
    train_frequencies: ranking.Counts = None,
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
