"""Write a corpus as JSON lines or a table, and tables for other programs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.building import label_rows
from labelgrove.data.formats.documents import Document
from labelgrove.data.formats.files import bare_name, replacing
from labelgrove.data.formats.jsonl import document_record, dump_document
from labelgrove.data.formats.tables import join_labels
from labelgrove.errors import ConfigError, DataError, needing

TABLES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl"} | TABLES
FIRST_ROWS = 10_000


def write_corpus(
    corpus: Corpus | Iterable[Document], path: str | os.PathLike[str], *, format: str | None = None
) -> None:
    """Writes texts, ids, labels and weights as ``jsonl``, ``csv`` or ``parquet``.

    A name that ends in .gz, .xz, .bz2 or .zst means compression. The file appears only when it is
    complete. No format has label names; :func:`write_label_table` saves them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "a.jsonl")
    ...     write_corpus([Document("a hat", ["hats"])], file)
    ...     file.read_text()
    '{"text": "a hat", "labels": ["hats"]}\\n'
    """
    target = Path(path)
    format = format or FORMATS.get(Path(bare_name(target)).suffix.lower())
    if format not in FORMATS.values():
        raise ConfigError(
            f"{target}: unknown format; use a name that ends in .jsonl, .csv or .parquet, or set "
            "format"
        )
    documents = corpus_documents(corpus) if isinstance(corpus, Corpus) else corpus
    if format in ("csv", "parquet"):
        write_table(documents, target, format)
        return
    with replacing(target) as file:
        for document in documents:
            file.write(dump_document(document))


def write_table(documents: Iterable[Document], target: Path, format: str) -> None:
    """Writes a table whose columns are those that the first documents need."""
    table_format(target)  # refuses a.parquet.gz
    rows = (_row(document, format) for document in documents)
    first = list(itertools.islice(rows, FIRST_ROWS))
    names = list(dict.fromkeys(name for row in first for name in row)) or ["text", "labels"]
    names.sort(key=lambda name: (name != "id", name in ("labels", "weights")))
    lists: dict[str, Kind] = {"labels": "strings", "weights": "floats"}
    columns: dict[str, Kind] = {name: lists.get(name, "string") for name in names}
    for name in columns:  # of catalogue fields
        if any(isinstance(row.get(name), list) for row in first):
            columns[name] = lists.get(name, "strings")
    with table_writer(target, columns, format) as write:
        while first:
            for row in first:
                if unexpected := row.keys() - columns.keys():
                    raise DataError(
                        f"a document has {min(unexpected)!r}, and the first {FIRST_ROWS:,} have "
                        "not, so the table has no column for it; write JSON lines (.jsonl)",
                        file=target,
                    )
            write([row.get(name) for name in columns] for row in first)
            first = list(itertools.islice(rows, FIRST_ROWS))


def _row(document: Document, format: str) -> JsonObject:
    """The cells of a document by column; those without a value are left out."""
    record = document_record(document)
    labels = record["labels"]
    if format == "csv":
        cells = {name: join_labels(cell) for name, cell in record.items() if isinstance(cell, list)}
        if isinstance(labels, dict):
            cells["labels"] = json.dumps(labels, ensure_ascii=False)
        return record | cells
    if isinstance(labels, dict):
        record |= {"labels": list(labels), "weights": list(labels.values())}
    return record


def corpus_documents(corpus: Corpus) -> Iterator[Document]:
    """The documents of a corpus that has texts; with weights if these are not all 1."""
    if corpus.texts is None:
        raise DataError("this corpus has features but no texts, and only texts can be written")
    rows = label_rows(corpus.labels, corpus.index.ids)
    for row, (text, labels) in enumerate(zip(corpus.texts, rows, strict=True)):
        yield Document(text, labels, (corpus.ids[row] or None) if corpus.ids is not None else None)


Kind = Literal["string", "int64", "float32", "strings", "floats"]
Rows = Iterable[Sequence[object]]
Writer = Callable[[Rows], None]


def table_format(path: str | os.PathLike[str]) -> str | None:
    """The format of a table by the name of its file: csv or parquet; None for others."""
    file = Path(path)
    suffix = Path(bare_name(file)).suffix.lower()
    if suffix == ".xlsx":
        raise ConfigError(f"{file}: Excel files are read, but not written; use .csv")
    format = TABLES.get(suffix)
    if format == "parquet" and bare_name(file) != file.name:
        raise ConfigError(f"{file}: {format} files are compressed already; leave out {file.suffix}")
    return format


@contextmanager
def table_writer(
    path: str | os.PathLike[str], columns: Mapping[str, Kind], format: str
) -> Iterator[Writer]:
    """A function that adds rows to a table, whose file appears when all of them are written."""
    writer = {"csv": _csv, "parquet": _parquet}[format]
    with replacing(path) as file, writer(file, columns, Path(path)) as write:
        yield write


@contextmanager
def _csv(file: IO[bytes], columns: Mapping[str, Kind], path: Path) -> Iterator[Writer]:
    # A lone surrogate, which JSON can put into a string, has no form in UTF-8.
    text = io.TextIOWrapper(file, "utf-8", errors="replace", newline="")
    plain = csv.writer(text, lineterminator="\n")
    # The writer does not quote a lone carriage return, which readers take for the end of a row.
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def write(rows: Rows) -> None:
        for row in rows:
            odd = any(isinstance(cell, str) and "\r" in cell for cell in row)
            (quoted if odd else plain).writerow(row)

    write([list(columns)])
    yield write
    text.flush()
    text.detach()  # the file is closed by those who opened it


@contextmanager
def _parquet(file: IO[bytes], columns: Mapping[str, Kind], path: Path) -> Iterator[Writer]:
    with needing("data", "writing Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    kinds = {
        "string": pa.string(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "strings": pa.list_(pa.string()),
        "floats": pa.list_(pa.float32()),
    }
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with pq.ParquetWriter(file, schema) as writer:

        def write(rows: Rows) -> None:
            cells = list(zip(*rows, strict=True)) or [()] * len(columns)
            try:
                writer.write_table(pa.table(dict(zip(columns, cells, strict=True)), schema))
            except UnicodeEncodeError as error:
                raise DataError(f"a text cannot be written in UTF-8: {error}", file=path) from None

        yield write
