"""labelgrove update: new documents and labels for a model that is already trained."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.training_data import one_each
from labelgrove.core.durations import format_duration
from labelgrove.errors import ConfigError

if TYPE_CHECKING:
    from labelgrove.methods.base import Model
    from labelgrove.methods.updating.report import Growth


def update(
    model: Annotated[Path, Argument(metavar="MODEL", help="Model folder. It is not changed.")],
    data: Annotated[
        Path | None, Argument(metavar="DATA", help="New documents with labels.")
    ] = None,
    *,
    out: Annotated[Path, Option(help="Model folder to write.")],
    force: options.Force = False,
    feedback: Annotated[
        Path | None, Option(help="What people chose, in a file that serve --feedback wrote.")
    ] = None,
    labels: Annotated[
        Path | None, Option(help="Label table (id, name, text) with new labels to add.")
    ] = None,
    train: Annotated[Path | None, Option(help="Documents that the model was trained on.")] = None,
    features: Annotated[
        list[Path] | None, Option(help="The matrix of DATA. Give a second one for --train.")
    ] = None,
    dense: Annotated[
        list[Path] | None, Option(help="The vectors of DATA. Give a second file for --train.")
    ] = None,
    settings: options.Set = None,
    inputs: Annotated[options.Inputs, options.Without("features"), options.Without("dense")],
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
    if data is None and labels is None and feedback is None:
        raise ConfigError("there is nothing to learn; give DATA, --labels, --feedback or several")
    if feedback is not None and data is not None:
        raise ConfigError(
            "--feedback brings its own texts; use it without DATA, and update once more for these"
        )
    corpora = {"DATA": data is not None, "--train": train is not None}
    matrices = one_each("--features", features, corpora)
    vectors = one_each("--dense", dense, corpora)
    common.check_model_folder(out, force=force)
    params = GrowthParams.from_dict(merge_settings({}, settings or []), "growth")
    loaded = common.load_model(model, inputs.device, features=features[0] if features else None)
    if inputs.threads is not None:
        loaded.n_jobs = inputs.threads
    growth: Growth | None = None
    documents = old = None
    rejected: list[str] = []
    if feedback is not None:
        from labelgrove.methods.updating.feedback import read_feedback

        answers = read_feedback(feedback)
        documents, rejected = answers.corpus(loaded), answers.rejected()
        skipped = f", {answers.bad_lines:,} unreadable lines" if answers.bad_lines else ""
        console.print(f"{feedback}: what people chose for {len(documents):,} texts{skipped}")
    how = inputs.options()
    if data is not None:
        files = {"dense": vectors[0], "features": matrices[0]}
        documents = common.read_for(loaded, data, how, labels=labels, **files)
    if train is not None:
        old = common.read_for(loaded, train, how, dense=vectors[1], features=matrices[1])
    wall, cpu = time.perf_counter(), time.process_time()
    with RichProgress() as progress:
        arguments: dict[str, Any] = {"params": params, "callbacks": [progress]}
        if documents is not None:
            growth = loaded.update(documents, corpus=old, rejected=rejected, **arguments)
        if labels is not None:
            added = _add_from_table(loaded, labels, arguments)
            growth = added if growth is None else growth.joined(added)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert growth is not None
    loaded.save(out, overwrite=force)
    if inputs.as_json:
        facts = {"model": str(out), "labels": len(loaded.index_), **growth.to_json()}
        common.print_json(facts | {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)})
        return
    console.print(f"{growth} in {format_duration(wall)}")
    for note in growth.notes:
        console.print(f"note: {note}")
    if growth.rebuild_due:
        console.print("train the model from scratch soon:", style="yellow")
        for reason in growth.reasons:
            console.print(f"  {reason}")
    console.print(f"model: {out}")


def _add_from_table(model: Model, table: Path, arguments: dict[str, Any]) -> Growth:
    """Adds the labels of a table that the model does not have yet."""
    from labelgrove.data.formats.labels import read_label_table

    rows = [row for row in read_label_table(table) if model.index_.get(row.id) is None]
    texts = None
    if any(row.text is not None for row in rows):
        texts = [row.name if row.text is None else row.text for row in rows]
    names, ids = [row.name for row in rows], [row.id for row in rows]
    return model.add_labels(names, ids=ids, texts=texts, **arguments)
