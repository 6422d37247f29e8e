"""Parquet files: text, labels (a list, a map to weights, or a separated string) and id columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.formats.documents import BadLine, Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import refuse
from labelgrove.data.formats.jsonl import text_reader
from labelgrove.data.formats.tables import (
    ROWS_LOOKED_AT,
    SEPARATORS,
    check_columns,
    guess_separator,
    parse_record,
    split_note,
)
from labelgrove.data.records import listed
from labelgrove.errors import DataError, MissingExtraError

Batch: TypeAlias = Any  # a pyarrow.RecordBatch; pyarrow ships no types
BATCH_ROWS = 1024


def iter_parquet(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a Parquet file, with one batch of rows in memory at a time."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("data", "reading Parquet") from error
    if str(path) == "-":
        raise DataError("Parquet cannot be read from standard input; give a file")
    row = 0
    separator = options.label_separator
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            text_fields = check_columns(names, path, options, report)
            text_of = text_reader(options, report, text_fields)
            others = (options.labels_field, options.weights_field, options.id_field)
            fields = (*others, *listed(options.fields or ()))
            columns = [name for name in dict.fromkeys((*text_fields, *fields)) if name in names]
            columns = names if options.columns else columns
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
                if separator is None:
                    separator = _separator(batch, path, options, report)
                for record in _records(batch):
                    row += 1
                    try:
                        document = parse_record(record, text_of, separator, options, report)
                    except BadLine as error:
                        refuse(DataError(str(error), file=path, line=row), options, report)
                        continue
                    yield document
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as Parquet: {error}", file=path) from error


def _separator(batch: Batch, path: Path | str, options: ReadOptions, report: ReadReport) -> str:
    """The separator in the first rows, if labels are strings."""
    cells = (record.get(options.labels_field) for record in _records(batch[:ROWS_LOOKED_AT]))
    separator = guess_separator(cell for cell in cells if isinstance(cell, str))
    if separator != SEPARATORS[0] and options.labels:
        report.note(split_note(path, separator))
    return separator


def _records(batch: Batch) -> Iterator[JsonObject]:
    """Rows as dictionaries; maps become dictionaries, and text with bad bytes becomes bytes."""
    try:
        records = batch.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError:
        records = [_careful_record(batch, row) for row in range(batch.num_rows)]
    yield from records


def _careful_record(batch: Batch, row: int) -> JsonObject:
    record: JsonObject = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            record[name] = column[row].as_py(maps_as_pydicts="lossy")
        except UnicodeDecodeError:
            record[name] = b"not UTF-8"  # refused later because it is not a string
    return record
