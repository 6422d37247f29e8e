"""The numbers of a report, for charts and page; most are computed when first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.evaluation.curves import Reliability, reliability
from labelgrove.evaluation.metrics import BinScore, Comparison, Contest, Evaluation
from labelgrove.evaluation.metrics.evaluation import json_number
from labelgrove.evaluation.metrics.ranking import Judged, by_frequency
from labelgrove.experiments.report.labels import (
    ReportLabels,
    WrongDocument,
    best_scores,
    label_table,
    most_wrong,
)
from labelgrove.experiments.report.runs import Run
from labelgrove.experiments.report.slices import Slice

CUTOFFS = (1, 3, 5, 10)
FAMILIES = ("P", "nDCG", "PSP", "R")


@dataclass(frozen=True)
class Report:
    """The content of a report: the first run is its subject, the others are for comparison.

    ``evaluations`` hold, per run, metrics for k up to ``depth``; ``slices`` those by the values of
    a field. ``contest`` compares all pairs.
    """

    title: str
    data_name: str
    corpus: Corpus
    runs: tuple[Run, ...]
    judged: tuple[Judged, ...]
    evaluations: tuple[Evaluation, ...]
    training: TrainingFacts | None
    depth: int
    worst: int
    contest: Contest | None = None
    slices: Mapping[str, list[Slice]] = field(default_factory=dict)

    @property
    def subject(self) -> Run:
        """The run that the report is about."""
        return self.runs[0]

    @property
    def at(self) -> int:
        """The k of tables that have one k."""
        return min(5, self.depth)

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The subject minus each other run."""
        if self.contest is None:
            return ()
        return tuple(self.contest.pairs[0, other] for other in range(1, len(self.runs)))

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of metrics that were measured."""
        return tuple(f for f in FAMILIES if f"{f}@1" in self.evaluations[0].values)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """The values of k in tables."""
        return tuple(k for k in CUTOFFS if k <= self.depth)

    @cached_property
    def bins(self) -> tuple[list[BinScore], ...]:
        """Per run, results of head, torso, tail and unseen labels; empty without frequencies."""
        if self.training is None:
            return ()
        frequencies = self.training.frequencies
        return tuple(
            by_frequency(
                one.predictions,
                one.truth,
                unknown=one.unknown,
                train_frequencies=frequencies,
                k=self.at,
            )
            for one in self.judged
        )

    @cached_property
    def calibrations(self) -> tuple[Reliability | None, ...]:
        """Per run, how reliable its scores are as probabilities; None if they cannot be any."""
        pairs = [best_scores(judged, k=self.at) for judged in self.judged]
        return tuple(None if pair is None else reliability(*pair) for pair in pairs)

    @cached_property
    def wrong(self) -> list[WrongDocument]:
        """The subject's most wrong documents."""
        return most_wrong(self.judged[0], k=self.at, most=self.worst) if self.worst else []

    @cached_property
    def labels(self) -> ReportLabels:
        """How well each label is predicted."""
        return label_table(self.judged, k=self.at)

    def to_dict(self) -> JsonObject:
        """The main numbers per run, for JSON; without texts of documents."""
        runs = []
        for number, run in enumerate(self.runs):
            scores = self.calibrations[number]
            entry: JsonObject = {"name": run.name, **self.evaluations[number].to_dict()}
            entry["expected_calibration_error"] = None if scores is None else scores.ece
            if run.seconds is not None:
                entry["seconds"], entry["cpu_seconds"] = run.seconds, run.cpu_seconds
            if number:
                compared = self.comparisons[number - 1]
                entry["subject_minus_this"] = {
                    name: [json_number(v) for v in (value, *compared.intervals.get(name, ()))]
                    for name, value in compared.differences.items()
                }
            runs.append(entry)
        slices = {
            name: {
                one.value: {"documents": one.documents}
                | {
                    run.name: {key: json_number(value) for key, value in evaluation.values.items()}
                    for run, evaluation in zip(self.runs, one.evaluations, strict=True)
                }
                for one in values
            }
            for name, values in self.slices.items()
        }
        about = {"title": self.title, "data": self.data_name, "at": self.at}
        return about | {"runs": runs, "slices": slices}
