"""labelgrove predict: documents in, one JSON line of labels per document out, as a stream."""

from __future__ import annotations

import atexit
import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError, warn

if TYPE_CHECKING:
    from labelgrove.cli.predicting import Done, PredictionJob


def predict(
    model: options.HubModel,
    documents: Annotated[
        str, Argument(metavar="INPUT", help="Corpus or text lines; - for standard input.")
    ],
    *,
    request: options.Request,
    out: Annotated[
        str, Option(help="Output file: JSON lines, or .csv, .parquet, .xlsx. -: standard output.")
    ] = "-",
    batch: Annotated[int, Option(min=1, help="Documents at once. 1: line by line.")] = 2048,
    inputs: options.Inputs,
    where: options.Where,
    reading: Annotated[options.CorpusOptions, options.Without("labels_field")],
) -> None:
    """Predict the k best labels of each document.

    Writes one line of JSON per document, in the order of the input: "labels" (names), "scores",
    "id" if the document has one, and "label_ids" if ids differ from names. --allow and --deny apply
    before the k best labels are chosen, so you get k labels whenever k are allowed. A table (--out
    x.csv, x.parquet, x.xlsx) has a row per label: document, rank, id, name, score, and the columns
    of the input if that is a table, too. With --engine,
    INPUT is a folder or pattern of shards, and --out a folder with a file for each of them.

    Example: echo '{"text": "red running shoes"}' | labelgrove predict model - --k 3 --deny sale
    """
    from labelgrove.cli.predicting import PredictionJob

    atexit.register(_leave_the_rest)
    where.check()
    job = PredictionJob(
        common.local_model(model),
        request.resolved(),
        inputs,
        replace(reading.options("test"), labels=False),
        threads=where.threads(inputs.threads),
        batch=batch,
    )
    if where.engine is None:
        done = _predict_file(job, documents, out)
    else:
        done = _predict_shards(job, documents, out, where)
    if done.unknown:
        warn(
            f"no word tells the model anything in {done.unknown:,} of {done.documents:,} texts; "
            "these get the labels of an empty text"
        )
    if request.threshold == "auto" and done.full and done.k < done.places:
        warn(
            f"--k {done.k}: {done.full:,} documents have {done.k} labels, and their sets may have "
            "more; leave --k out for all of them"
        )
    if done.documents and not done.labels and request.threshold is not None:
        warn(f"--threshold {request.threshold}: no label of any document reaches it")
    if request.k is not None and done.k > done.known:
        warn(f"--k {done.k}: the model has {done.known:,} labels, and no document gets more")
    report = done.report
    if out != "-" or report.bad_lines or report.notes:
        summary, *remarks = str(report).split("\n")
        lines = [summary if out == "-" else f"{summary} -> {out}", *remarks]
        common.stderr_console().print("\n".join(lines))


def _predict_file(job: PredictionJob, documents: str, out: str) -> Done:
    from labelgrove.core.callbacks import Reporter, RichProgress

    # A progress bar and answers on one terminal would mix.
    callbacks = [] if out == "-" and sys.stdout.isatty() else [RichProgress()]
    ready = job.prepared()
    with Reporter(callbacks).stage("predicting") as progress:
        return ready.predict(documents, out, progress.advance)


def _predict_shards(job: PredictionJob, documents: str, out: str, where: options.Where) -> Done:
    """Each shard becomes a file of the output folder, written by the worker that predicted it."""
    from labelgrove.cli.predicting import Done
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.data.formats.shards import output_names, shards_of
    from labelgrove.exchange.loading import load

    if out == "-":
        raise ConfigError("--engine: give --out FOLDER; every shard becomes a file in it")
    if job.inputs.has_files:
        raise ConfigError("--dense and --features: a corpus in shards cannot have them")
    job = replace(job, model=job.model.resolve())  # workers may run in other folders
    shards = shards_of(documents)
    folder = Path(out).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot be made: {error.strerror}", file=folder) from error
    targets = [folder / name for name in output_names(shards)]
    done = Done()
    gpu = common.asks_for_gpu(load(job.model), job.inputs.device)
    with where.open() as engine, Reporter([RichProgress()]).stage("predicting") as progress:
        pairs = list(zip(shards, map(str, targets), strict=True))
        for part in engine.stream(job.worker, pairs, gpu=gpu):
            done.add(part)
            progress.advance(part.documents)
    return done


def _leave_the_rest() -> None:
    """Ends the search for garbage: at its end Python looks through all modules several times."""
    gc.collect()
    gc.freeze()
