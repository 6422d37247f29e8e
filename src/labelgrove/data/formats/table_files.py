"""Tables for other programs: CSV, Parquet and Excel files, written row by row."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from labelgrove.data.formats.files import bare_name, replacing
from labelgrove.errors import ConfigError, DataError, MissingExtraError

Kind = Literal["string", "int64", "float32", "strings", "floats"]
Rows = Iterable[Sequence[object]]
Writer = Callable[[Rows], None]
TABLES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".xlsx": "xlsx"}
EXCEL_ROWS, EXCEL_CHARACTERS = 1_048_576, 32_767  # what Excel can open
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # XML has no way to write them


def table_format(path: str | os.PathLike[str]) -> str | None:
    """The format of a table by the name of its file: csv, parquet or xlsx; None for others."""
    file = Path(path)
    format = TABLES.get(Path(bare_name(file)).suffix.lower())
    if format in ("parquet", "xlsx") and bare_name(file) != file.name:
        raise ConfigError(f"{file}: {format} files are compressed already; leave out {file.suffix}")
    return format


@contextmanager
def table_writer(
    path: str | os.PathLike[str], columns: Mapping[str, Kind], format: str
) -> Iterator[Writer]:
    """A function that adds rows to a table, whose file appears when all of them are written."""
    writer = {"csv": _csv, "parquet": _parquet, "xlsx": _excel}[format]
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("data", "writing Parquet") from error
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


@contextmanager
def _excel(file: IO[bytes], columns: Mapping[str, Kind], path: Path) -> Iterator[Writer]:
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise MissingExtraError("excel", "writing Excel files") from error
    book = Workbook(write_only=True)
    sheet = book.create_sheet("labelgrove")
    sheet.append(list(columns))
    count = 1

    def cell(value: object) -> object:
        if not isinstance(value, str):
            return value
        own = WriteOnlyCell(sheet, _CONTROL.sub(" ", value)[:EXCEL_CHARACTERS])
        own.data_type = "s"  # a label that begins with = is no formula
        return own

    def write(rows: Rows) -> None:
        nonlocal count
        for row in rows:
            count += 1
            if count > EXCEL_ROWS:
                raise DataError(f"Excel opens {EXCEL_ROWS:,} rows; write .csv", file=path)
            sheet.append([cell(value) for value in row])

    try:
        yield write
    except BaseException:
        sheet.close()  # it writes to a file of its own until the book is saved
        raise
    book.save(file)
