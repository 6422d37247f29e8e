"""labelgrove update: new documents and labels for a model that is trained already."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus
    from labelgrove.updating.report import Growth


def update(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder; stays as it is.")],
    out: Annotated[Path, typer.Option("--out", "--output", help="Model folder to write.")],
    data: Annotated[
        Path | None, typer.Option("--data", help="New documents with their labels, old or new.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            help="Label table (id, name, text): its labels that the model does not know are added, "
            "those without documents by their text.",
        ),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus", help="The documents that the model was trained on, for exact retraining."
        ),
    ] = None,
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Train new labels alone and leave old ones.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting, e.g. max_added=0.3; repeatable."),
    ] = None,
    dense: options.Dense = None,
    corpus_dense: Annotated[
        Path | None, typer.Option("--corpus-dense", help="The same for --corpus.")
    ] = None,
    force: options.Force = False,
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
    """Teach a model new documents and new labels without training it from scratch.

    New labels are added behind the old ones; they and the labels of the new documents are trained,
    all others keep their scores. Says when the model should be trained from scratch instead.

    Example: labelgrove update model --data new.jsonl --corpus train.jsonl --out model-2

    Example: labelgrove update model --labels new_labels.tsv --out model-2
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.params import merge_settings
    from labelgrove.disk.model_folder import check_replaceable
    from labelgrove.methods.base import load
    from labelgrove.updating.report import GrowthParams

    console = common.stderr_console()
    common.check_device(device)
    if data is None and labels is None:
        raise ConfigError("nothing to learn: give --data, --labels or both")
    if out.exists():
        if not force:
            raise ConfigError(f"{out} exists; add --force to replace it, or choose another --out")
        check_replaceable(out)
    chosen = merge_settings({"retrain": "new"} if only_new else {}, settings or [])
    params = GrowthParams.from_dict(chosen, "growth")
    loaded = load(model)
    common.use_device(loaded, device)
    if threads is not None:
        loaded.n_jobs = threads
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    reading: dict[str, Any] = {"options": how, "console": console}
    documents = old = None
    if data is not None:
        documents = common.read_corpus(data, labels=labels, dense=dense, **reading)
    if corpus is not None:
        old = _read_old(corpus, corpus_dense, reading)
    wall, cpu = time.perf_counter(), time.process_time()
    growth: Growth | None = None
    with RichProgress() as progress:
        common_options: dict[str, Any] = {"params": params, "callbacks": [progress]}
        if documents is not None:
            growth = loaded.update(documents, corpus=old, **common_options)
        if labels is not None:
            growth = _joined(growth, _add_from_table(loaded, labels, common_options))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert growth is not None
    loaded.save(out, overwrite=force)
    if as_json:
        summary = {"model": str(out), "labels": len(loaded.index_), **growth.to_json()}
        common.print_json(summary | {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)})
        return
    console.print(f"{growth} in {common.human_seconds(wall)}", markup=False)
    for note in growth.notes:
        console.print(f"note: {note}", markup=False)
    if growth.rebuild_due:
        console.print("train from scratch soon:", style="yellow")
        for reason in growth.reasons:
            console.print(f"  {reason}", markup=False)
    console.print(f"model: {out}", markup=False)


def _read_old(corpus: Path, dense: Path | None, reading: dict[str, Any]) -> Corpus:
    """Reads --corpus; the flags that say how --data is written are taken to hold for it too."""
    try:
        return common.read_corpus(corpus, dense=dense, **reading)
    except DataError as error:
        if reading["options"] == common.read_options():
            raise
        raise DataError(
            f"{error}. What --text-field, --labels-field, --format and --read say holds for --data "
            "and --corpus alike: bring both to one form with labelgrove data convert"
        ) from error


def _add_from_table(model: Any, table: Path, common_options: dict[str, Any]) -> Growth:
    """Adds the labels of a table that neither the model nor the new documents brought."""
    from labelgrove.formats.labels import read_label_table

    rows = [row for row in read_label_table(table) if model.index_.get(row.id) is None]
    texts = None
    if any(row.text is not None for row in rows):
        texts = [row.name if row.text is None else row.text for row in rows]
    growth: Growth = model.add_labels(
        [row.name for row in rows], ids=[row.id for row in rows], texts=texts, **common_options
    )
    return growth


def _joined(first: Growth | None, second: Growth) -> Growth:
    """The report of both; limits are those that are passed at the end."""
    if first is None:
        return second
    if not second.added:
        return first
    # What the labels added first have passed, the second report has passed as well; only it does
    # not know the documents' terms.
    terms = [reason for reason in first.reasons if "max_unknown_terms" in reason]
    return replace(
        first,
        added=first.added + second.added,
        reasons=tuple(dict.fromkeys([*second.reasons, *terms])),
        notes=tuple(dict.fromkeys([*first.notes, *second.notes])),
    )
