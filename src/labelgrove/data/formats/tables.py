"""CSV, TSV and Excel: a header line (or given column names), then one document per row.

The labels column has labels with a separator between them, or a list in JSON or in Python, as
pandas writes it; a JSON object gives weights. In CSV, double quotes protect separators and line
ends; in TSV, a quote is an ordinary character, so that a text that begins with one does not swallow
the lines after it. Of an Excel workbook (.xlsx), the first sheet is read.
"""

from __future__ import annotations

import ast
import csv
import itertools
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import check_unpacked
from labelgrove.data.formats import files
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN, lines, parse_each
from labelgrove.data.formats.jsonl import record_parser
from labelgrove.data.records import listed
from labelgrove.errors import ConfigError, DataError, LabelgroveError, needing

Labels: TypeAlias = list[object] | dict[object, object]  # the latter with weights
SEPARATORS = ("|", ";")
ROWS_LOOKED_AT = 200
_FIELD_LIMIT = 2**31 - 1
_ADJACENT = re.compile(r"""['"]\s+['"]""")  # strings without a comma between them


def iter_table(
    path: Path | str, options: ReadOptions, report: ReadReport, *, delimiter: str
) -> Iterator[Document]:
    """The documents of a CSV or TSV file, one at a time."""
    delimiter = options.delimiter or _header_delimiter(path, delimiter)
    rows = _rows(path, options, report, delimiter)
    if options.column_names is None and (first := next(rows, None)) is not None:
        # A line may tell Excel the delimiter.
        is_hint = delimiter.join(first[1]).strip() == f"sep={delimiter}".strip()
        rows = rows if is_hint else itertools.chain([first], rows)
    unquoted = delimiter == "\t" and not options.quoted
    return row_documents(path, rows, options, report, unquoted=unquoted)


def row_documents(
    path: Path | str,
    rows: Iterator[tuple[int, list[str]]],
    options: ReadOptions,
    report: ReadReport,
    *,
    unquoted: bool = False,
) -> Iterator[Document]:
    """The documents of the rows of a table, the first of which names the columns."""
    names = options.column_names
    if names is None:
        first = next(rows, None)
        if first is None:
            raise DataError("contains no documents", file=path)
        names = [name.strip() for name in first[1]]
    hint = ", or column_names (--read column_names=text,labels) if the file has no header line"
    options = for_columns(names, path, options, report, hint=hint)
    if len(set(names)) != len(names):
        raise DataError("two columns have the same name", file=path, line=1)

    def record(row: list[str]) -> JsonObject | BadLine:
        if len(row) == len(names):
            return dict(zip(names, row, strict=True))
        reason = f"the row has {len(row)} fields, but there are {len(names)} columns"
        if unquoted and row[-1][:1] == '"':
            reason += "; if quotes enclose fields, set quoted (--read quoted=true)"
        return BadLine(reason)

    records = ((number, record(row)) for number, row in rows)
    yield from record_documents(path, records, options, report)


def record_documents(
    path: Path | str,
    records: Iterator[tuple[int, JsonObject | BadLine]],
    options: ReadOptions,
    report: ReadReport,
) -> Iterator[Document]:
    """The documents in numbered rows; the first rows show at which separator labels are split."""
    head = list(itertools.islice(records, ROWS_LOOKED_AT))
    separator = options.label_separator
    if separator is None:
        raw = (record.get(options.labels_field) for _, record in head if isinstance(record, dict))
        cells = [cell or "" for cell in raw if cell is None or isinstance(cell, str)]
        separator = ";" if _separators_in(cells) == {";"} else SEPARATORS[0]
        for note in _separator_notes(path, cells, separator) if options.labels else ():
            report.note(note)
    parse = record_parser(options, report)
    lists = [options.labels_field] if options.labels else []
    lists += listed(options.fields or ())

    def parse_row(record: JsonObject | BadLine) -> Document:
        if isinstance(record, BadLine):
            raise record
        columns = None
        if options.columns:
            columns = {name: cell_text(value) for name, value in record.items()}
        for name in lists:
            if isinstance(cell := record.get(name), str):
                values = split_labels(cell, separator)
                # Only labels have weights.
                is_text = isinstance(values, Mapping) and name != options.labels_field
                record[name] = cell if is_text else values
        document = parse(record)
        return document if columns is None else replace(document, columns=columns)

    return parse_each(path, itertools.chain(head, records), parse_row, options, report)


def _header_delimiter(path: Path | str, usual: str) -> str:
    """Semicolon or tab if a CSV's first line has one of them and no comma."""
    if usual != "," or str(path) == STDIN:
        return usual
    _, header = next(iter(lines(path)), (1, b""))
    return next((d for d in (",", ";", "\t") if d.encode() in header), usual)


