"""``write_report``: one evaluation as one HTML file, and its charts as PNG files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.inputs import check_k
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.evaluation.measures import check_labels
from labelgrove.evaluation.metrics import Propensity, compare_all, evaluate
from labelgrove.evaluation.metrics.ranking import judge
from labelgrove.experiments.report.measuring import CUTOFFS, FAMILIES, Report
from labelgrove.experiments.report.page import TILES, write_page
from labelgrove.experiments.report.runs import (
    Subject,
    Subjects,
    named,
    on_one_index,
    predicted,
    with_unique_names,
)
from labelgrove.experiments.report.slices import measure_slices, slice_values


def write_report(
    model: Subject,
    data: Corpus | str | Path,
    out: str | Path | None,
    *,
    against: Subjects = (),
    k: int = 10,
    intervals: int | None = 1000,
    worst: int = 20,
    name: str | None = None,
    title: str | None = None,
    data_name: str | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    training: TrainingFacts | None = None,
    slices: Sequence[str] | Mapping[str, Sequence[object]] = (),
    threads: int | None = None,
) -> Report:
    """Writes a report on a model's predictions for labelled documents and returns its numbers.

    - ``model``: a fitted model, a model folder, ``Predictions``, or a file that ``predict`` wrote.
    - ``data``: a Corpus or a file with the true labels. The report shows the beginnings of the
      texts of the ``worst`` most wrong documents; ``worst=0`` shows no text.
    - ``out``: the HTML file; None writes no file.
    - ``against``: other such runs on the same documents, as a list or a mapping from names.
    - ``k``: the largest k of the curves. ``intervals``: bootstrap resamples; None for no intervals.
    - ``training``: number and label frequencies of the training documents, if no model knows
      them (``TrainingFacts.of(corpus)``); without them there is no PSP and no split by frequency.
    - ``slices``: fields by whose values quality is also measured, such as ``["language"]``: of the
      documents, or of the file that ``data`` names. A mapping gives the values of all documents:
      ``{"language": ["en", "de", ...]}``, or a list of values for each.

    >>> import tempfile; from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> file = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(Linear().fit(corpus), corpus, file).evaluations[0]["P@1"]
    1.0
    """
    if out is not None:
        check_extra()  # before the work, not after it
    check_k(k)
    if worst < 0:
        raise ConfigError(f"worst must be at least 0, got {worst}")
    file = None
    if not isinstance(data, Corpus):
        from labelgrove.data.formats import read_corpus

        file = Path(data)
        data_name = data_name or file.name
        data = read_corpus(data)
    if len(data) == 0:
        raise DataError("cannot report: there are no documents")
    values = slice_values(slices, data, file)
    runs = [
        predicted(subject, data, k=k, name=its_name, threads=threads)
        for its_name, subject in [(name, model), *named(against)]
    ]
    runs = on_one_index(with_unique_names(runs))
    index = runs[0].predictions.index
    truth = data.reindex(index)
    check_labels(truth.labels, truth.unknown)
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
    for place, run in enumerate(runs):
        if run.model is not None and (note := run.model.facts_.warning(data)):
            notes = (f"{run.name}: {note}", *evaluations[place].notes)
            evaluations[place] = replace(evaluations[place], notes=notes)
    contest = None
    if len(runs) > 1:
        shown = [run.predictions for run in runs]
        options = shared | {"metrics": table, "intervals": intervals or 1000}
        contest = compare_all(shown, truth.labels, **options)
    shared |= {"metrics": [name for name in TILES if name in table], "intervals": intervals or None}
    sliced = measure_slices(values, runs, truth.labels, **shared)
    data_name = data_name or "the evaluated documents"
    report = Report(
        title=title or f"{runs[0].name} on {data_name}",
        data_name=data_name,
        corpus=data,
        runs=tuple(runs),
        judged=judged,
        evaluations=tuple(evaluations),
        training=training,
        depth=depth,
        worst=worst,
        contest=contest,
        slices=sliced,
    )
    if out is not None:
        write_page(report, Path(out))
    return report


def check_extra() -> None:
    """Raises MissingExtraError unless the packages that reports need are installed."""
    try:
        for package in ("jinja2", "matplotlib"):
            importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError("report", "writing reports") from error


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
    return replace(training, frequencies=np.pad(training.frequencies, (0, missing)))
