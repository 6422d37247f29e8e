"""labelgrove update: new documents and labels for a model that is already trained."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.training_data import one_each
from labelgrove.core.durations import format_duration
from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.methods.base import Model
    from labelgrove.methods.updating.report import Growth


@dataclass(frozen=True)
class NewData:
    """What to learn from besides DATA, and what belongs to documents."""

    feedback: Annotated[
        Path | None, Option(help="What people chose, in a file that serve --feedback wrote.")
    ] = None
    labels: Annotated[
        Path | None, Option(help="Label table (id, name, text) with new labels to add.")
    ] = None
    train: Annotated[Path | None, Option(help="The documents that the model was trained on.")] = (
        None
    )
    features: Annotated[
        list[Path] | None, Option(help="The matrix of DATA. Give a second one for --train.")
    ] = None
    dense: Annotated[
        list[Path] | None, Option(help="The vectors of DATA. Give a second file for --train.")
    ] = None

    def files(self, data: Path | None) -> tuple[list[Path | None], list[Path | None]]:
        """The matrices and the vectors of DATA and of --train."""
        corpora = {"DATA": data is not None, "--train": self.train is not None}
        matrices = one_each("--features", self.features, corpora)
        return matrices, one_each("--dense", self.dense, corpora)


@dataclass(frozen=True)
class Output:
    """The folder to write."""

    out: Annotated[Path, Option(help="Model folder to write.")]
    force: options.Force = False


def update(
    model: Annotated[Path, Argument(metavar="MODEL", help="Model folder. It is not changed.")],
    data: Annotated[
        Path | None, Argument(metavar="DATA", help="New documents with labels.")
    ] = None,
    *,
    output: Output,
    sources: NewData,
    settings: options.Set = None,
    machine: options.Machine,
    reading: options.CorpusOptions,
    as_json: options.Json = False,
) -> None:
    """Add new documents and new labels to a model without training it from scratch.

    DATA has new documents with old or new labels. Trains the new labels and the labels of these
    documents; all other labels keep their scores. Training is exact only with --train. New labels
    in --labels that have no documents are learnt from their text. Tells you when it is time to
    train from scratch.

    Example: labelgrove update model new.jsonl --train train.jsonl --out model-2

    Example: labelgrove update model --labels new_labels.tsv --out model-2

    Example: labelgrove update model --feedback said/model.jsonl --train train.jsonl --out model-2
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.params import merge_settings
    from labelgrove.methods.updating.report import GrowthParams

    console = common.stderr_console()
    if data is None and sources.labels is None and sources.feedback is None:
        raise ConfigError("there is nothing to learn; give DATA, --labels, --feedback or several")
    if sources.feedback is not None and data is not None:
        raise ConfigError(
            "--feedback brings its own texts; use it without DATA, and update once more for these"
        )
    matrices, vectors = sources.files(data)
    common.check_model_folder(output.out, force=output.force)
    params = GrowthParams.from_dict(merge_settings({}, settings or []), "growth")
    loaded = common.load_model(
        model, machine.device, features=sources.features[0] if sources.features else None
    )
    if machine.threads is not None:
        loaded.n_jobs = machine.threads
    growth: Growth | None = None
    documents = old = None
    rejected: list[str] = []
    if sources.feedback is not None:
        from labelgrove.methods.updating.feedback import read_feedback

        answers = read_feedback(sources.feedback)
        documents, rejected = answers.corpus(loaded), answers.rejected()
        skipped = f", {answers.bad_lines:,} unreadable lines" if answers.bad_lines else ""
        console.print(
            f"{sources.feedback}: what people chose for {len(documents):,} texts{skipped}"
        )
    if data is not None:
        documents = common.read_for(
            loaded,
            data,
            reading.options(),
            labels=sources.labels,
            dense=vectors[0],
            features=matrices[0],
        )
    if sources.train is not None:
        old = _read_old(loaded, sources.train, vectors[1], matrices[1], reading)
    wall, cpu = time.perf_counter(), time.process_time()
    with RichProgress() as progress:
        arguments: dict[str, Any] = {"params": params, "callbacks": [progress]}
        if documents is not None:
            growth = loaded.update(documents, corpus=old, rejected=rejected, **arguments)
        if sources.labels is not None:
            added = _add_from_table(loaded, sources.labels, arguments)
            growth = added if growth is None else growth.joined(added)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert growth is not None
    loaded.save(output.out, overwrite=output.force)
    if as_json:
        facts = {"model": str(output.out), "labels": len(loaded.index_), **growth.to_json()}
        common.print_json(facts | {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)})
        return
    console.print(f"{growth} in {format_duration(wall)}")
    for note in growth.notes:
        console.print(f"note: {note}")
    if growth.rebuild_due:
        console.print("train the model from scratch soon:", style="yellow")
        for reason in growth.reasons:
            console.print(f"  {reason}")
    console.print(f"model: {output.out}")


def _read_old(
    model: Model,
    corpus: Path,
    dense: Path | None,
    features: Path | None,
    reading: options.CorpusOptions,
) -> Corpus:
    """Reads --train with the same flags as the new documents."""
    try:
        return common.read_for(model, corpus, reading.options(), dense=dense, features=features)
    except DataError as error:
        if reading == options.CorpusOptions():
            raise
        raise DataError(
            f"{error}. --text-field, --labels-field, --format and --read apply to both DATA and "
            "--train; convert them to one format with labelgrove data convert"
        ) from error


def _add_from_table(model: Model, table: Path, arguments: dict[str, Any]) -> Growth:
    """Adds the labels of a table that the model does not have yet."""
    from labelgrove.data.formats.labels import read_label_table

    rows = [row for row in read_label_table(table) if model.index_.get(row.id) is None]
    names, ids = [row.name for row in rows], [row.id for row in rows]
    texts = None
    if any(row.text is not None for row in rows):
        texts = [row.name if row.text is None else row.text for row in rows]
    growth: Growth = model.add_labels(names, ids=ids, texts=texts, **arguments)
    return growth
