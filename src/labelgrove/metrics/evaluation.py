"""``evaluate``: predictions and truth in, named metrics with their fine print out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labelgrove.errors import ConfigError, DataError
from labelgrove.metrics.bins import bin_measure, check_frequencies, frequency_bin
from labelgrove.metrics.intervals import Interval, bootstrap, has_interval, interval
from labelgrove.metrics.measures import Float64, Measure, Ratio
from labelgrove.metrics.names import MACRO, MICRO, PER_BIN, PROPENSITY_SCORED, Metric, parse_metric
from labelgrove.metrics.propensity import LabelWeights, Propensity, propensity_measure
from labelgrove.metrics.ranking import (
    Judged,
    judge,
    micro_measure,
    per_label_measure,
    ranking_measure,
)
from labelgrove.metrics.table import metric_table
from labelgrove.scores.predictions import Predictions

DEFAULT_METRICS = (
    *("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5"),
    *("R@1", "R@3", "R@5", "R@10", "RP@5", "F1@5", "micro-F1@5", "macro-F1@5"),
)


@dataclass(frozen=True)
class Evaluation:
    """Metric values as fractions of one, with what is needed to read them.

    Only :meth:`table` speaks of percent. ``notes`` say what was counted in an unexpected way.

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
        wanted = str(parse_metric(name))
        if wanted not in self.values:
            raise KeyError(f"{wanted} was not measured; there are {', '.join(self.values)}")
        return self.values[wanted]

    def __contains__(self, name: object) -> bool:
        try:
            return str(parse_metric(str(name))) in self.values
        except ConfigError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it; a metric that is not defined becomes None.

        >>> Evaluation({"P@1": 0.5}, n=2).to_dict()["propensity"]
        {'A': 0.55, 'B': 1.5}
        """
        return {
            "documents": self.n,
            "values": {name: _json(value) for name, value in self.values.items()},
            "intervals": {name: [_json(v) for v in pair] for name, pair in self.intervals.items()},
            "propensity": {"A": self.propensity.a, "B": self.propensity.b},
            "notes": list(self.notes),
        }

    def table(self) -> str:
        """A table for terminals, in percent, with the fine print under it.

        >>> print(Evaluation({"P@1": 0.5, "P@3": 0.25}, n=2).table())
                @1     @3
        P    50.00  25.00
        2 documents; percent
        """
        footer = f"{self.n:,} documents; percent"
        if any(parse_metric(name).family in PROPENSITY_SCORED for name in self.values):
            footer += f"; propensity A = {self.propensity.a:g}, B = {self.propensity.b:g}"
        lines = [metric_table(self.values, self.intervals), footer]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Comparison:
    """Two sets of predictions on the same documents: ``differences`` are second minus first.

    An interval that does not hold zero says that more than chance is behind the difference.
    """

    first: Evaluation
    second: Evaluation
    differences: dict[str, float]
    intervals: dict[str, Interval]

    def table(self) -> str:
        """The differences in percentage points, each with its interval."""
        footer = f"{self.first.n:,} documents; second minus first, percentage points"
        notes = dict.fromkeys([*self.first.notes, *self.second.notes])
        lines = [metric_table(self.differences, self.intervals, signed=True), footer]
        return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def evaluate(
    predictions: Predictions,
    truth: Any,
    *,
    unknown: Any = None,
    metrics: Sequence[str] | None = None,
    train_frequencies: Any = None,
    n_train: int | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    filter_pairs: Any = None,
    intervals: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Measures predictions against true labels: a Corpus, label lists, or a matrix.

    - ``metrics``: names such as ``P@1``, ``nDCG@5``, ``PSP@5``, ``micro-F1@5``, ``macro-F1@t=0.3``
      (all labels that score at least 0.3), ``tail-R@5``, ``coverage@5``, in any case. By default
      the usual ones, as far as the arguments allow.
    - ``unknown``: per document, how many of its labels have no column (``Corpus.unknown``). They
      count as misses in recall, nDCG, F1 and the propensity-scored metrics.
    - ``train_frequencies`` (documents per label in training) and ``n_train`` (training documents)
      are needed by propensity-scored metrics, the frequencies alone by those split by frequency.
    - ``filter_pairs``: (document, column) pairs removed from the predictions; the next label moves
      up and the truth stays. Predict a few labels more than the largest k to leave room.
    - ``intervals``: this many bootstrap resamples give metrics an interval; averages over labels
      (macro, coverage) get none.

    A document without labels scores zero and stays in every mean.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> p = Predictions.from_scores([[0.9, 0.5], [0.2, 0.7]], k=2, index=LabelIndex("ab"))
    >>> evaluate(p, [[1, 0], [1, 1]], metrics=["P@1", "R@1"]).values
    {'P@1': 1.0, 'R@1': 0.75}
    """
    if not isinstance(predictions, Predictions):
        kind = type(predictions).__name__
        raise DataError(f"predictions: must be what model.predict(texts, k=10) gives, got {kind}")
    request = _Request.read(
        predictions, metrics, unknown, train_frequencies, n_train, propensity, filter_pairs
    )
    measures, notes = request.measure(predictions, truth)
    found: dict[str, Interval] = {}
    if intervals is not None:
        # A resample has fewer distinct labels, which shifts what is averaged over labels: macro
        # averages and coverage get no interval, lest it miss the very value it belongs to.
        chosen = [name for name, measure in measures.items() if isinstance(measure, Ratio)]
        draws = bootstrap(
            [measures[name] for name in chosen], len(predictions), times=intervals, seed=seed
        )
        found = {name: interval(draws[:, i], level) for i, name in enumerate(chosen)}
    return request.evaluation(measures, len(predictions), found, notes)


