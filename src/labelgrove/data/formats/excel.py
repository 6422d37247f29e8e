"""Excel workbooks (.xlsx): the first sheet, read like a CSV file with a header line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN, open_bytes
from labelgrove.data.formats.tables import cell_text, row_documents
from labelgrove.errors import DataError, MissingExtraError


def iter_excel(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a workbook's first sheet, one at a time; cells are read as their texts."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("excel", "reading Excel files") from error
    if str(path) == STDIN:
        raise DataError("Excel files cannot be read from standard input; give a file")
    with open_bytes(path) as file:
        try:
            # Formulas give the values that were saved with them.
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        except _damages() as error:
            raise _damaged(error, path) from error
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
    try:
        for number, values in enumerate(sheet.iter_rows(values_only=True), 1):
            cells = [cell_text(value) for value in values]
            if not any(cells):
                continue
            if places is None:
                places = [place for place, cell in enumerate(cells) if cell.strip()]
            yield number, [cells[place] if place < len(cells) else "" for place in places]
    except _damages() as error:
        raise _damaged(error, path) from error


def _damaged(error: Exception, path: Path | str) -> DataError:
    return DataError(f"cannot be read as an Excel file: {error}", file=path)


def _damages() -> tuple[type[Exception], ...]:
    from xml.etree.ElementTree import ParseError  # commands that read no workbook do without
    from zipfile import BadZipFile

    return BadZipFile, ParseError, KeyError, ValueError, TypeError, OSError, EOFError
