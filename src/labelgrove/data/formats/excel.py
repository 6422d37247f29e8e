"""Excel workbooks (.xlsx): the first sheet, read like a CSV file with a header line."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelgrove.core.memory import check_unpacked
from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN, open_bytes
from labelgrove.data.formats.table_files import EXCEL_ROWS
from labelgrove.data.formats.tables import cell_text, row_documents
from labelgrove.errors import DataError, LabelgroveError, MissingExtraError

MAX_CELLS = 100_000_000  # a row has all cells before its last one


def iter_excel(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a workbook's first sheet, one at a time; cells are read as their texts."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("excel", "reading Excel files") from error
    if str(path) == STDIN:
        raise DataError("Excel files cannot be read from standard input; give a file")
    with open_bytes(path) as file:
        with _reading(path):
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
            check_unpacked(unpacked, Path(path).stat().st_size, file=path)
            # Formulas give the values that were saved with them.
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        if not book.worksheets:
            raise DataError("has no sheet with cells", file=path)
        sheet = book.worksheets[0]
        if len(book.worksheets) > 1:
            report.note(
                f"{path}: only the first of {len(book.worksheets)} sheets is read, "
                f"{sheet.title!r}; move another to the front to read it"
            )
        yield from row_documents(path, _rows(sheet, path, options), options, report)


def _rows(sheet: Any, path: Path | str, options: ReadOptions) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of every row that is not empty, in the columns that have a name."""
    sheet.reset_dimensions()  # some programs write wrong ones
    given = options.column_names
    places = None if given is None else list(range(len(given)))
    size = 0
    with _reading(path):
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


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    """Makes whatever openpyxl and zipfile raise for a damaged file a DataError."""
    try:
        yield
    except (LabelgroveError, MemoryError):
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise DataError(f"cannot be read as an Excel file: {reason}", file=path) from error
