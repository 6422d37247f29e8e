"""labelgrove data: look at corpora, convert, sample and split them, make one, fetch one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from labelgrove.cli import common, options
from labelgrove.cli.corpus_files import CorpusFolder, refuse_existing, wanted_parts
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from labelgrove.data.splits import Part
    from labelgrove.formats import Document, ReadOptions, ReadReport

T = TypeVar("T")
WITHOUT_TEXTS = ("xc", "svmlight")

data = typer.Typer(
    name="data",
    help="Look at corpora, convert, sample and split them; make or fetch one to try.\n\n"
    "Example: labelgrove data make --documents 10000 --labels 1000 --out shop",
    no_args_is_help=True,
)


class SplitKey(StrEnum):
    """What decides where a document goes."""

    text = "text"
    id = "id"


class Corpora(StrEnum):
    """Corpora that can be fetched."""

    debian = "debian"


class DebianLabels(StrEnum):
    """What Debian packages are labelled with."""

    depends = "depends"
    debtags = "debtags"


class DebianKey(StrEnum):
    """What decides where a package goes."""

    package = "package"
    source = "source"


Source = Annotated[Path, typer.Argument(metavar="INPUT", help="Corpus file or folder.")]
Target = Annotated[Path, typer.Argument(metavar="OUTPUT", help="File to write; .gz compresses.")]
OutFolder = Annotated[Path, typer.Option("--out", help="Folder for the parts and labels.tsv.")]
Gzip = Annotated[bool, typer.Option("--gzip", help="Write .jsonl.gz instead of .jsonl.")]
DevShare = Annotated[float, typer.Option("--dev", help="Share of documents for dev.")]
TestShare = Annotated[float, typer.Option("--test", help="Share of documents for test.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]


@data.command()
def stats(
    source: Source,
    labels: options.Labels = None,
    top: Annotated[int, typer.Option("--top", min=0, help="Most frequent labels to show.")] = 10,
    as_json: options.Json = False,
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Count what is in a corpus: documents, labels, words, duplicates, frequent and rare labels.

    Example: labelgrove data stats train.jsonl --top 20
    """
    from labelgrove.cli.stats_table import print_stats
    from labelgrove.datasets import corpus_stats
    from labelgrove.formats import ReadReport

    report = ReadReport()
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    documents = _documents(source, how, report)
    found = corpus_stats(_progress(documents, "reading"), top=top)
    names = _label_names(labels or _label_table(source), [label for label, _ in found.top])
    if as_json:
        answer = {**found.to_dict(), "bad_lines": report.bad_lines, "notes": report.notes}
        answer["top"] = [
            {"id": label, "name": names.get(label, label), "documents": count}
            for label, count in found.top
        ]
        common.print_json(answer)
        return
    print_stats(source, found, names)
    if report.bad_lines or report.notes:
        common.stderr_console().print(str(report), markup=False)


