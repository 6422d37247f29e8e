"""labelgrove predict: documents in, one JSON line of labels per document out, as a stream."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from labelgrove.cli import common, options


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    documents: Annotated[
        str, typer.Argument(metavar="INPUT", help="Corpus or text lines; - for standard input.")
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Labels per document.")] = 5,
    out: Annotated[str, typer.Option("--out", help="Output file; - for standard output.")] = "-",
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Only labels with at least this score.")
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Documents per batch; 1 answers line by line.")
    ] = 2048,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    id_field: options.IdField = "id",
) -> None:
    """Predict the k best labels of each document.

    Writes one line per document: {"id", "labels": [names], "scores": [...]}, and "label_ids" where
    ids differ from names. Documents keep their order and their ids.

    Example: echo '{"text": "red running shoes"}' | labelgrove predict model - --k 3
    """
    from labelgrove.formats import ReadReport, iter_documents
    from labelgrove.methods.base import load
    from labelgrove.predictions_file import prediction_lines

    console = common.stderr_console()
    common.check_device(device)
    loaded = load(model)
    report = ReadReport()
    how = common.read_options(
        input_format, text_field=text_field, id_field=id_field, skip_bad=skip_bad
    )
    stream = iter_documents(documents, options=how, report=report)
    with _output(out) as file:
        for batch_documents in _batches(stream, batch):
            texts = [document.text for document in batch_documents]
            predictions = loaded.predict(texts, k=k, threads=threads)
            if threshold is not None:
                predictions = predictions.above(threshold)
            ids = [document.id for document in batch_documents]
            file.writelines(prediction_lines(predictions, ids))
            file.flush()
    if out != "-" or report.bad_lines:
        console.print(f"{report}" if out == "-" else f"{report} -> [bold]{out}[/bold]")


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


@contextmanager
def _output(out: str) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name only when it is whole."""
    if out == "-":
        yield sys.stdout.buffer
        return
    from labelgrove.formats.files import replacing

    with replacing(out) as file:
        yield file
