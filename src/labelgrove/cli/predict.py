"""labelgrove predict: documents in, one JSON line of labels per document out, as a stream."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError, warn

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from labelgrove.data.corpus import Corpus
    from labelgrove.data.formats import Document, ReadOptions, ReadReport
    from labelgrove.evaluation.predictions import Predictions
    from labelgrove.labels.masks import LabelMask
    from labelgrove.methods.base import Model

# Documents, their ids, and the cells of their rows if tables keep the columns of their input.
Batch = tuple[object, Sequence[str | None], Sequence[Mapping[str, str]] | None]
DEFAULT_K = 5


def predict(
    model: options.HubModel,
    documents: Annotated[
        str, Argument(metavar="INPUT", help="Corpus or text lines; - for standard input.")
    ],
    *,
    request: options.Request,
    out: Annotated[
        str, Option(help="Output file: JSON lines, or .csv, .parquet. -: standard output.")
    ] = "-",
    batch: Annotated[int, Option(min=1, help="Documents at once. 1: line by line.")] = 2048,
    inputs: Annotated[options.Inputs, options.Without("labels_field"), options.Without("as_json")],
    where: options.Where,
) -> None:
    """Predict the k best labels of each document.

    Writes one line of JSON per document, in the order of the input: "labels" (names), "scores",
    "id" if the document has one, and "label_ids" if ids differ from names. --allow and --deny apply
    before the k best labels are chosen, so you get k labels whenever k are allowed. A table (--out
    x.csv, x.parquet) has a row per label: document, rank, id, name, score, and the columns of the
    input if that is a table, too. With --engine,
    INPUT is a folder or pattern of shards, and --out a folder with a file for each of them.

    Example: echo '{"text": "red running shoes"}' | labelgrove predict model - --k 3 --deny sale
    """
    atexit.register(_leave_the_rest)
    where.check()
    job = PredictionJob(
        common.local_model(model),
        request.resolved(),
        inputs,
        replace(inputs.options("test"), labels=False),
        threads=where.worker_threads(inputs.threads),
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
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.data.formats import ReadReport
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
    done = Done(ReadReport())
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


@dataclass(frozen=True)
class PredictionJob:
    """What to predict with and how, in values that other processes can be given."""

    model: Path
    request: options.Request
    inputs: options.Inputs
    how: ReadOptions
    threads: int
    batch: int = 2048

    def prepared(self) -> PredictionRun:
        """Loads the model."""
        from labelgrove.data.formats import ReadReport
        from labelgrove.labels.masks import LabelMask

        request, model = self.request, self.inputs.load(self.model)
        if request.label_tree is not None:
            from labelgrove.labels.given_trees import read_label_groups

            groups = read_label_groups(request.label_tree, model.index_)
            model.index_ = model.index_.with_groups(groups)
        mask = LabelMask.of(model.index_, request.allow, request.deny)
        k, calibration = request.k, model.calibration_
        if k is None:  # 5, or all labels that a set is chosen from
            sets = request.threshold == "auto" and calibration is not None
            k = calibration.places if sets and calibration is not None else DEFAULT_K
        return PredictionRun(self, model, k, mask, ReadReport())

    def worker(self) -> Callable[[tuple[str, str]], Done]:
        """What predicts a shard into a file."""
        return self.prepared().shard


@dataclass
class Done:
    """What was read, and how many labels were found."""

    report: ReadReport
    documents: int = 0
    labels: int = 0
    k: int = 0
    unknown: int = 0  # documents whose words tell the model nothing
    full: int = 0  # documents with k labels
    known: int = 0  # labels of the model
    places: int = 0  # labels of a document that its calibration chooses from

    def add(self, other: Done) -> None:
        """Adds what another worker did."""
        self.report.add(other.report)
        self.documents += other.documents
        self.labels += other.labels
        self.unknown += other.unknown
        self.full += other.full
        self.k, self.known, self.places = other.k, other.known, other.places


@dataclass(frozen=True)
class PredictionRun:
    """A loaded model and how to ask it."""

    job: PredictionJob
    model: Model
    k: int
    mask: LabelMask | None
    report: ReadReport

    def _inputs(self, documents: str, *, columns: bool) -> Iterator[Batch]:
        """The documents in batches, with their ids and, if asked for, the columns of a table."""
        job, model = self.job, self.model
        if not model.facts_.from_text or model.facts_.given:
            corpus = common.read_for(
                model, Path(documents), job.how, features=job.inputs.features, report=self.report
            )
            return _corpus_batches(corpus, job.batch)
        from labelgrove.data.formats import iter_documents

        how = replace(common.with_fields_of(model, documents, job.how), columns=columns)
        return _text_batches(iter_documents(documents, options=how, report=self.report), job.batch)

    def predict(self, source: str, out: str, advance: Callable[[int], object]) -> Done:
        """Predicts a file into another, batch by batch; a table keeps the columns of a table."""
        from labelgrove.data.formats.files import STDIN
        from labelgrove.data.formats.write import table_format
        from labelgrove.evaluation.prediction_files import input_columns, prediction_writer

        table = out != STDIN and table_format(out) is not None
        inputs = self._inputs(source, columns=table)
        # The first batch names the columns, and an error in it must not leave an output file.
        first = next(inputs, None)
        rows = None if first is None else first[2]
        columns = list(rows[0]) if rows else []
        for name, shown in input_columns(columns).items():
            if name != shown:
                self.report.note(f"{out}: the column {name!r} of the input is called {shown!r}")
        calibration = self.model.calibration_
        places = 0 if calibration is None else calibration.places
        done = Done(self.report, k=self.k, known=len(self.model.index_), places=places)
        silence = self._of_silence()
        batches = _with_vectors(chain([first] if first else [], inputs), self.job.inputs.dense)
        with prediction_writer(out, columns) as write:
            for (documents, ids, rows), vectors in batches:
                predictions = self._ask(documents, vectors)
                unknown = None if silence is None else predictions.same_as(silence)
                cells = None if rows is None else [row.values() for row in rows]
                write(predictions, ids, unknown=unknown, cells=cells)
                advance(len(ids))
                done.documents += len(ids)
                done.labels += int(predictions.counts.sum())
                done.unknown += 0 if unknown is None else int(unknown.sum())
                done.full += int((predictions.counts == self.k).sum())
        done.report.without_labels = 0  # they are what was asked for
        return done

    def _ask(self, rows: object, dense: npt.NDArray[np.float32] | None = None) -> Predictions:
        request = self.job.request
        return self.model.predict(
            rows,
            k=self.k,
            dense=dense,
            allow=self.mask,
            threshold=request.minimum,
            raw=request.raw,
            threads=self.job.threads,
        )

    def _of_silence(self) -> Predictions | None:
        """The labels of an empty text; None if other texts may have the same ones.

        Among few labels, or those above a threshold, they may. A network reads any word.
        """
        facts = self.model.facts_
        limited = self.mask is not None or self.job.request.threshold is not None
        if limited or not facts.from_text or facts.given or facts.width or self.model.encoders():
            return None
        return self._ask([""])

    def shard(self, paths: tuple[str, str]) -> Done:
        """Predicts one file into another."""
        from labelgrove.data.formats import ReadReport

        source, target = paths
        own = replace(self, report=ReadReport())
        return own.predict(source, target, lambda count: None)


def _text_batches(documents: Iterator[Document], size: int) -> Iterator[Batch]:
    while chunk := list(islice(documents, size)):
        columns = [d.columns for d in chunk if d.columns is not None]
        yield [d.text for d in chunk], [d.id for d in chunk], columns or None


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
        yield rows, ids, None


def _with_vectors(
    batches: Iterator[Batch], file: Path | None
) -> Iterator[tuple[Batch, npt.NDArray[np.float32] | None]]:
    """The batches, and for each the vectors that belong to its documents."""
    from labelgrove.data.formats.matrices import read_dense

    vectors = None if file is None else read_dense(file)
    used = 0
    for batch in batches:
        start, used = used, used + len(batch[1])
        if vectors is not None and used > len(vectors):
            many = "more"
            break
        yield batch, None if vectors is None else vectors[start:used]
    else:
        many = f"{used:,}"
    if vectors is not None and used != len(vectors):
        message = f"has {len(vectors):,} rows, but the input has {many} documents"
        raise DataError(message, file=file)
