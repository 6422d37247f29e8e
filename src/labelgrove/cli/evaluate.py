"""labelgrove evaluate, report and calibrate: compare a model with a labelled corpus."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.measuring import METRICS, Measures, check_labels
from labelgrove.core.durations import format_duration
from labelgrove.errors import ConfigError

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.data.facts import TrainingFacts
    from labelgrove.evaluation.metrics import Evaluation
    from labelgrove.methods.base import Model

SLICE = 2048  # documents between two moves of a progress bar


def evaluate(
    model: options.ModelOrFile,
    test: Annotated[Path, Argument(metavar="TEST", help="Corpus with the true labels.")],
    *,
    metrics: Annotated[str | None, Option(help="Metrics, e.g. P@1,nDCG@5,macro-F1@5.")] = None,
    frequencies: options.Frequencies,
    filter_file: Annotated[
        Path | None, Option("--filter", help="Document-label pairs to drop from the predictions.")
    ] = None,
    intervals: Annotated[int, Option(min=0, help="Bootstrap samples for 95 % intervals.")] = 0,
    labels: options.Labels = None,
    features: options.Given = None,
    dense: options.Dense = None,
    where: options.Where,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
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

    common.check_device(machine.device)
    where.check()
    model = existing(common.local_model(model))
    how = reading.options("test")
    settings: dict[str, Any] = {
        "metrics": metrics.split(",") if metrics else None,
        "propensity": Propensity(frequencies.a, frequencies.b),
        "intervals": intervals or None,
        "filter_pairs": None if filter_file is None else read_filter_pairs(filter_file),
    }
    if where.engine is not None:
        from labelgrove.cli.sharded import evaluate_shards

        if not model.is_dir() or dense is not None or features is not None:
            raise ConfigError("--engine: takes a model and shards, without --dense and --features")
        parts = evaluate_shards(model, test, how, where, machine, **settings)
        measured = TimedEvaluation(*parts)
    elif model.is_dir():
        loaded = common.load_model(model, machine.device, dense, features)
        corpus = common.read_for(
            loaded, test, how, labels=labels, index=loaded.index_, dense=dense, features=features
        )
        measured = evaluate_model(loaded, corpus, threads=machine.threads, **settings)
    elif dense is None and features is None:
        index, facts = frequencies.read(how, labels)
        how = replace(how, features=False)
        corpus = common.read_corpus(test, how, labels=labels, index=index)
        measured = _evaluate_file(model, corpus, facts, settings)
    else:
        raise ConfigError(
            "--dense and --features work only with a model, not with a predictions file"
        )
    if as_json:
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
    predictions = _predicted(model, corpus, k, threads)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    settings |= {"train_frequencies": model.facts_.frequencies, "n_train": model.facts_.documents}
    settings["unknown"] = corpus.unknown
    evaluation = measures.evaluate(predictions, corpus.labels, **settings)
    if note := model.facts_.warning(corpus):
        evaluation = replace(evaluation, notes=(note, *evaluation.notes))
    return TimedEvaluation(evaluation, wall, cpu)


def _predicted(model: Model, corpus: Corpus, k: int, threads: int) -> Any:
    """Predictions of a whole corpus, with a progress bar on a terminal."""
    if not sys.stderr.isatty() or len(corpus) <= SLICE:
        return model.predict(corpus, k=k, threads=threads)
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.evaluation.predictions import Predictions

    parts = []
    with RichProgress() as bar, Reporter([bar]).stage("predicting", total=len(corpus)) as stage:
        for start in range(0, len(corpus), SLICE):
            rows = range(start, min(start + SLICE, len(corpus)))
            parts.append(model.predict(corpus.take(rows), k=k, threads=threads))
            stage.advance(len(rows))
    return Predictions.concat(parts)


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


def report(
    model: options.ModelOrFile,
    *,
    test: options.Data,
    out: Annotated[Path, Option(help="HTML file to write.")],
    against: Annotated[
        list[Path] | None, Option(help="Compare with this model or file. Repeatable.")
    ] = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Largest k of the curves.")] = 10,
    worst: Annotated[int, Option(min=0, help="Wrong documents to show. 0 shows no texts.")] = 20,
    slices: Annotated[
        list[str] | None,
        Option("--slice", help="Also measure by this field, such as language. Repeatable."),
    ] = None,
    png: Annotated[Path | None, Option(help="Folder for the charts as PNG files.")] = None,
    title: Annotated[str | None, Option(help="Title of the page.")] = None,
    frequencies: options.Frequencies,
    intervals: Annotated[
        int, Option(min=0, help="Bootstrap samples. 0 draws no intervals.")
    ] = 1000,
    labels: options.Labels = None,
    features: options.Given = None,
    dense: options.Dense = None,
    force: options.Force = False,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Write an evaluation as one HTML file with charts, tables and the most wrong documents.

    Shows metrics for each k, by label, by label frequency and by field (--slice), calibration,
    confused labels, time and memory. The file loads nothing from elsewhere. It contains the
    beginnings of documents; --worst 0 leaves them out.

    Example: labelgrove report model test.jsonl --out report.html --against older-model
    """
    from labelgrove.data.formats.files import existing
    from labelgrove.evaluation.metrics import Propensity
    from labelgrove.experiments.report import check_extra, write_report
    from labelgrove.experiments.report.runs import predicted
    from labelgrove.experiments.report.slices import read_values, slice_values

    check_extra()
    common.check_device(machine.device)
    common.refuse_existing([out], force=force)
    how, data = reading.options("test"), test.required()
    paths = [model, *(against or [])]
    loaded = [
        common.load_model(path, machine.device) if path.is_dir() else existing(path)
        for path in paths
    ]
    index = training = None
    if isinstance(loaded[0], Path):
        index, training = frequencies.read(how, labels)
    elif not any(isinstance(run, Path) or run.index_ != loaded[0].index_ for run in loaded):
        # Only for runs with the same labels: reading with those of one run loses all others.
        index = loaded[0].index_
    facts = [run.facts_ for run in loaded if not isinstance(run, Path)]
    if facts and all(known.from_text and not known.given for known in facts):
        if not isinstance(loaded[0], Path):
            common.check_features(loaded[0], features)
        how = replace(how, features=False)
    wide = how.n_features or max((known.given for known in facts), default=0) or None
    how = replace(how, n_features=wide)
    for run in loaded:
        how = how if isinstance(run, Path) else common.with_fields_of(run, data, how)
    corpus = common.read_corpus(
        data, how, labels=labels, index=index, dense=dense, features=features
    )
    # Before the work, because a field that is not there ends it.
    values = slice_values(read_values(data, slices, how) if slices else {}, corpus)
    console = common.stderr_console()
    with common.spinner(console, "predicting and measuring"):
        runs = []
        for path, run, name in zip(paths, loaded, _names(paths), strict=True):
            run = predicted(run, corpus, k=k, name=name, threads=machine.threads)
            runs.append(replace(run, folder=path if path.is_dir() else None))
        written = write_report(
            runs[0],
            corpus,
            out,
            against=runs[1:],
            k=k,
            intervals=intervals or None,
            worst=worst,
            title=title,
            data_name=data.name,
            propensity=Propensity(frequencies.a, frequencies.b),
            training=training,
            slices=values,
            png_folder=png,
        )
    if as_json:
        common.print_json({"report": str(out), **written.to_dict()})
    files = [f"report: {out}"]
    if png is not None:
        files.append(f"charts: {png}")
    console.print(", ".join(files))


