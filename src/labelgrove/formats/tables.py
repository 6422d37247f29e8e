"""CSV and TSV: a header line (or given column names), one document per row.

The labels column holds labels with a separator between them, or a JSON list. In CSV double quotes
protect separators and line ends; in TSV a quote is an ordinary character, so that a text beginning
with one cannot swallow the lines after it.
"""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.errors import ConfigError, DataError
from labelgrove.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.formats.files import STDIN, check_encoding, lines, refuse
from labelgrove.formats.jsonl import document_id, document_labels, joined_text

SEPARATORS = ("|", ";")
ROWS_LOOKED_AT = 200
_FIELD_LIMIT = 2**31 - 1


def iter_table(
    path: Path | str, options: ReadOptions, report: ReadReport, *, delimiter: str
) -> Iterator[Document]:
    """Documents of a CSV or TSV file, one at a time."""
    delimiter = options.delimiter or _seen_delimiter(path, delimiter)
    rows = _rows(path, options, report, delimiter)
    names = options.column_names
    if names is None:
        first = next(rows, None)
        if first is None:
            raise DataError("no documents", file=path)
        if delimiter.join(first[1]).strip() == f"sep={delimiter}".strip():
            first = next(rows, first)  # a line that tells Excel the delimiter
        names = [name.strip() for name in first[1]]
    wanted = options.text_fields()
    if not set(wanted) & set(names):
        raise DataError(
            f"no column {' or '.join(map(repr, wanted))}; the columns are "
            f"{', '.join(map(repr, names))}. Set text_field (--text-field), or column_names "
            "(--read column_names=text,labels) where the file has no header line",
            file=path,
            line=1,
        )
    if len(set(names)) != len(names):
        raise DataError("two columns have the same name", file=path, line=1)
    if options.labels_field not in names:
        report.note(no_labels_note(path, options.labels_field, names))
    head = list(itertools.islice(rows, ROWS_LOOKED_AT))
    separator = options.label_separator
    if separator is None:
        records = (dict(zip(names, row, strict=False)) for _, row in head)
        cells = [record.get(options.labels_field) or "" for record in records]
        separator = guess_separator(cells)
        if len(separators_in(cells)) > 1:
            report.note(f"{path}: labels hold both | and ;, and are split at {separator!r} only")
        if separator != SEPARATORS[0]:
            report.note(split_note(path, separator))
        elif not separators_in(cells) and sum("," in cell for cell in cells) > len(cells) / 2:
            report.note(
                f"{path}: labels are not split at commas; where they should be, set "
                "label_separator (--read label_separator=,)"
            )
    for number, row in itertools.chain(head, rows):
        try:
            if len(row) != len(names):
                open_quote = delimiter == "\t" and not options.quoted and row[-1][:1] == '"'
                hint = "; where quotes enclose fields, set quoted (--read quoted=true)"
                raise BadLine(
                    f"has {len(row)} fields, but there are {len(names)} columns"
                    + (hint if open_quote else "")
                )
            record = dict(zip(names, row, strict=True))
            document = parse_record(record, wanted, separator, options, report)
        except BadLine as error:
            refuse(DataError(str(error), file=path, line=number), options, report)
            continue
        yield document


def _seen_delimiter(path: Path | str, usual: str) -> str:
    """Semicolon or tab where a CSV's first line has those and no comma."""
    if usual != "," or str(path) == STDIN:
        return usual
    _, header = next(iter(lines(path)), (1, b""))
    return next((d for d in (",", ";", "\t") if d.encode() in header), usual)


def _rows(
    path: Path | str, options: ReadOptions, report: ReadReport, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, fields) of every row; rows with bad bytes are refused here."""
    encoding = check_encoding(options.encoding)
    first_line, bad_line = 0, 0

    def decoded() -> Iterator[str]:
        nonlocal first_line, bad_line
        for number, raw in lines(path):
            first_line = first_line or number
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError:
                # The row may go on over the next lines: read on, and refuse it when it is whole.
                bad_line = bad_line or number
                text = raw.decode(encoding, "replace")
            yield text + "\n"

    quoted = delimiter != "\t" if options.quoted is None else options.quoted
    # The limit is one for the whole process; texts of megabytes need it raised.
    csv.field_size_limit(max(csv.field_size_limit(), _FIELD_LIMIT))
    if quoted:
        reader: Iterator[list[str]] = csv.reader(decoded(), delimiter=delimiter, strict=True)
    else:
        reader = (line[:-1].split(delimiter) if line != "\n" else [] for line in decoded())
    while True:
        first_line = bad_line = 0
        try:
            row = next(reader, None)
            if bad_line:
                raise BadLine(
                    f"not valid {encoding}; convert the file to UTF-8 or set encoding "
                    "(--read encoding=latin-1)"
                )
        except (csv.Error, BadLine) as error:
            where = bad_line or first_line
            refuse(DataError(str(error), file=path, line=where), options, report)
            continue
        if row is None:
            return
        if row:
            yield first_line, row


def guess_separator(cells: Iterable[str]) -> str:
    """``;`` where cells have that and never ``|``, else ``|``.

    >>> guess_separator(["a;b", "c"]), guess_separator(["a"])
    (';', '|')
    """
    found = separators_in(cells)
    return ";" if found == {";"} else "|"


def separators_in(cells: Iterable[str]) -> set[str]:
    """Which of the usual separators occur.

    >>> sorted(separators_in(["a;b", "c|d"]))
    [';', '|']
    """
    return {separator for cell in cells for separator in SEPARATORS if separator in cell}


def split_note(path: Path | str, separator: str) -> str:
    """Says at what labels were split where nobody said so."""
    return (
        f"{path}: labels are split at {separator!r}; "
        "set label_separator (--read label_separator=...) if wrong"
    )


def no_labels_note(path: Path | str, wanted: str, names: Iterable[str]) -> str:
    """Says that the labels' column is not there, and which columns are."""
    return (
        f"{path}: no column {wanted!r}, so documents have no labels; the columns are "
        f"{', '.join(map(repr, names))}, and labels_field (--labels-field) names another"
    )


def split_labels(cell: str, separator: str) -> list[Any]:
    """Labels of one cell, without the white space around them.

    Spreadsheets like to leave separators at the end or twice: nothing stands between them.

    >>> split_labels("red | blue;|", "|"), split_labels('["red"]', "|"), split_labels(" ", "|")
    (['red', 'blue;'], ['red'], [])
    """
    if not separator:
        raise ConfigError("label_separator: must not be empty")
    cell = cell.strip()
    if not cell:
        return []
    if cell.startswith("["):
        try:
            labels = json.loads(cell)
        except (ValueError, RecursionError):
            pass  # a label may well begin with a bracket
        else:
            if isinstance(labels, list):
                return labels
    return [label for part in cell.split(separator) if (label := part.strip())]


def parse_record(
    record: Mapping[str, Any],
    text_fields: Sequence[str],
    separator: str,
    options: ReadOptions,
    report: ReadReport,
) -> Document:
    """A document from a row's fields; also what Parquet rows go through."""
    labels = record.get(options.labels_field)
    if isinstance(labels, str):
        labels = split_labels(labels, separator)
    return Document(
        joined_text(record, text_fields),
        document_labels(labels, record.get(options.weights_field), options.labels_field, report),
        document_id(record.get(options.id_field), options.id_field),
    )
