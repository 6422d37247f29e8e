"""Write a corpus as JSON lines, as a table or as a repository file."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.building import label_rows
from labelgrove.data.formats.documents import Document
from labelgrove.data.formats.files import bare_name, replacing
from labelgrove.data.formats.jsonl import document_record, dump_document
from labelgrove.data.formats.tables import join_labels
from labelgrove.data.formats.xc import write_xc
from labelgrove.errors import ConfigError, DataError

EXTENSIONS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".txt": "xc",
    ".svm": "xc",
    ".xc": "xc",
}
FIRST_ROWS = 10_000


def write_corpus(
    corpus: Corpus | Iterable[Document],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
) -> None:
    """Writes ``jsonl``, ``csv``, ``parquet`` (texts, ids, labels, weights) or ``xc`` (features).

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
    format = format or EXTENSIONS.get(Path(bare_name(target)).suffix.lower())
    if format not in EXTENSIONS.values():
        raise ConfigError(
            f"{target}: unknown format; use a name that ends in .jsonl, .csv, .parquet or .xc, or "
            "set format"
        )
    if format == "xc":
        if not isinstance(corpus, Corpus):
            raise DataError("the repository format needs a Corpus with features", file=target)
        with replacing(target) as file:
            write_xc(corpus, file, target)
        return
    documents = corpus_documents(corpus) if isinstance(corpus, Corpus) else corpus
    if format in ("csv", "parquet"):
        write_table(documents, target, format)
        return
    with replacing(target) as file:
        for document in documents:
            file.write(dump_document(document))


def write_table(documents: Iterable[Document], target: Path, format: str) -> None:
    """Writes a table whose columns are those that the first documents need.

    In CSV, labels are one cell as :func:`join_labels` writes it, or a JSON object with weights.
    """
    # Few corpora become tables.
    from labelgrove.data.formats.table_files import Kind, table_format, table_writer

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
        raise DataError("this corpus has features but no texts; write xc")
    rows = label_rows(corpus.labels, corpus.index.ids)
    for row, (text, labels) in enumerate(zip(corpus.texts, rows, strict=True)):
        yield Document(text, labels, (corpus.ids[row] or None) if corpus.ids is not None else None)
