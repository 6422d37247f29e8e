"""All numbers of a report, computed once, for charts and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import labelgrove.report.findings as findings
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.inputs import check_k, check_known_labels
from labelgrove.errors import ConfigError, DataError
from labelgrove.metrics import BinScore, Comparison, Evaluation, Propensity, compare, evaluate
from labelgrove.metrics.bins import by_frequency
from labelgrove.metrics.ranking import Judged, judge
from labelgrove.report.runs import Run, named, on_one_index, predicted, with_unique_names

CUTOFFS = (1, 3, 5, 10)
FAMILIES = ("P", "nDCG", "PSP", "R")


@dataclass(frozen=True)
class Report:
    """The content of a report: the first run is its subject, the others are for comparison.

    ``depth`` is the largest k of the curves, ``at`` the k of everything else. ``evaluations`` hold
    P, nDCG, R and, if training frequencies are known, PSP for k up to ``depth``, per run;
    ``comparisons`` are the subject minus each other run.
    """

    title: str
    data_name: str
    corpus: Corpus
    runs: tuple[Run, ...]
    judged: tuple[Judged, ...]
    evaluations: tuple[Evaluation, ...]
    comparisons: tuple[Comparison, ...]
    training: TrainingFacts | None
    depth: int
    at: int
    worst: int

    @property
    def subject(self) -> Run:
        """The run that the report is about."""
        return self.runs[0]

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
        return tuple(
            by_frequency(
                judged.predictions,
                judged.truth,
                train_frequencies=self.training.frequencies,
                k=self.at,
                unknown=judged.unknown,
            )
            for judged in self.judged
        )

    @cached_property
    def bands(self) -> tuple[list[findings.FrequencyBand], ...]:
        """Per run, recall by doubling training frequency; empty without frequencies."""
        if self.training is None:
            return ()
        frequencies = self.training.frequencies
        return tuple(
            findings.frequency_bands(judged, frequencies, k=self.at) for judged in self.judged
        )

    @cached_property
    def calibrations(self) -> tuple[findings.Calibration | None, ...]:
        """Per run, how right its scores are; None if they cannot be probabilities."""
        return tuple(findings.calibration(judged, k=self.at) for judged in self.judged)

    @cached_property
    def siblings(self) -> findings.SiblingConfusion | None:
        """Which labels of one leaf the subject confuses; None if it has no tree."""
        tree = self.subject.tree
        return None if tree is None else findings.sibling_confusion(self.judged[0], tree, k=self.at)

    @cached_property
    def wrong(self) -> list[findings.WrongDocument]:
        """The subject's most wrong documents."""
        return findings.most_wrong(self.judged[0], k=self.at, most=self.worst) if self.worst else []

    def to_dict(self) -> dict[str, Any]:
        """The main numbers per run, for JSON; without texts of documents."""
        runs = []
        for number, run in enumerate(self.runs):
            scores = self.calibrations[number]
            entry: dict[str, Any] = {"name": run.name, **self.evaluations[number].to_dict()}
            entry["expected_calibration_error"] = None if scores is None else scores.error
            if run.seconds is not None:
                entry["seconds"], entry["cpu_seconds"] = run.seconds, run.cpu_seconds
            if number:
                compared = self.comparisons[number - 1]
                entry["subject_minus_this"] = {
                    name: [_json(v) for v in (value, *compared.intervals.get(name, ()))]
                    for name, value in compared.differences.items()
                }
            runs.append(entry)
        return {"title": self.title, "data": self.data_name, "at": self.at, "runs": runs}


def measure_report(
    model: Any,
    data: Corpus | str | Path,
    *,
    against: Mapping[str, Any] | Sequence[Any] = (),
    k: int = 10,
    intervals: int | None = 1000,
    worst: int = 20,
    name: str | None = None,
    title: str | None = None,
    data_name: str | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    training: TrainingFacts | None = None,
    threads: int | None = None,
) -> Report:
    """Predicts and measures everything that a report shows; see :func:`write_report`.

    >>> from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> report = measure_report(Linear().fit(corpus), corpus, intervals=None)
    >>> report.evaluations[0]["P@1"]
    1.0
    """
    check_k(k)
    if worst < 0:
        raise ConfigError(f"worst must be at least 0, got {worst}")
    if not isinstance(data, Corpus):
        from labelgrove.formats import read_corpus

        data_name = data_name or Path(data).name
        data = read_corpus(data)
    if len(data) == 0:
        raise DataError("cannot report: there are no documents")
    if data.labels.nnz == 0 and not data.unknown.any():
        raise DataError("cannot report: no document of the corpus has a label")
    runs = [predicted(model, data, k=k, name=name, threads=threads)]
    for other_name, other in named(against):
        runs.append(predicted(other, data, k=k, name=other_name, threads=threads))
    runs = on_one_index(with_unique_names(runs))
    index = runs[0].predictions.index
    truth = data.reindex(index)
    check_known_labels(truth.labels, truth.unknown)
    judged = tuple(judge(run.predictions, truth.labels, unknown=truth.unknown) for run in runs)
    if training is None and runs[0].model is not None:
        training = runs[0].model.facts_
    training = _padded(training, len(index))
    shared: dict[str, Any] = {"unknown": truth.unknown}
    if training is not None:
        shared |= {"train_frequencies": training.frequencies, "n_train": training.documents}
        shared["propensity"] = propensity
    depth = max(1, min(k, len(index)))
    families = [f for f in FAMILIES if f != "PSP" or training is not None]
    curves = [f"{family}@{k}" for family in families for k in range(1, depth + 1)]
    table = [f"{family}@{k}" for family in families for k in CUTOFFS if k <= depth]
    evaluations = [
        evaluate(run.predictions, truth.labels, metrics=curves, intervals=resamples, **shared)
        for run, resamples in [(runs[0], intervals or None), *((run, None) for run in runs[1:])]
    ]
    warnings = [run.model and run.model.facts_.warning(data) for run in runs]
    evaluations = [
        replace(evaluation, notes=(f"{run.name}: {note}", *evaluation.notes))
        if note
        else evaluation
        for run, note, evaluation in zip(runs, warnings, evaluations, strict=True)
    ]
    subject = runs[0].predictions
    comparisons = [
        compare(
            run.predictions,
            subject,
            truth.labels,
            metrics=table,
            intervals=intervals or 1000,
            **shared,
        )
        for run in runs[1:]
    ]
    data_name = data_name or "the evaluated documents"
    return Report(
        title=title or f"{runs[0].name} on {data_name}",
        data_name=data_name,
        corpus=data,
        runs=tuple(runs),
        judged=judged,
        evaluations=tuple(evaluations),
        comparisons=tuple(comparisons),
        training=training,
        depth=depth,
        at=min(5, depth),
        worst=worst,
    )


def _json(value: float) -> float | None:
    return None if np.isnan(value) else value


def _padded(training: TrainingFacts | None, labels: int) -> TrainingFacts | None:
    """Training facts for all columns: labels that only other runs know have no documents."""
    if training is None:
        return None
    missing = labels - len(training.frequencies)
    if missing < 0:
        raise DataError(
            f"training has frequencies of {len(training.frequencies):,} labels, "
            f"the runs have {labels:,}"
        )
    frequencies: npt.NDArray[np.int64] = np.pad(training.frequencies, (0, missing))
    return replace(training, frequencies=frequencies)
