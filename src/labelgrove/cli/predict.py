"""labelgrove predict: documents in, one JSON line of labels per document out, as a stream."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError, warn

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.formats import Document

Batch = tuple[Any, Sequence[str | None]]


def predict(
    model: options.HubModel,
    documents: Annotated[
        str, Argument(metavar="INPUT", help="Corpus or text lines; - for standard input.")
    ],
    *,
    k: Annotated[int, Option("--k", "-k", min=1, help="Labels per document.")] = 5,
    out: Annotated[
        str, Option(help="Output file: JSON lines, or .csv, .parquet, .xlsx. -: standard output.")
    ] = "-",
    threshold: Annotated[
        str | None,
        Option("--threshold", "--min-score", help="Minimum score. auto: the sets of calibrate."),
    ] = None,
    raw: Annotated[bool, Option("--raw", help="Return uncalibrated scores.")] = False,
    allow: Annotated[
        list[str] | None,
        Option(help="Allow only this id, name, group or @FILE of them. Repeatable."),
    ] = None,
    deny: Annotated[list[str] | None, Option(help="Exclude this label. Like --allow.")] = None,
    groups: Annotated[
        Path | None, Option(help="Thesaurus (TSV: id, broader ids). Its concepts become groups.")
    ] = None,
    score_labels: Annotated[
        list[str] | None, Option(help="Score all of these labels and no others. Like --allow.")
    ] = None,
    diversity: Annotated[
        float, Option(min=0, max=1, help="Move labels down that are like better ones.")
    ] = 0.0,
    batch: Annotated[int, Option(min=1, help="Documents at once. 1: line by line.")] = 2048,
    features: options.Given = None,
    dense: options.Dense = None,
    machine: options.Machine,
    reading: Annotated[options.Reading, options.Without("labels_field")],
) -> None:
    """Predict the k best labels of each document.

    Writes one line of JSON per document, in the order of the input: "labels" (names), "scores",
    "id" if the document has one, and "label_ids" if ids differ from names. --allow and --deny apply
    before the k best labels are chosen, so you get k labels whenever k are allowed. A table (--out
    x.csv, x.parquet, x.xlsx) has a row per label: document, rank, id, name, score.

    Example: echo '{"text": "red running shoes"}' | labelgrove predict model - --k 3 --deny sale
    """
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.formats import ReadReport, iter_documents
    from labelgrove.labels.masks import LabelMask
    from labelgrove.scores.files import prediction_writer

    atexit.register(_leave_the_rest)
    loaded = common.load_model(common.local_model(model), machine.device, dense, features)
    if groups is not None:
        from labelgrove.labels.given_trees import read_label_groups

        loaded.index_ = loaded.index_.with_groups(read_label_groups(groups, loaded.index_))
    request: dict[str, Any] = {
        "min_score": _min_score(threshold),
        "diversity": diversity,
        "raw": raw,
        "threads": machine.threads or 0,
    }
    if score_labels is not None:
        if allow is not None:
            raise ConfigError("--score-labels and --allow exclude each other; give one of them")
        allow = score_labels
    mask = LabelMask.of(loaded.index_, common.given_labels(allow), common.given_labels(deny))
    if mask is not None:
        request["allow"] = mask
        k = k if score_labels is None else len(mask)
    report = ReadReport()
    how = reading.options("test")
    if loaded.facts_.from_text and not loaded.facts_.given:
        how = common.with_fields_of(loaded, documents, how)
        inputs = _text_batches(iter_documents(documents, options=how, report=report), batch)
    else:
        source = Path(documents)
        corpus = common.read_for(loaded, source, how, features=features, report=report)
        inputs = _corpus_batches(corpus, batch)
    # A progress bar and answers on one terminal would mix.
    callbacks = [] if out == "-" and sys.stdout.isatty() else [RichProgress()]
    documents_seen = labels_found = full = 0
    with prediction_writer(out) as write, Reporter(callbacks).stage("predicting") as progress:
        for rows, ids, vectors in _with_vectors(inputs, dense):
            predictions = loaded.predict(rows, k=k, **request, **vectors)
            write(predictions, ids)
            progress.advance(len(ids))
            documents_seen += len(ids)
            labels_found += int(predictions.counts.sum())
            full += int((predictions.counts == k).sum())
    calibration = loaded.calibration_
    if threshold == "auto" and full and calibration is not None and k < calibration.places:
        warn(
            f"--k {k}: {full:,} documents have {k} labels, and their sets may have more; "
            f"--k {calibration.places} returns all of them"
        )
    if documents_seen and not labels_found and threshold is not None:
        warn(f"--threshold {threshold}: no label of any document reaches it")
    if k > len(loaded.index_):
        warn(f"--k {k}: the model has {len(loaded.index_):,} labels, and no document gets more")
    if out != "-" or report.bad_lines or report.notes:
        common.stderr_console().print(f"{report}" if out == "-" else f"{report} -> {out}")


def _leave_the_rest() -> None:
    """Ends the search for garbage: at its end Python looks through all modules several times."""
    gc.collect()
    gc.freeze()


def _min_score(given: str | None) -> Any:
    if given is None or given == "auto":
        return given
    try:
        return float(given)
    except ValueError:
        raise ConfigError(f"--threshold {given}: must be a number or auto") from None


def _text_batches(documents: Iterator[Document], size: int) -> Iterator[Batch]:
    while chunk := list(islice(documents, size)):
        yield [document.text for document in chunk], [document.id for document in chunk]


def _corpus_batches(corpus: Corpus, size: int) -> Iterator[Batch]:
    """For models that were trained on features, with or without texts."""
    from labelgrove.data.inputs import documents_of

    if corpus.features is None:
        raise DataError(
            "this model was trained on features, but the input has only texts; give a folder that "
            "has them, or --features FILE"
        )
    everything = documents_of(corpus)
    for start in range(0, len(corpus), size):
        rows = everything.take(slice(start, start + size))
        ids = [None] * len(rows) if corpus.ids is None else corpus.ids[start : start + size]
        yield rows, ids


def _with_vectors(batches: Iterator[Batch], file: Path | None) -> Iterator[tuple[Any, Any, Any]]:
    """The batches, and for each the argument with the vectors that belong to its documents."""
    vectors = None if file is None else common.read_dense(file)
    used = 0
    for rows, ids in batches:
        start, used = used, used + len(ids)
        if vectors is not None and used > len(vectors):
            raise DataError(
                f"has {len(vectors):,} rows, but the input has more documents", file=file
            )
        yield rows, ids, {} if vectors is None else {"dense": vectors[start:used]}
    if vectors is not None and used < len(vectors):
        raise DataError(
            f"has {len(vectors):,} rows, but the input has {used:,} documents", file=file
        )
