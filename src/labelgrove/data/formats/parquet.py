"""Parquet files: text, labels (a list, a map to weights, or a separated string) and id columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.core.jsonio import JsonObject
from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN
from labelgrove.data.formats.tables import check_columns, record_documents
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
    if str(path) == STDIN:
        raise DataError("Parquet cannot be read from standard input; give a file")
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            text_fields = check_columns(names, path, options, report)
            others = (options.labels_field, options.weights_field, options.id_field)
            fields = (*others, *listed(options.fields or ()))
            columns = [name for name in dict.fromkeys((*text_fields, *fields)) if name in names]
            columns = names if options.columns else columns
            batches = file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
            rows = enumerate((record for batch in batches for record in _records(batch)), 1)
            yield from record_documents(path, rows, text_fields, options, report)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot be read as Parquet: {error}", file=path) from error


def _records(batch: Batch) -> list[JsonObject]:
    """Rows as dictionaries; maps become dictionaries, and text with bad bytes becomes bytes."""
    try:
        records: list[JsonObject] = batch.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError:
        records = [_careful_record(batch, row) for row in range(batch.num_rows)]
    return records


def _careful_record(batch: Batch, row: int) -> JsonObject:
    record: JsonObject = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            record[name] = column[row].as_py(maps_as_pydicts="lossy")
        except UnicodeDecodeError:
            record[name] = b"not UTF-8"  # refused later because it is not a string
    return record
