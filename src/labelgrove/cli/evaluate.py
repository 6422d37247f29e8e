"""labelgrove evaluate: metrics of a model, or of a predictions file, on a labelled corpus."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import Corpus
    from labelgrove.formats import ReadOptions
    from labelgrove.metrics import Evaluation, Propensity

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
SLICE = 2048  # documents between two moves of a progress bar


def evaluate(
    model: options.ModelOrFile,
    test: Annotated[Path, Argument(metavar="TEST", help="Corpus with the true labels.")],
    *,
    metrics: Annotated[str | None, Option(help="Metrics, e.g. P@1,nDCG@5,macro-F1@5.")] = None,
    frequencies: options.Frequencies,
    filter_file: Annotated[
        Path | None,
        Option("--filter", help="File of document-label pairs to drop from the predictions."),
    ] = None,
    intervals: Annotated[
        int, Option(min=0, help="Number of bootstrap samples for 95 % intervals.")
    ] = 0,
    labels: options.Labels = None,
    dense: options.Dense = None,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Evaluate a model or a predictions file.

    The model contains the training frequencies from which propensities are computed. Labels that
    training never saw count in the denominators. Values are percentages.

    Example: labelgrove evaluate model test.jsonl --json
    """
    from labelgrove.formats import read_filter_pairs
    from labelgrove.formats.files import existing

    console = common.stderr_console()
    common.check_device(machine.device)
    model = existing(common.local_model(model))
    how = reading.options("test")
    settings: dict[str, Any] = {
        "metrics": metrics.split(",") if metrics else None,
        "propensity": frequencies.propensity,
        "intervals": intervals or None,
        "filter_pairs": None if filter_file is None else read_filter_pairs(filter_file),
    }
    if model.is_dir():
        loaded = common.load_model(model, machine.device, dense)
        corpus = common.read_corpus(
            test, labels=labels, index=loaded.index_, dense=dense, options=how, console=console
        )
        measured = evaluate_model(loaded, corpus, threads=machine.threads, **settings)
    else:
        if dense is not None:
            raise ConfigError("--dense works only with a model, not with a predictions file")
        measured = _evaluate_file(
            model, test, frequencies.train_corpus, labels, how, console, settings
        )
    if as_json:
        common.print_json(measured.to_json())
        return
    common.stdout_console().print(measured.evaluation.table())
    if model.is_dir():
        speed = measured.evaluation.n / max(measured.seconds, 1e-9)
        seconds = common.human_seconds(measured.seconds)
        console.print(f"prediction took {seconds} ({speed:,.0f} documents/s)")


@dataclass(frozen=True)
class TimedEvaluation:
    """Metrics on a corpus, and the time that prediction took from text to labels."""

    evaluation: Evaluation
    seconds: float
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        """One flat object with metrics in percent, as in published tables."""
        found = self.evaluation
        intervals = {name: [*map(_percent, pair)] for name, pair in found.intervals.items()}
        return {
            **{name: _percent(value) for name, value in found.values.items()},
            **({"intervals": intervals} if intervals else {}),
            "n": found.n,
            "seconds": round(self.seconds, 4),
            "cpu_seconds": round(self.cpu_seconds, 4),
            "unit": "percent",
            "propensity_A": found.propensity.a,
            "propensity_B": found.propensity.b,
            "notes": list(found.notes),
        }


def _percent(value: float) -> float | None:
    """A hundred times the value; None for a metric that is not defined here."""
    return None if math.isnan(value) else round(100 * value, 4)


def evaluate_model(
    model: Any,
    corpus: Corpus,
    *,
    metrics: list[str] | None = None,
    propensity: Propensity | None = None,
    intervals: int | None = None,
    filter_pairs: Any = None,
    threads: int | None = None,
) -> TimedEvaluation:
    """Predicts a whole corpus and scores it with the training frequencies in the model."""
    from labelgrove.metrics import Propensity, evaluate, parse_metric

    if corpus.labels.nnz == 0 and not corpus.unknown.any():
        raise DataError("cannot evaluate: no document of the corpus has a label")
    names = metrics or METRICS
    # Filtered pairs make room for the labels behind them: ask for a few more.
    k = max(parse_metric(name).k or 100 for name in names) + (0 if filter_pairs is None else 10)
    wall, cpu = time.perf_counter(), time.process_time()
    # Prediction does not use the number of threads that training was given.
    predictions = _predicted(model, corpus, k, threads or 0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    evaluation = evaluate(
        predictions,
        corpus.labels,
        unknown=corpus.unknown,
        metrics=names,
        train_frequencies=model.facts_.frequencies,
        n_train=model.facts_.documents,
        propensity=propensity or Propensity(),
        intervals=intervals,
        filter_pairs=filter_pairs,
    )
    return TimedEvaluation(evaluation, wall, cpu)


def _predicted(model: Any, corpus: Corpus, k: int, threads: int) -> Any:
    """Predictions of a whole corpus, with a progress bar on a terminal."""
    if not sys.stderr.isatty() or len(corpus) <= SLICE:
        return model.predict(corpus, k=k, threads=threads)
    from labelgrove.callbacks import Reporter, RichProgress
    from labelgrove.predictions import Predictions

    parts = []
    with (
        RichProgress() as progress,
        Reporter([progress]).stage("predicting", total=len(corpus)) as stage,
    ):
        for start in range(0, len(corpus), SLICE):
            rows = range(start, min(start + SLICE, len(corpus)))
            parts.append(model.predict(corpus.take(rows), k=k, threads=threads))
            stage.advance(len(rows))
    return Predictions.concat(parts)


def _evaluate_file(
    file: Path,
    test: Path,
    train_corpus: Path | None,
    labels: Path | None,
    how: ReadOptions,
    console: Console,
    settings: dict[str, Any],
) -> TimedEvaluation:
    import numpy as np

    from labelgrove.metrics import evaluate
    from labelgrove.predictions_file import read_predictions

    index = frequencies = n_train = None
    if train_corpus is not None:
        part = replace(how, part="train")
        trained = common.read_corpus(train_corpus, labels=labels, options=part, console=console)
        index, n_train = trained.index, len(trained)
        frequencies = np.bincount(trained.labels.indices, minlength=len(index))
    corpus = common.read_corpus(test, labels=labels, index=index, options=how, console=console)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = read_predictions(file, corpus)
    if len(predictions.index) > len(corpus.index):
        # Labels that only the predictions have get columns of their own, without documents.
        extra = len(predictions.index) - len(corpus.index)
        corpus = corpus.reindex(predictions.index)
        frequencies = None if frequencies is None else np.pad(frequencies, (0, extra))
    if settings["metrics"] is None:
        # PSP needs propensities, and these need training frequencies.
        settings["metrics"] = [m for m in METRICS if m != "PSP@5" or frequencies is not None]
    evaluation = evaluate(
        predictions,
        corpus.labels,
        unknown=corpus.unknown,
        train_frequencies=frequencies,
        n_train=n_train,
        **settings,
    )
    return TimedEvaluation(evaluation, time.perf_counter() - wall, time.process_time() - cpu)
