"""labelgrove data: show, convert, sample and split corpora; generate or import one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.data_import import TABLE, ImportOutput, SplitOutput, import_, write_table
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from labelgrove.data.formats import Document, NamedRow, ReadOptions, ReadReport
    from labelgrove.data.splits import Part
    from labelgrove.data.stats import CorpusStats

T = TypeVar("T")
WITHOUT_TEXTS = ("xc", "svmlight")

SplitKey = StrEnum("SplitKey", ["text", "id"])
Period = StrEnum("Period", ["day", "week", "month"])

Source = Annotated[Path, Argument(metavar="INPUT", help="Corpus file or folder.")]
Target = Annotated[Path, Argument(metavar="OUTPUT", help="File to write; .gz compresses.")]


def stats(
    source: Source,
    *,
    labels: options.Labels = None,
    dev: Annotated[
        Path | None, Option(help="Another part: count its texts that are (nearly) in INPUT.")
    ] = None,
    top: options.Top = 10,
    as_json: options.Json = False,
    reading: options.CorpusOptions,
) -> None:
    """Show what a corpus contains: documents, labels, words, duplicates, rare labels.

    Ends with what to do about what was found.

    Example: labelgrove data stats train.jsonl --dev dev.jsonl --top 20
    """
    from labelgrove.data.formats import ReadReport
    from labelgrove.data.stats import advice, corpus_stats

    report = ReadReport()
    documents = _progress(_documents(source, reading.options(), report), "reading")
    another = None
    if dev is not None:
        another = _progress(_documents(dev, reading.options(), ReadReport()), "comparing")
    statistics = corpus_stats(documents, other=another, top=top)
    names = {row.id: row.name for row in _label_rows(source, labels)}
    if as_json:
        facts = {**statistics.to_dict(), "advice": advice(statistics)}
        facts |= {"bad_lines": report.bad_lines, "notes": report.notes}
        facts["top"] = [
            {"id": label, "name": names.get(label, label), "documents": count}
            for label, count in statistics.top
        ]
        common.print_json(facts)
        return
    console = common.stdout_console()
    for title, columns, rows in _stats_tables(source, statistics, names):
        if rows:
            console.print(common.new_table(columns, rows, title, title_justify="left"))
    for sentence in advice(statistics):
        console.print(f"- {sentence}")
    _print_problems(report)


def _stats_tables(
    source: Path, statistics: CorpusStats, names: dict[str, str]
) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """The title, columns and rows of each table."""

    def counts(*facts: str) -> Iterator[tuple[str, ...]]:
        return ((fact, f"{getattr(statistics, fact.replace(' ', '_')):,}") for fact in facts)

    rows: list[tuple[str, ...]] = [*counts("documents", "labels")]
    for name in ("labels per document", "documents per label", "words per document"):
        spread = getattr(statistics, name.replace(" ", "_"))
        numbers = (spread.mean, spread.median, spread.p99, float(spread.max))
        cells = (f"{n:,.4g}" if n < 1e4 else f"{n:,.0f}" for n in numbers)
        rows.append((name.replace(" per ", "/"), "", *cells))
    rows.append(())
    rows += counts("empty texts", "without labels", "duplicate texts", "similar texts")
    rows += counts("duplicate ids")
    yield str(source), ("", "count", "mean", "median", "p99", "max"), rows
    occurrences = sum(part.occurrences for part in statistics.bins.values())
    rows = []
    for (name, part), span in zip(
        statistics.bins.items(), ("> 100", "11-100", "1-10"), strict=True
    ):
        shares = part.labels / max(statistics.labels, 1), part.occurrences / max(occurrences, 1)
        rows.append((name, span, f"{part.labels:,}", *(f"{share:.1%}" for share in shares)))
    columns = ("", "documents", "labels", "share of labels", "share of occurrences")
    yield "labels by number of documents", columns, rows
    rows = []
    for label, count in statistics.top:
        name = names.get(label, label)
        rows.append((name if name == label else f"{name} ({label})", f"{count:,}"))
    yield "most frequent labels", ("label", "documents"), rows


def convert(
    source: Source, target: Target, *, force: options.Force = False, reading: options.CorpusOptions
) -> None:
    """Convert a corpus to another format, document by document.

    The name of OUTPUT says which: .jsonl, .csv or .parquet.

    Example: labelgrove data convert articles.csv train.jsonl.gz --text-field title,body
    """
    from labelgrove.data.formats import ReadReport, write_corpus

    common.refuse_existing([target], force=force)
    report = ReadReport()
    documents = _documents(source, reading.options(), report, texts_needed=True)
    write_corpus(_progress(documents, "converting"), target)
    common.stderr_console().print(f"{target}: {report}")


def sample(
    source: Source,
    target: Target,
    *,
    documents: options.Documents = 1000,
    seed: options.Seed = 0,
    force: options.Force = False,
    reading: options.CorpusOptions,
) -> None:
    """Draw random documents in one pass. The same seed draws the same documents.

    The documents stay in the order of the file.

    Example: labelgrove data sample train.jsonl small.jsonl -n 5000 --seed 1
    """
    from labelgrove.data.formats import ReadReport, write_corpus
    from labelgrove.data.splits import sample_documents

    common.refuse_existing([target], force=force)
    report = ReadReport()
    everything = _documents(source, reading.options(), report, texts_needed=True)
    drawn = sample_documents(_progress(everything, "sampling"), documents, seed=seed)
    write_corpus(drawn, target)
    common.stderr_console().print(f"{target}: {len(drawn):,} of {report}")


def split(
    source: Source,
    *,
    by: Annotated[
        SplitKey, Option(help="Hash the text (duplicates stay together) or the id.")
    ] = SplitKey.text,
    stratify: Annotated[
        bool, Option("--stratify", help="Spread every label over the parts as documents are.")
    ] = False,
    output: SplitOutput,
    reading: options.CorpusOptions,
) -> None:
    """Split a corpus into train, dev and test by a hash of each document, or by labels.

    By a hash, a document stays in its part when you add or remove others. With --stratify, the
    share of each label in a part is close to that of documents, and every label with several
    documents has one in train; this reads the corpus twice. A labels.tsv next to the input is
    copied.

    Example: labelgrove data split all.jsonl --out parts --dev 0.05 --test 0.1 --stratify
    """
    from labelgrove.data.formats import ReadReport
    from labelgrove.data.formats.files import STDIN
    from labelgrove.data.records import words_of
    from labelgrove.data.stratified import StratifiedSplit

    if stratify and str(source) == STDIN:
        raise DataError("--stratify reads the corpus twice, so it needs a file")
    report = ReadReport()

    def keyed(report: ReadReport, what: str) -> Iterator[tuple[str, Document]]:
        documents = _documents(source, reading.options(), report, texts_needed=True)
        for number, document in enumerate(_progress(documents, what), start=1):
            key = words_of(document.text) if by is SplitKey.text else document.id
            if key is None:
                raise DataError(f"document {number} has no id; use --by text", file=source)
            yield key, document

    with output.writing(source) as folder:
        rows = _label_rows(source)
        parts = None
        if stratify:
            labelled = ((key, each.labels) for key, each in keyed(ReadReport(), "counting labels"))
            shares = {"dev": output.dev, "test": output.test}
            parts = StratifiedSplit(labelled, seed=output.seed, **shares)
        counts = output.write(folder, keyed(report, "splitting"), parts)
        if rows:
            write_table(folder, ((row.id, row.name, row.text or "") for row in rows))
    _print_parts(output, counts, len(rows))
    _print_problems(report)


def make(
    *,
    documents: options.Documents = 20_000,
    labels: Annotated[int, Option(min=10, help="Number of labels.")] = 2_000,
    dev: Annotated[int | None, Option(min=0, help="Size of dev. Default: a tenth.")] = None,
    test: Annotated[int | None, Option(min=0, help="Size of test. Default: a tenth.")] = None,
    output: ImportOutput,
) -> None:
    """Generate a shop corpus: products with categories, brands, colours, themes and more.

    The same seed gives the same bytes. Documents are written one by one, so there can be millions.

    Example: labelgrove data make --documents 100000 --labels 50000 --out shop
    """
    from labelgrove.data.formats import write_corpus
    from labelgrove.data.shop import shop_documents, shop_label_rows

    tenth = max(1, documents // 10)
    sizes: dict[Part, int] = {
        "train": documents,
        "dev": tenth if dev is None else dev,
        "test": tenth if test is None else test,
    }
    sizes = {part: size for part, size in sizes.items() if size}
    with output.writing() as folder:
        common.stderr_console().print(f"generating a shop: {labels:,} labels, seed {output.seed}")
        for part, size in sizes.items():
            products = shop_documents(size, part=part, labels=labels, seed=output.seed)
            write_corpus(_progress(products, part, total=size), folder / output.name(part))
        rows = shop_label_rows(labels=labels, seed=output.seed)
        write_table(folder, _progress(rows, "labels", total=labels))
    _print_parts(output, sizes, labels)


def feedback(
    file: Annotated[Path, Argument(metavar="FILE", help="File that serve --feedback wrote.")],
    *,
    by: Annotated[Period, Option(help="Length of a period.")] = Period.week,
    top: options.Top = 10,
    as_json: options.Json = False,
) -> None:
    """Show how far people agree with suggestions, over time, and which labels they add or reject.

    Example: labelgrove data feedback said/model.jsonl --by month
    """
    from labelgrove.methods.updating import feedback

    answers = feedback.read_feedback(file)
    overall = feedback.Agreement.of(answers.entries)
    periods = feedback.agreement_over_time(answers.entries, by.value)
    counts = sorted(feedback.label_counts(answers), key=lambda label: label.name)
    most = {
        "added": sorted((x for x in counts if x.added), key=lambda x: -x.added)[:top],
        "rejected": sorted((x for x in counts if x.rejected), key=lambda x: -x.rejected)[:top],
    }
    if as_json:
        common.print_json(
            {
                **asdict(overall),
                "documents": len(answers.latest()),
                "bad_lines": answers.bad_lines,
                "periods": {name: asdict(one) for name, one in periods.items()},
                **{what: [asdict(label) for label in labels] for what, labels in most.items()},
            }
        )
        return
    console = common.stdout_console()
    columns = (by.value, "texts", "first chosen", "proposed kept", "chosen proposed")
    rows = []
    for name, one in [*periods.items(), ("all", overall)]:
        shares = ("-" if x is None else f"{x:.1%}" for x in (one.first, one.kept, one.found))
        rows.append([name, f"{one.texts:,}", *shares])
    console.print(common.new_table(columns, rows, box=None, pad_edge=False))
    for what, labels in most.items():
        if labels:
            console.print(f"\n{what} by people:")
        for label in labels:
            id = "" if label.name == label.id else f"  {label.id}"
            number = getattr(label, what)
            console.print(f"  {number:>5,}  {label.name}{id}  (kept {label.kept:,})")
    if answers.bad_lines:
        common.stderr_console().print(
            f"note: {answers.bad_lines:,} lines could not be read, perhaps after a crash"
        )


def _documents(
    source: Path, how: ReadOptions, report: ReadReport, *, texts_needed: bool = False
) -> Iterator[Document]:
    """Documents one by one; a file with only features gives documents with empty texts."""
    from labelgrove.data.formats import Document, iter_documents, read_corpus
    from labelgrove.data.formats.read import format_of

    if format_of(source, how) not in WITHOUT_TEXTS:
        return iter_documents(source, options=how, report=report)
    if texts_needed:
        raise DataError("has features but no texts; only data stats reads it", file=source)
    report.note("features only, no texts")
    corpus = read_corpus(source, labels=False, options=how, report=report)
    return (Document("", labels, None) for labels in corpus.label_lists())


def _label_rows(source: Path, table: Path | None = None) -> list[NamedRow]:
    """The rows of the label table, by default labels.tsv next to the corpus."""
    from labelgrove.data.formats.files import STDIN
    from labelgrove.data.formats.labels import find_label_table, read_label_table

    if table is None and str(source) != STDIN:
        table = find_label_table(source)
    return [] if table is None else read_label_table(table)


def _print_problems(report: ReadReport) -> None:
    if report.bad_lines or report.notes:
        common.stderr_console().print(str(report))


def _print_parts(output: ImportOutput, documents: dict[Part, int], labels: int) -> None:
    console = common.stderr_console()
    for part, count in documents.items():
        console.print(f"{output.out / output.name(part)}: {count:,} documents")
    if labels:
        console.print(f"{output.out / TABLE}: {labels:,} labels")


def _progress(items: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
    """The items, with a progress bar on a terminal."""
    console = common.stderr_console()
    if not console.is_terminal:
        yield from items
        return
    from rich.progress import track

    yield from track(items, what, total=total, console=console, transient=True)


data = typer.Typer(
    name="data",
    help="Show, convert, sample and split corpora. Generate one to try, or import one.\n\n"
    "Example: labelgrove data make --documents 10000 --labels 1000 --out shop",
    no_args_is_help=True,
)
for command in (stats, convert, split, sample, make, import_, feedback):
    options.add_command(data, command.__name__.strip("_"), command)