def _names(paths: list[Path]) -> list[str]:
    """The last parts of the paths if they differ, else the whole paths."""
    short = [path.resolve().name or str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def calibrate(
    model: options.Model,
    *,
    corpus: options.Data,
    kind: Annotated[str, Option(help="Curve: isotonic, beta, or auto (the better fit).")] = "auto",
    by: Annotated[
        str, Option(help="One curve for all (none), or one per rank, level or frequency of labels.")
    ] = "none",
    k: Annotated[int, Option("--k", "-k", min=1, help="Labels per document to learn from.")] = 20,
    target: Annotated[
        str, Option(help="What sets of labels are best at: micro-F1, macro-F1 or document-F1.")
    ] = "micro-F1",
    precision: Annotated[
        float | None, Option(help="Precision to reach, instead of a --target.")
    ] = None,
    per_label: Annotated[
        bool, Option("--per-label", help="Give labels with enough documents their own thresholds.")
    ] = False,
    out: Annotated[Path | None, Option(help="New model folder to write. Default: MODEL.")] = None,
    features: options.Given = None,
    dense: options.Dense = None,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Turn a model's scores into probabilities, with documents that it was not trained on.

    After this, predict and the Python API return probabilities; predict --raw returns the original
    scores. predict --threshold auto returns sets of labels: those that reach the best threshold
    over all pairs of documents and labels (micro-F1), that of labels with about as many training
    documents (macro-F1), or as many labels as are best for each document (document-F1).

    Example: labelgrove calibrate model dev.jsonl --target document-F1
    """
    from labelgrove.evaluation.calibrate import calibrate as learn

    if out is not None and out.exists():
        raise ConfigError(f"{out} already exists; choose another --out")
    if precision is not None and target != "micro-F1":
        raise ConfigError("--precision and --target exclude each other; give one of them")
    path = corpus.required()
    loaded = common.load_model(model, machine.device, dense, features)
    how, index = reading.options("dev"), loaded.index_
    documents = common.read_for(loaded, path, how, index=index, dense=dense, features=features)
    curve: Any = {"kind": kind, "by": by, "target": target if precision is None else precision}
    calibration = learn(
        loaded, documents, k=k, per_label=per_label, threads=machine.threads or 0, **curve
    )
    loaded.save(out or model, overwrite=out is None)
    figures = calibration.report or {}
    if as_json:
        facts = {
            "model": str(out or model),
            "kind": calibration.kind,
            "by": calibration.by,
            "score_kind": calibration.score_kind,
            "threshold": calibration.threshold,
        }
        common.print_json(facts | figures)
        return
    console, at = common.stderr_console(), figures["at_threshold"]
    sets = f"threshold {calibration.threshold:.4f}"
    if calibration.by_document:
        sets = "sets by document"
    elif calibration.label_thresholds is not None:
        sets = "thresholds by label"
    console.print(
        f"{calibration.kind} curve from {figures['documents']:,} documents: expected calibration "
        f"error {100 * figures['before']['ece']:.2f} % before, "
        f"{100 * figures['after']['ece']:.2f} % after\n"
        f"{sets}: precision {100 * at['precision']:.1f} %, recall {100 * at['recall']:.1f} %, "
        f"micro-F1 {100 * at['f1']:.1f} %, macro-F1 {100 * at['macro_f1']:.1f} %, document-F1 "
        f"{100 * at['document_f1']:.1f} %, {at['labels_per_document']:.2f} labels per document"
    )
    if precision is not None and at["precision"] < precision:
        console.print(f"note: no threshold reaches {100 * precision:g} % precision on this corpus")
    console.print(f"model: {out or model}")