def compare(
    first: Predictions,
    second: Predictions,
    truth: Any,
    *,
    unknown: Any = None,
    metrics: Sequence[str] | None = None,
    train_frequencies: Any = None,
    n_train: int | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    filter_pairs: Any = None,
    intervals: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Is ``second`` better than ``first``? Paired differences over resampled documents.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> worse = Predictions.from_scores([[0.9, 0.5], [0.2, 0.7]], k=1, index=LabelIndex("ab"))
    >>> better = Predictions.from_scores([[0.9, 0.5], [0.8, 0.7]], k=1, index=LabelIndex("ab"))
    >>> compare(worse, better, [[1, 0], [1, 0]], metrics=["P@1"]).differences
    {'P@1': 0.5}
    """
    n = len(first)
    if metrics is None:
        metrics = _usual_metrics(min(first.k, second.k), train_frequencies, n_train)[0]
    request = _Request.read(
        first, metrics, unknown, train_frequencies, n_train, propensity, filter_pairs
    )
    measures_1, notes_1 = request.measure(first, truth)
    measures_2, notes_2 = request.measure(second, truth)
    evaluations = (
        request.evaluation(measures_1, n, {}, notes_1),
        request.evaluation(measures_2, n, {}, notes_2),
    )
    chosen = [name for name, measure in measures_1.items() if has_interval(measure)]
    both = [measures[name] for measures in (measures_1, measures_2) for name in chosen]
    draws = bootstrap(both, n, times=intervals, seed=seed)
    moved = draws[:, len(chosen) :] - draws[:, : len(chosen)]
    return Comparison(
        *evaluations,
        {name: evaluations[1].values[name] - evaluations[0].values[name] for name in measures_1},
        {name: interval(moved[:, i], level) for i, name in enumerate(chosen)},
    )


@dataclass(frozen=True)
class _Request:
    """The checked arguments of one evaluation, ready to be applied to predictions."""

    metrics: tuple[Metric, ...]
    unknown: Any
    frequencies: Float64 | None
    n_train: int | None
    propensity: Propensity
    filter_pairs: Any
    notes: tuple[str, ...]

    @classmethod
    def read(
        cls,
        predictions: Predictions,
        names: Sequence[str] | None,
        unknown: Any,
        train_frequencies: Any,
        n_train: int | None,
        propensity: Propensity | str,
        filter_pairs: Any,
    ) -> _Request:
        notes: list[str] = []
        if isinstance(names, str):
            raise ConfigError(f"metrics must be a list of names: [{names!r}]")
        if names is None:
            names, notes = _usual_metrics(predictions.k, train_frequencies, n_train)
        metrics = tuple(dict.fromkeys(parse_metric(name) for name in names))
        if not metrics:
            raise ConfigError("metrics is empty; name at least one, such as P@5")
        for metric in metrics:
            scored = metric.family in PROPENSITY_SCORED
            if train_frequencies is None and (scored or metric.family in PER_BIN):
                raise ConfigError(f"{metric} needs train_frequencies, the training count per label")
            if n_train is None and scored:
                raise ConfigError(f"{metric} needs n_train, the number of training documents")
        frequencies = None
        if train_frequencies is not None:
            frequencies = check_frequencies(train_frequencies, len(predictions.index))
        if isinstance(propensity, str):
            propensity = Propensity.preset(propensity)
        return cls(metrics, unknown, frequencies, n_train, propensity, filter_pairs, tuple(notes))

    def measure(
        self, predictions: Predictions, truth: Any
    ) -> tuple[dict[str, Measure], tuple[str, ...]]:
        notes = [*self.notes]
        if self.filter_pairs is not None:
            before = int(predictions.counts.sum())
            predictions = predictions.without(self.filter_pairs)
            removed = before - int(predictions.counts.sum())
            notes.append(f"{removed:,} predicted labels were removed by the filter")
        ks = [metric.k for metric in self.metrics if metric.k is not None]
        if len(ks) == len(self.metrics):
            predictions = predictions.top(max(ks))
        judged = judge(predictions, truth, unknown=self.unknown)
        notes += _notes(judged, max(ks, default=0), self.frequencies)
        weights = bin_of = None
        if self.frequencies is not None:
            bin_of = frequency_bin(self.frequencies)
            if self.n_train is not None:
                inverse = self.propensity.inverse(np.append(self.frequencies, 0.0), self.n_train)
                weights = LabelWeights(inverse[:-1], float(inverse[-1]))

        def measured(metric: Metric) -> Measure:
            if metric.family in PROPENSITY_SCORED:
                assert weights is not None
                return propensity_measure(judged, metric, weights)
            if metric.family in PER_BIN:
                assert bin_of is not None
                return bin_measure(judged, metric, bin_of)
            if metric.family in MICRO:
                return micro_measure(judged, metric)
            if metric.family in MACRO or metric.family == "coverage":
                return per_label_measure(judged, metric)
            return ranking_measure(judged, metric)

        return {str(metric): measured(metric) for metric in self.metrics}, tuple(notes)

    def evaluation(
        self,
        measures: dict[str, Measure],
        n: int,
        intervals: dict[str, Interval],
        notes: tuple[str, ...],
    ) -> Evaluation:
        values = {name: measure.value() for name, measure in measures.items()}
        return Evaluation(values, n, intervals, self.propensity, notes)


def _usual_metrics(
    predicted: int, train_frequencies: Any, n_train: int | None
) -> tuple[list[str], list[str]]:
    """The default metrics that these arguments allow, and notes on those left out."""
    names = [name for name in DEFAULT_METRICS if (parse_metric(name).k or 0) <= max(predicted, 5)]
    if train_frequencies is not None and n_train is not None:
        return names, []
    note = "PSP left out: it needs train_frequencies and n_train"
    return [name for name in names if not name.startswith("PS")], [note]


def _notes(judged: Judged, k: int, frequencies: Float64 | None) -> list[str]:
    notes = []
    unseen = int(judged.unknown.sum())
    if frequencies is not None:
        unseen += int((frequencies[judged.truth.indices] == 0).sum())
    if unseen:
        notes.append(
            f"{unseen:,} true label occurrences were unseen in training; "
            "they count as misses unless predicted"
        )
    empty = int((judged.sizes == 0).sum())
    if empty:
        notes.append(f"{empty:,} documents without labels count as zero")
    longest = int(judged.predictions.counts.max())
    if longest < k:
        notes.append(f"at most {longest} labels were predicted; places up to {k} count as misses")
    return notes


def _json(value: float) -> float | None:
    return None if np.isnan(value) else value
