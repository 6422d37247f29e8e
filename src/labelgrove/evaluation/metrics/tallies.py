"""Metrics of documents that are never in one place: a tally of each part, then one evaluation.

The value is that of all documents together, to the last bit: sums are exact, see ``measures.Sums``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labelgrove.evaluation.metrics.evaluation import Evaluation, checked_request, with_intervals
from labelgrove.evaluation.metrics.measures import PerLabel, Ratio, Sums
from labelgrove.evaluation.metrics.propensity import Propensity
from labelgrove.evaluation.metrics.ranking import Counts, Facts, Truth
from labelgrove.evaluation.predictions import Predictions


@dataclass(frozen=True)
class Tally:
    """What a part of the documents adds to each metric.

    Ratios stay ratios, with two numbers per document, if documents are to be resampled.
    """

    measures: dict[str, Sums | Ratio | PerLabel]
    facts: Facts
    longest: int
    propensity: Propensity

    @classmethod
    def of(
        cls,
        predictions: Predictions,
        truth: Truth,
        *,
        metrics: Sequence[str],
        unknown: Counts = None,
        train_frequencies: Counts = None,
        n_train: int | None = None,
        propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
        resampled: bool = False,
    ) -> Tally:
        """The arguments are those of :func:`evaluate`; the documents must be some."""
        request = checked_request(predictions, metrics, train_frequencies, n_train, propensity)
        measures, facts = request.judge(predictions, truth, unknown)
        parts = {
            name: measure if resampled or isinstance(measure, PerLabel) else measure.sums()
            for name, measure in measures.items()
        }
        return cls(parts, facts, request.longest, request.propensity)

    @staticmethod
    def joined(tallies: Sequence[Tally]) -> Tally:
        """The tally of all parts, in the order of their documents."""
        first = tallies[0]
        measures = {
            name: measure.joined([tally.measures[name] for tally in tallies])  # type: ignore[misc]
            for name, measure in first.measures.items()
        }
        facts = Facts.joined([tally.facts for tally in tallies])
        return Tally(measures, facts, first.longest, first.propensity)

    def evaluation(self, *, intervals: int | None = None) -> Evaluation:
        """What :func:`evaluate` gives for the documents."""
        values = {name: measure.value() for name, measure in self.measures.items()}
        notes = tuple(self.facts.notes(self.longest))
        plain = Evaluation(values, self.facts.documents, {}, self.propensity, notes)
        return plain if intervals is None else with_intervals(plain, self.measures, times=intervals)
