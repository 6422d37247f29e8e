"""labelgrove evaluate: metrics of a model, or of a file of predictions, on a labelled corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def evaluate(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder, or a file that predict wrote.")
    ],
    test: Annotated[Path, typer.Argument(metavar="TEST", help="Corpus with the true labels.")],
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="Names such as P@1,nDCG@5,macro-F1@5.")
    ] = None,
    train_corpus: Annotated[
        Path | None,
        typer.Option("--train", help="Training corpus; PSP of a predictions file needs it."),
    ] = None,
    a: Annotated[float, typer.Option("--propensity-a", help="A of the propensity model.")] = 0.55,
    b: Annotated[float, typer.Option("--propensity-b", help="B of the propensity model.")] = 1.5,
    filter_file: Annotated[
        Path | None,
        typer.Option("--filter", help="Document-label pairs to drop from the predictions."),
    ] = None,
    intervals: Annotated[
        int, typer.Option("--intervals", min=0, help="Bootstrap resamples for 95 % intervals.")
    ] = 0,
    labels: options.Labels = None,
    dense: options.Dense = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
    as_json: options.Json = False,
) -> None:
    """Evaluate a model or a predictions file.

    Propensities come from the training frequencies that the model carries. Labels that training
    never saw stay in the denominators. Values are percent.

    Example: labelgrove evaluate model test.jsonl --json
    """
    from labelgrove.formats import read_filter_pairs
    from labelgrove.formats.files import existing
    from labelgrove.metrics import Propensity

    console = common.stderr_console()
    common.check_device(device)
    model = existing(common.local_model(model))
    how = common.read_options(
        input_format, text_field, labels_field, id_field, skip_bad, read, part="test"
    )
    settings: dict[str, Any] = {
        "metrics": metrics.split(",") if metrics else None,
        "propensity": Propensity(a, b),
        "intervals": intervals or None,
        "filter_pairs": None if filter_file is None else read_filter_pairs(filter_file),
    }
    if model.is_dir():
        from labelgrove.methods.base import load

        loaded = load(model)
        common.use_device(loaded, device)
        common.check_dense(loaded, dense)
        corpus = common.read_corpus(
            test, labels=labels, index=loaded.index_, dense=dense, options=how, console=console
        )
        measured = common.evaluate_model(loaded, corpus, threads=threads, **settings)
    else:
        if dense is not None:
            raise ConfigError("--dense is for models; a predictions file needs none")
        measured = _evaluate_file(
            model, test, train_corpus, labels=labels, how=how, console=console, settings=settings
        )
    if as_json:
        common.print_json(measured.to_json())
        return
    common.stdout_console().print(measured.evaluation.table())
    speed = measured.evaluation.n / max(measured.seconds, 1e-9)
    if model.is_dir():
        console.print(
            f"predicted in {common.human_seconds(measured.seconds)}: {speed:,.0f} documents/s"
        )


def _evaluate_file(
    predictions_file: Path,
    test: Path,
    train_corpus: Path | None,
    *,
    labels: Path | None,
    how: Any,
    console: Any,
    settings: dict[str, Any],
) -> common.TimedEvaluation:
    import time
    from dataclasses import replace

    import numpy as np

    from labelgrove.metrics import evaluate
    from labelgrove.scores.files import read_predictions

    index = frequencies = n_train = None
    if train_corpus is not None:
        train_part = replace(how, part="train")
        trained = common.read_corpus(
            train_corpus, labels=labels, options=train_part, console=console
        )
        index, n_train = trained.index, len(trained)
        frequencies = np.bincount(trained.labels.indices, minlength=len(index))
    corpus = common.read_corpus(test, labels=labels, index=index, options=how, console=console)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = read_predictions(predictions_file, corpus)
    if len(predictions.index) > len(corpus.index):
        # Labels that only the predictions have: columns of their own, which no document bears.
        extra = len(predictions.index) - len(corpus.index)
        corpus = corpus.reindex(predictions.index)
        frequencies = None if frequencies is None else np.pad(frequencies, (0, extra))
    if settings["metrics"] is None:
        # Without training frequencies there are no propensities, so no PSP either.
        propensity_metrics = [] if frequencies is None else ["PSP@5"]
        settings["metrics"] = ["P@1", "P@3", "P@5", "nDCG@5", *propensity_metrics, "R@10"]
    evaluation = evaluate(
        predictions,
        corpus.labels,
        unknown=corpus.unknown,
        train_frequencies=frequencies,
        n_train=n_train,
        **settings,
    )
    return common.TimedEvaluation(evaluation, time.perf_counter() - wall, time.process_time() - cpu)
