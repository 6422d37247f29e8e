"""labelgrove evaluate: compare a model or a predictions file with a labelled corpus."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.core.durations import format_duration
from labelgrove.errors import ConfigError
from labelgrove.evaluation.measures import METRICS, Measures, check_labels

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.data.facts import TrainingFacts
    from labelgrove.evaluation.metrics import Evaluation
    from labelgrove.methods.base import Model


def evaluate(
    model: options.ModelOrFile,
    test: Annotated[Path, Argument(metavar="TEST", help="Corpus with the true labels.")],
    *,
    metric: Annotated[str | None, Option(help="Metrics, e.g. P@1,nDCG@5,macro-F1@5.")] = None,
    filter_file: Annotated[
        Path | None, Option("--filter", help="Document-label pairs to drop from the predictions.")
    ] = None,
    intervals: Annotated[int, Option(min=0, help="Bootstrap samples for 95 % intervals.")] = 0,
    label_facts: options.LabelFacts,
    inputs: options.Inputs,
) -> None:
    """Evaluate a model or a predictions file.

    Propensities come from the training frequencies, which are saved with the model. Labels that
    training never saw count in the denominators. Values are percentages. Metrics with @set, such as
    micro-F1@set, measure the sets that predict --threshold auto returns; in a predictions file, all
    labels of a document.

    Example: labelgrove evaluate model test.jsonl --json
    """
    from labelgrove.data.formats import read_filter_pairs
    from labelgrove.data.formats.files import existing
    from labelgrove.evaluation.metrics import Propensity

    common.check_device(inputs.device)
    model = existing(common.local_model(model))
    settings: dict[str, Any] = {
        "metrics": metric.split(",") if metric else None,
        "propensity": Propensity(*label_facts.propensity),
        "intervals": intervals or None,
        "filter_pairs": filter_file and read_filter_pairs(filter_file),
    }
    if model.is_dir():
        loaded = inputs.load(model)
        given = {"labels": label_facts.labels, "index": loaded.index_}
        corpus = inputs.corpus(loaded, test, "test", **given)
        with common.spinner(common.stderr_console(), "predicting"):
            measured = evaluate_model(loaded, corpus, threads=inputs.threads, **settings)
    elif not inputs.has_files:
        how = inputs.options("test")
        index, facts = label_facts.read(how)
        how = replace(how, features=False)
        corpus = common.read_corpus(test, how, labels=label_facts.labels, index=index)
        measured = _evaluate_file(model, corpus, facts, settings)
    else:
        raise ConfigError(
            "--dense and --features work only with a model, not with a predictions file"
        )
    if inputs.as_json:
        common.print_json(measured.to_json())
        return
    common.stdout_console().print(measured.evaluation.table())
    if model.is_dir():
        speed = measured.evaluation.n / max(measured.seconds, 1e-9)
        seconds = format_duration(measured.seconds)
        common.stderr_console().print(f"prediction took {seconds} ({speed:,.0f} documents/s)")


@dataclass(frozen=True)
class TimedEvaluation:
    """Metrics on a corpus, and the time that prediction took from text to labels."""

    evaluation: Evaluation
    seconds: float
    cpu_seconds: float

    def to_json(self) -> dict[str, object]:
        """One flat object with metrics in percent, as in published tables."""
        result = self.evaluation
        intervals = {name: [*map(_percent, pair)] for name, pair in result.intervals.items()}
        return {
            **{name: _percent(value) for name, value in result.values.items()},
            **({"intervals": intervals} if intervals else {}),
            "n": result.n,
            "seconds": round(self.seconds, 4),
            "cpu_seconds": round(self.cpu_seconds, 4),
            "unit": "percent",
            "propensity_A": result.propensity.a,
            "propensity_B": result.propensity.b,
            "notes": list(result.notes),
        }


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else round(100 * value, 4)


def evaluate_model(
    model: Model,
    corpus: Corpus,
    *,
    metrics: list[str] | None = None,
    threads: int | None = None,
    **settings: Any,
) -> TimedEvaluation:
    """Predicts a corpus and evaluates it; ``settings`` are arguments of metrics.evaluate."""
    measures = Measures.of(metrics, model.calibration_)
    k = measures.labels_needed(filtered=settings.get("filter_pairs") is not None)
    check_labels(corpus.labels, corpus.unknown)
    # All threads by default: the number that training was given says nothing about prediction.
    threads = threads or 0
    # The first call maps files and starts libraries; speeds are those of the calls after it.
    model.predict(corpus.take(range(min(1, len(corpus)))), k=k, threads=threads)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = model.predict(corpus, k=k, threads=threads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    settings |= {"train_frequencies": model.facts_.frequencies, "n_train": model.facts_.documents}
    evaluation = measures.evaluate(predictions, corpus.labels, unknown=corpus.unknown, **settings)
    if note := model.facts_.warning(corpus):
        evaluation = replace(evaluation, notes=(note, *evaluation.notes))
    return TimedEvaluation(evaluation, wall, cpu)


def _evaluate_file(
    file: Path, corpus: Corpus, facts: TrainingFacts | None, settings: dict[str, Any]
) -> TimedEvaluation:
    import numpy as np

    from labelgrove.evaluation.metrics import evaluate
    from labelgrove.evaluation.prediction_files import read_predictions

    wall, cpu = time.perf_counter(), time.process_time()
    predictions = read_predictions(file, corpus)
    # Labels that only the predictions have get columns of their own, without documents.
    extra = len(predictions.index) - len(corpus.index)
    corpus = corpus.reindex(predictions.index) if extra else corpus
    if facts is not None:
        settings["train_frequencies"] = np.pad(facts.frequencies, (0, extra))
        settings["n_train"] = facts.documents
    if settings["metrics"] is None:  # PSP needs training frequencies
        settings["metrics"] = [m for m in METRICS if m != "PSP@5" or facts is not None]
    evaluation = evaluate(predictions, corpus.labels, unknown=corpus.unknown, **settings)
    return TimedEvaluation(evaluation, time.perf_counter() - wall, time.process_time() - cpu)
