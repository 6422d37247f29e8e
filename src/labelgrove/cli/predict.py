"""labelgrove predict: documents in, one JSON line of labels per document out, as a stream."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.formats import Document

Batch = tuple[Any, Sequence[str | None]]


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder, or hub:owner/name.")
    ],
    documents: Annotated[
        str, typer.Argument(metavar="INPUT", help="Corpus or text lines; - for standard input.")
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Labels per document.")] = 5,
    out: Annotated[str, typer.Option("--out", help="Output file; - for standard output.")] = "-",
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            "--min-score",
            help="Only labels with at least this score; auto: as calibrate chose.",
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Scores as they are, though the model is calibrated.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", help="Only these labels: id, name, group or @FILE (one a line); repeatable."
        ),
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", help="Never these labels; as --allow.")
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", help="Thesaurus (TSV: id, broader ids): its concepts are groups."),
    ] = None,
    score_labels: Annotated[
        list[str] | None,
        typer.Option("--score-labels", help="Score all of these and no others; as --allow."),
    ] = None,
    diversity: Annotated[
        float,
        typer.Option("--diversity", min=0, max=1, help="Push back labels like those before them."),
    ] = 0.0,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Documents per batch; 1 answers line by line.")
    ] = 2048,
    dense: options.Dense = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Predict the k best labels of each document.

    Writes one line of JSON per document with "labels" (names), "scores", "id" where the document
    has one, and "label_ids" where ids differ from names. Documents keep their order and their ids.
    Masks act before the k best are chosen: k labels come back whenever k are allowed.

    Example: echo '{"text": "red running shoes"}' | labelgrove predict model - --k 3 --deny sale
    """
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.formats import ReadReport, iter_documents, read_corpus
    from labelgrove.labels.masks import LabelMask
    from labelgrove.methods.base import load
    from labelgrove.scores.files import prediction_lines

    console = common.stderr_console()
    common.check_device(device)
    loaded = load(common.local_model(model))
    common.use_device(loaded, device)
    common.check_dense(loaded, dense)
    if groups is not None:
        from labelgrove.labels.given_trees import read_label_groups

        loaded.index_ = loaded.index_.with_groups(read_label_groups(groups, loaded.index_))
    asked: dict[str, Any] = {
        "min_score": _min_score(threshold),
        "diversity": diversity,
        "raw": raw,
    }
    if score_labels is not None:
        if allow is not None:
            raise ConfigError("--score-labels and --allow: give one of them")
        allow = score_labels
    mask = LabelMask.of(loaded.index_, common.given_labels(allow), common.given_labels(deny))
    if mask is not None:
        asked["allow"] = mask
        k = k if score_labels is None else len(mask)
    report = ReadReport()
    how = common.read_options(
        input_format,
        text_field=text_field,
        id_field=id_field,
        skip_bad=skip_bad,
        read=read,
        part="test",
    )
    if loaded.facts_.from_text:
        inputs = _text_batches(iter_documents(documents, options=how, report=report), batch)
    else:
        inputs = _feature_batches(read_corpus(documents, options=how, report=report), batch)
    beside = None if dense is None else _DenseRows(dense)
    # Bars and answers would be mixed up on one terminal.
    shown = [] if out == "-" and sys.stdout.isatty() else [RichProgress()]
    with _output(out) as file, Reporter(shown).stage("predicting") as progress:
        for rows, ids in inputs:
            extra = {} if beside is None else {"dense": beside.take(len(ids))}
            predictions = loaded.predict(rows, k=k, threads=threads or 0, **asked, **extra)
            file.writelines(prediction_lines(predictions, ids))
            file.flush()
            progress.advance(len(ids))
        if beside is not None:
            beside.finish()
    if out != "-" or report.bad_lines:
        console.print(f"{report}" if out == "-" else f"{report} -> {out}", markup=False)


def _min_score(given: str | None) -> Any:
    if given is None or given == "auto":
        return given
    try:
        return float(given)
    except ValueError:
        raise ConfigError(f"--threshold {given}: must be a number or auto") from None


class _DenseRows:
    """Rows of a .npy file, handed out with the documents they belong to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = common.read_dense(path)
        self.used = 0

    def take(self, count: int) -> Any:
        self.used += count
        if self.used > len(self.rows):
            self._refuse(f"at least {self.used:,}")
        return self.rows[self.used - count : self.used]

    def finish(self) -> None:
        if self.used < len(self.rows):
            self._refuse(f"{self.used:,}")

    def _refuse(self, documents: str) -> None:
        raise DataError(
            f"has {len(self.rows):,} rows, but the input has {documents} documents", file=self.path
        )


def _text_batches(documents: Iterator[Document], size: int) -> Iterator[Batch]:
    while chunk := list(islice(documents, size)):
        yield [document.text for document in chunk], [document.id for document in chunk]


def _feature_batches(corpus: Corpus, size: int) -> Iterator[Batch]:
    """For models that learnt from ready-made features instead of texts."""
    if corpus.features is None:
        raise DataError("this model was trained on features; the input holds texts only")
    for start in range(0, len(corpus), size):
        rows = corpus.features.take(slice(start, start + size))
        ids = [None] * len(rows) if corpus.ids is None else corpus.ids[start : start + size]
        yield rows, ids


@contextmanager
def _output(out: str) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name only when it is whole."""
    if out == "-":
        yield sys.stdout.buffer
        return
    from labelgrove.formats.files import replacing

    with replacing(out) as file:
        yield file
