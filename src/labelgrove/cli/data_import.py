"""Corpora that data commands write in parts; labelgrove data import: a project of Annif."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.data.splits import PARTS, HashSplit, Part, check_shares
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from labelgrove.data.formats import Document
    from labelgrove.data.stratified import StratifiedSplit

TABLE = "labels.tsv"


@dataclass(frozen=True)
class ImportOutput:
    """A folder for train, dev and test as JSON lines, and for labels.tsv."""

    out: Annotated[Path, Option(help="Folder for the parts and labels.tsv.")]
    seed: options.Seed = 0
    force: options.Force = False

    @staticmethod
    def name(part: Part) -> str:
        """The name of a part's file."""
        return f"{part}.jsonl"

    @contextmanager
    def writing(self, source: Path | None = None) -> Iterator[Path]:
        """A temporary folder, whose files are moved to ``out`` if there is no error.

        Files of an earlier corpus are an error. With --force they are deleted, also those that
        are not written again, so that nobody mixes two corpora. ``source`` is never deleted.
        """
        names = [f"{part}{ending}" for part in PARTS for ending in (".jsonl", ".jsonl.gz")]
        earlier = [self.out / name for name in (*names, TABLE)]
        for path in earlier:
            if source is not None and path.resolve() == source.resolve():
                raise DataError("is the input; choose another --out", file=path)
        common.refuse_existing(earlier, force=self.force)
        made = not self.out.exists()
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(prefix=".partial-", dir=self.out)
        except OSError as error:
            raise DataError(f"cannot be written: {error.strerror}", file=self.out) from error
        try:
            with folder:
                yield Path(folder.name)
                for path in earlier:
                    path.unlink(missing_ok=True)
                for path in Path(folder.name).iterdir():
                    path.replace(self.out / path.name)
        except BaseException:
            if made:
                shutil.rmtree(self.out, ignore_errors=True)
            raise


@dataclass(frozen=True)
class SplitOutput(ImportOutput):
    """A folder for the parts of a corpus that is split."""

    dev: Annotated[float, Option(help="Share of documents for dev.")] = 0.05
    test: Annotated[float, Option(help="Share of documents for test.")] = 0.1

    def __post_init__(self) -> None:
        check_shares(self.dev, self.test)

    def write(
        self,
        folder: Path,
        keyed: Iterable[tuple[str, Document]],
        split: StratifiedSplit | None = None,
    ) -> dict[Part, int]:
        """Writes each document to the part of its key, and counts the documents of each part.

        Without a ``split``, a hash of the key says which part.
        """
        from labelgrove.data.formats.files import replacing
        from labelgrove.data.formats.jsonl import dump_document

        part_of = (split or HashSplit(dev=self.dev, test=self.test, seed=self.seed)).part
        shares: dict[Part, float] = {"train": 1, "dev": self.dev, "test": self.test}
        counts = {part: 0 for part, share in shares.items() if share}
        with ExitStack() as stack:
            paths = {part: folder / self.name(part) for part in counts}
            files = {part: stack.enter_context(replacing(path)) for part, path in paths.items()}
            for key, document in keyed:
                part = part_of(key)
                files[part].write(dump_document(document))
                counts[part] += 1
        return counts


def write_table(folder: Path, rows: Iterable[tuple[str, ...]]) -> int:
    """Writes label ids, names and texts, and counts the labels."""
    from labelgrove.data.formats.files import replacing

    count = 0
    with replacing(folder / TABLE) as file:
        for row in rows:
            # Tabs and line ends would break the table: they become spaces.
            line = "\t".join(" ".join(value.split()) for value in row)
            file.write(line.encode("utf-8", "surrogatepass") + b"\n")
            count += 1
    return count


SETTINGS = "settings.toml"
Corpora = list[Path] | None


def import_(
    project: Annotated[
        str, Argument(metavar="PROJECTS.CFG[:PROJECT]", help="Annif's configuration, and an id.")
    ],
    *,
    train: Annotated[
        list[Path], Option(help="Corpus that annif train was given: file or folder. Repeatable.")
    ],
    dev: Annotated[Corpora, Option(help="Corpus to measure on while tuning. Repeatable.")] = None,
    test: Annotated[Corpora, Option(help="Corpus that annif eval was given. Repeatable.")] = None,
    labels: Annotated[
        Path | None, Option(help="Vocabulary: CSV or TSV. Default: the one loaded into Annif.")
    ] = None,
    data: Annotated[
        Path | None,
        Option(help="Annif's data folder. Default: ANNIF_DATADIR, or data beside PROJECTS.CFG."),
    ] = None,
    skip_bad: options.SkipBad = False,
    output: Annotated[ImportOutput, options.Without("seed")],
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
    parts: dict[Part, list[Path]] = {"train": train, "dev": dev or [], "test": test or []}
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