def _rows(
    path: Path | str, options: ReadOptions, report: ReadReport, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line and the fields of every row; rows with bad bytes are refused."""
    encoding = files.check_encoding(options.encoding)
    first_line, bad_line = 0, 0

    def decoded() -> Iterator[str]:
        nonlocal first_line, bad_line
        for number, raw in lines(path):
            first_line = first_line or number
            try:
                text = raw.decode(encoding)
            except UnicodeDecodeError:
                # The row may continue on the next lines: read all of it before refusing it.
                bad_line = bad_line or number
                text = raw.decode(encoding, "replace")
            yield text + "\n"

    quoted = delimiter != "\t" if options.quoted is None else options.quoted
    # The limit applies to the whole process; texts of megabytes need a higher one.
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
                raise BadLine(f"not valid {encoding}; {files.ENCODING_ADVICE}")
        except (csv.Error, BadLine) as error:
            where = bad_line or first_line
            files.refuse(DataError(str(error), file=path, line=where), options, report)
            continue
        if row is None:
            return
        if row:
            yield first_line, row


def _separators_in(cells: Iterable[str]) -> set[str]:
    """The usual separators that occur in the cells; those inside lists separate nothing."""
    plain = [cell for cell in cells if not _is_listed(cell.strip())]
    return {separator for cell in plain for separator in SEPARATORS if separator in cell}


def _separator_notes(path: Path | str, cells: Sequence[str], separator: str) -> Iterator[str]:
    if len(_separators_in(cells)) > 1:
        yield f"{path}: labels contain both | and ; and are split at {separator!r} only"
    if separator != SEPARATORS[0]:
        yield (
            f"{path}: labels are split at {separator!r}; "
            "set label_separator (--read label_separator=...) if this is wrong"
        )
    elif not _separators_in(cells) and sum("," in cell for cell in cells) > len(cells) / 2:
        yield (
            f"{path}: labels are not split at commas; if they should be, set "
            "label_separator (--read label_separator=,)"
        )


def for_columns(
    names: Sequence[str],
    path: Path | str,
    options: ReadOptions,
    report: ReadReport,
    *,
    hint: str = "",
) -> ReadOptions:
    """The options for these columns; one must be a text. Notes that there are no labels."""
    text_fields = options.text_fields()
    columns = ", ".join(map(repr, names))
    if not set(text_fields) & set(names):
        raise DataError(
            f"there is no column {' or '.join(map(repr, text_fields))}; the columns are {columns}. "
            f"Set text_field (--text-field){hint}",
            file=path,
        )
    if options.labels and options.labels_field not in names:
        report.note(
            f"{path}: there is no column {options.labels_field!r}, so documents have no labels; "
            f"the columns are {columns}. Set labels_field (--labels-field)"
        )
        return replace(options, labels=False)
    return options


def join_labels(labels: Sequence[str]) -> str:
    """Labels as one cell, from which :func:`split_labels` gets them again."""
    plain = not any(
        not label or label != label.strip() or label[0] in "[({" or set(SEPARATORS) & set(label)
        for label in labels
    )
    return SEPARATORS[0].join(labels) if plain else json.dumps(list(labels), ensure_ascii=False)


def split_labels(cell: str, separator: str) -> Labels:
    """The labels of a cell, or their weights; empty ones are dropped, as spreadsheets have them."""
    if not separator:
        raise ConfigError("label_separator: must not be empty")
    cell = cell.strip()
    if not cell:
        return []
    if (labels := _listed(cell)) is not None:
        return labels
    return [label for part in cell.split(separator) if (label := part.strip())]


def _is_listed(cell: str) -> bool:
    try:
        return _listed(cell) is not None
    except BadLine:
        return True


def _listed(cell: str) -> Labels | None:
    """The labels of a list in JSON or in Python; None for other cells, which may begin with [."""
    if cell[:1] + cell[-1:] not in ("[]", "()", "{}"):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            labels = parse(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(labels, dict):
            return labels
        if isinstance(labels, (list, tuple, set)):
            if parse is ast.literal_eval and _ADJACENT.search(cell):
                raise BadLine(
                    f"the labels {cell:.60} are a NumPy array as text, which cannot be read "
                    "safely; write lists (column.map(list)) or put a separator between labels"
                )
            return sorted(labels, key=str) if isinstance(labels, set) else list(labels)
    return None


def cell_text(value: object) -> str:
    """What a spreadsheet's cell shows: Excel makes numbers of texts such as 1984. Lists are JSON.

    >>> [cell_text(value) for value in (None, 1984.0, 2.5, True, date(2024, 5, 1), ["x", 2])]
    ['', '1984', '2.5', 'TRUE', '2024-05-01', '["x", 2]']
    """
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


EXCEL_ROWS = 1_048_576  # that Excel can open
MAX_CELLS = 100_000_000  # a row has all cells before its last one


def iter_excel(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a workbook's first sheet, one at a time; cells are read as their texts."""
    with needing("excel", "reading Excel files"):
        import openpyxl
    if str(path) == STDIN:
        raise DataError("Excel files cannot be read from standard input; give a file")
    try:
        with files.open_bytes(path) as file:
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            check_unpacked(unpacked, Path(path).stat().st_size, file=path)
            # Formulas give the values that were saved with them.
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            if not book.worksheets:
                raise DataError("has no sheet with cells", file=path)
            sheet, *others = book.worksheets
            if others:
                report.note(
                    f"{path}: only the first of {1 + len(others)} sheets is read, "
                    f"{sheet.title!r}; move another to the front to read it"
                )
            yield from row_documents(path, _sheet_rows(sheet, path, options), options, report)
    except (LabelgroveError, MemoryError):
        raise
    except Exception as error:  # openpyxl and zipfile raise many kinds for damaged files
        reason = str(error) or type(error).__name__
        raise DataError(f"cannot be read as an Excel file: {reason}", file=path) from error


def _sheet_rows(
    sheet: Any, path: Path | str, options: ReadOptions
) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of every row that is not empty, in the columns that have a name."""
    sheet.reset_dimensions()  # some programs write wrong ones
    given = options.column_names
    places = None if given is None else list(range(len(given)))
    size = 0
    for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
        size += len(values)
        if number > EXCEL_ROWS or size > MAX_CELLS:
            raise DataError(
                f"has more than {EXCEL_ROWS:,} rows or {MAX_CELLS:,} cells, most of them "
                "empty; save the filled part as CSV",
                file=path,
            )
        if not any(cell_text(value) for value in values if value is not None):
            continue
        if places is None:
            cells = enumerate(map(cell_text, values))
            places = [place for place, cell in cells if cell.strip()]
        yield number, [cell_text(values[p]) if p < len(values) else "" for p in places]
