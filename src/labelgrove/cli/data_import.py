"""labelgrove data import: a project of Annif, as files for labelgrove."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.data_parts import TABLE, Output, write_table
from labelgrove.data.splits import Part

SETTINGS = "settings.toml"
Corpora = list[Path] | None


def import_(
    project: Annotated[
        str, Argument(metavar="PROJECTS.CFG[:PROJECT]", help="Annif's configuration, and an id.")
    ],
    *,
    train: Annotated[
        Corpora, Option(help="Corpus that annif train was given: file or folder. Repeatable.")
    ] = None,
    dev: Annotated[Corpora, Option(help="Corpus to measure on while tuning. Repeatable.")] = None,
    test: Annotated[Corpora, Option(help="Corpus that annif eval was given. Repeatable.")] = None,
    labels: Annotated[
        Path | None,
        Option(help="Vocabulary: TTL, CSV or TSV. Default: the one loaded into Annif."),
    ] = None,
    data: Annotated[
        Path | None,
        Option(help="Annif's data folder. Default: ANNIF_DATADIR, or data beside PROJECTS.CFG."),
    ] = None,
    skip_bad: options.SkipBad = False,
    output: Annotated[Output, options.Without("seed")],
) -> None:
    """Import a project of Annif: its corpora, its vocabulary and settings that come near its own.

    Example: labelgrove data import projects.cfg:yso-en --train train.tsv.gz --out yso
    """
    from labelgrove.core.params import to_toml
    from labelgrove.data.formats import ReadOptions, ReadReport, write_corpus
    from labelgrove.exchange import annif

    if data is None and (folder := os.environ.get("ANNIF_DATADIR")):
        data = Path(folder)
    source = annif.read_project(project)
    settings, notes = annif.starting_settings(source)
    parts: dict[Part, list[Path]] = {
        "train": annif.corpus_paths(source, train or (), data),
        "dev": list(dev or ()),
        "test": list(test or ()),
    }
    common.refuse_existing([output.out / SETTINGS], force=output.force)
    vocabulary = annif.project_vocabulary(source, data=data, file=labels)
    console = common.stderr_console()
    how = ReadOptions(skip_bad=skip_bad)
    with output.writing() as folder_to_fill:
        for part, paths in parts.items():
            if not paths:
                continue
            report, before = ReadReport(), vocabulary.unknown
            documents = annif.project_documents(paths, vocabulary, how, report)
            write_corpus(documents, folder_to_fill / output.name(part))
            console.print(f"{output.out / output.name(part)}: {report}")
            if unknown := vocabulary.unknown - before:
                notes.append(
                    f"{part}: left out {unknown:,} subjects that are not in the vocabulary, or "
                    "that the project excludes"
                )
        count = write_table(folder_to_fill, ((row.id, row.name) for row in vocabulary.rows))
        (folder_to_fill / SETTINGS).write_text(to_toml(settings), encoding="utf-8")
    console.print(f"{output.out / TABLE}: {count:,} labels")
    for note in (*vocabulary.notes, *notes):
        console.print(f"note: {note}")
    corpus, chosen = output.out / output.name("train"), output.out / SETTINGS
    console.print(f"next: {common.command_name()} train {corpus} --config {chosen} --out model")