@data.command()
def convert(
    source: Source,
    target: Target,
    to: Annotated[
        str | None, typer.Option("--to", help="Output format (jsonl, xc); default: by its name.")
    ] = None,
    labels: options.Labels = None,
    write_labels: Annotated[
        Path | None, typer.Option("--write-labels", help="Also write the label table to this file.")
    ] = None,
    force: options.Force = False,
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Write a corpus in another format, document by document.

    Example: labelgrove data convert articles.csv train.jsonl.gz --text-field title,body
    """
    from labelgrove.formats import ReadReport, read_corpus, write_corpus, write_label_table
    from labelgrove.formats.files import bare_name
    from labelgrove.formats.write import EXTENSIONS

    refuse_existing([target, *([write_labels] if write_labels else [])], force=force)
    report = ReadReport()
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    wanted = to or EXTENSIONS.get(Path(bare_name(target)).suffix.lower())
    if wanted == "xc" or write_labels is not None:
        corpus = read_corpus(source, labels=labels, options=how, report=report)
        write_corpus(corpus, target, format=to)
        if write_labels is not None:
            write_label_table(corpus.index, write_labels)
    else:
        documents = _documents(source, how, report, texts_needed=True)
        write_corpus(_progress(documents, "converting"), target, format=to)
    _told(target, report)


@data.command()
def sample(
    source: Source,
    target: Target,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="Documents to draw.")] = 1000,
    seed: Seed = 0,
    force: options.Force = False,
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Draw documents at random in one pass; the same seed draws the same, in the file's order.

    Example: labelgrove data sample train.jsonl small.jsonl -n 5000 --seed 1
    """
    from labelgrove.data.splits import sample_documents
    from labelgrove.formats import ReadReport, write_corpus

    refuse_existing([target], force=force)
    report = ReadReport()
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    documents = _documents(source, how, report, texts_needed=True)
    drawn = sample_documents(_progress(documents, "sampling"), n, seed=seed)
    write_corpus(drawn, target)
    _told(target, report, f"{len(drawn):,} of ")


@data.command()
def split(
    source: Source,
    out: OutFolder,
    dev: DevShare = 0.05,
    test: TestShare = 0.1,
    by: Annotated[
        SplitKey, typer.Option("--by", help="Hash the text (copies stay together) or the id.")
    ] = SplitKey.text,
    seed: Seed = 0,
    gzip: Gzip = False,
    force: options.Force = False,
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Split a corpus into train, dev and test by a hash of each document.

    A document stays where it is when others are added or removed. A labels.tsv beside the input is
    copied along.

    Example: labelgrove data split all.jsonl --out parts --dev 0.05 --test 0.1
    """
    from labelgrove.data.splits import HashSplit
    from labelgrove.formats import ReadReport, read_label_table

    parts = HashSplit(dev=dev, test=test, seed=seed)
    folder = CorpusFolder(out, gzip=gzip, parts=wanted_parts(dev=dev, test=test))
    folder.check(force=force, source=source)
    report = ReadReport()
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    documents = _progress(_documents(source, how, report, texts_needed=True), "splitting")

    def keyed() -> Iterator[tuple[str, Document]]:
        for number, document in enumerate(documents, start=1):
            key = document.text if by is SplitKey.text else document.id
            if key is None:
                raise DataError(f"document {number} has no id; split by text", file=source)
            yield key, document

    table = _label_table(source)
    rows = [] if table is None else read_label_table(table)
    with folder.writing() as stage:
        counts = stage.write_split(keyed(), parts)
        if rows:
            stage.write_table((row.id, row.name, row.text or "") for row in rows)
    _told_parts(folder, counts, len(rows))
    if report.bad_lines or report.notes:
        common.stderr_console().print(str(report), markup=False)


@data.command()
def make(
    out: OutFolder,
    documents: Annotated[
        int, typer.Option("--documents", "-n", min=1, help="Documents to train on.")
    ] = 20_000,
    labels: Annotated[int, typer.Option("--labels", min=10, help="Size of the label set.")] = 2_000,
    dev: Annotated[int | None, typer.Option("--dev", min=0, help="Default: a tenth.")] = None,
    test: Annotated[int | None, typer.Option("--test", min=0, help="Default: a tenth.")] = None,
    every_label: Annotated[
        bool,
        typer.Option("--every-label", help="All labels occur, given 1.6 documents per label."),
    ] = False,
    seed: Seed = 0,
    gzip: Gzip = False,
    force: options.Force = False,
) -> None:
    """Make a shop corpus: invented products with categories, brands, colours, themes and more.

    The same seed gives the same bytes. Millions of documents and labels are made one by one.

    Example: labelgrove data make --documents 100000 --labels 50000 --out shop
    """
    from labelgrove.datasets import shop_documents, shop_label_rows
    from labelgrove.formats import write_corpus

    tenth = max(1, documents // 10)
    sizes: dict[Part, int] = {
        "train": documents,
        "dev": tenth if dev is None else dev,
        "test": tenth if test is None else test,
    }
    folder = CorpusFolder(out, gzip=gzip, parts=wanted_parts(dev=sizes["dev"], test=sizes["test"]))
    folder.check(force=force)
    common.stderr_console().print(f"a made-up shop with {labels:,} labels, seed {seed}")
    with folder.writing() as stage:
        for part, file in stage.files.items():
            every = every_label and part == "train"
            stream = shop_documents(
                sizes[part], labels=labels, seed=seed, part=part, every_label=every
            )
            write_corpus(_progress(stream, part, total=sizes[part]), file)
        stage.write_table(_progress(shop_label_rows(labels, seed), "labels", total=labels))
    _told_parts(folder, sizes, labels)


@data.command()
def get(
    corpus: Annotated[Corpora, typer.Argument(metavar="NAME", help="Which corpus: debian.")],
    out: OutFolder,
    labels: Annotated[
        DebianLabels, typer.Option("--labels", help="Predict dependencies, or debtags.")
    ] = DebianLabels.depends,
    arch: Annotated[
        str | None, typer.Option("--arch", help="Architecture; default: this machine's.")
    ] = None,
    lists: Annotated[
        Path | None,
        typer.Option("--lists", help="Read Packages and Translation-en files of this folder."),
    ] = None,
    split_by: Annotated[
        DebianKey, typer.Option("--split-by", help="source keeps packages of one source together.")
    ] = DebianKey.package,
    dev: DevShare = 0.05,
    test: TestShare = 0.1,
    seed: Seed = 0,
    gzip: Gzip = False,
    force: options.Force = False,
) -> None:
    """Fetch a real corpus. debian: package descriptions and their dependencies, or their debtags.

    Asks this machine's apt for Debian's package index, in a folder of its own: the machine's
    package state is not touched, and root is not needed.

    Example: labelgrove data get debian --labels debtags --out debtags
    """
    import tempfile

    from labelgrove.data.splits import HashSplit
    from labelgrove.datasets import (
        debian_documents,
        debian_label_rows,
        fetch_indexes,
        find_indexes,
        read_packages,
    )

    parts = HashSplit(dev=dev, test=test, seed=seed)
    folder = CorpusFolder(out, gzip=gzip, parts=wanted_parts(dev=dev, test=test))
    folder.check(force=force)
    console = common.stderr_console()
    with tempfile.TemporaryDirectory(prefix="labelgrove-apt-") as private:
        if lists is None:
            console.print("asking apt for Debian's package index")
            indexes = fetch_indexes(Path(private), arch=arch)
        else:
            indexes = find_indexes(lists)
        packages = read_packages(indexes)
    for note in indexes.notes:
        console.print(note, markup=False)
    by_source = split_by is DebianKey.source
    keyed = (
        (packages[name].source if by_source else name, document)
        for document in debian_documents(packages, labels=labels.value)
        if (name := document.id) is not None
    )
    with folder.writing() as stage:
        counts = stage.write_split(keyed, parts)
        label_count = stage.write_table(debian_label_rows(packages, labels=labels.value))
    _told_parts(folder, counts, label_count)


def _documents(
    source: Path, how: ReadOptions, report: ReadReport, *, texts_needed: bool = False
) -> Iterator[Document]:
    """Documents one by one; of a file that has features only, documents with empty texts."""
    from labelgrove.formats import Document, detect_format, iter_documents, read_corpus

    if (how.format or detect_format(source)) not in WITHOUT_TEXTS:
        return iter_documents(source, options=how, report=report)
    if texts_needed:
        raise DataError(
            "holds features but no texts; only data stats and --to xc read it", file=source
        )
    report.note("features only, no texts")
    corpus = read_corpus(source, labels=False, options=how, report=report)
    return (Document("", labels, None) for labels in corpus.label_lists())


def _label_table(source: Path) -> Path | None:
    """labels.tsv beside the corpus; standard input has nothing beside it."""
    from labelgrove.formats.files import STDIN
    from labelgrove.formats.labels import find_label_table

    return None if str(source) == STDIN else find_label_table(source)


def _label_names(table: Path | None, wanted: list[str]) -> dict[str, str]:
    from labelgrove.formats import read_label_table

    rows = [] if table is None else read_label_table(table)
    return {row.id: row.name for row in rows if row.id in wanted}


def _told(target: Path, report: ReadReport, prefix: str = "") -> None:
    common.stderr_console().print(f"{target}: {prefix}{report}", markup=False)


def _told_parts(folder: CorpusFolder, documents: dict[Part, int], labels: int) -> None:
    for part, path in folder.files.items():
        common.stderr_console().print(f"{path}: {documents[part]:,} documents", markup=False)
    if labels:
        common.stderr_console().print(f"{folder.table}: {labels:,} labels", markup=False)


def _progress(items: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
    """The items, with a bar on a terminal."""
    console = common.stderr_console()
    if not console.is_terminal:
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, total=total, console=console, transient=True)
