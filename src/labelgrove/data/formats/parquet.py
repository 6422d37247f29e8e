"""Parquet files: text, labels (a list, a map to weights, or a separated string) and id columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import check_unpacked
from labelgrove.data.formats.documents import Document, ReadOptions, ReadReport
from labelgrove.data.formats.files import STDIN
from labelgrove.data.formats.tables import for_columns, record_documents
from labelgrove.data.records import listed
from labelgrove.errors import DataError, needing

MIN_ROWS, MAX_ROWS = 8, 1024  # of a batch
BATCH_BYTES = 1 << 28  # of a batch in which every row has the largest value that there may be
ITEM_BYTES = 8  # that a row of a column or an item of a list takes at least


def iter_parquet(path: Path | str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """The documents of a Parquet file, with one batch of rows in memory at a time."""
    with needing("data", "reading Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    if str(path) == STDIN:
        raise DataError("Parquet cannot be read from standard input; give a file")
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            options = for_columns(names, path, options, report)
            wanted = [*options.text_fields(), *listed(options.fields or ()), options.labels_field]
            wanted += ["weights", options.id_field]
            columns = [name for name in names if options.columns or name in wanted]
            # A dictionary makes a value that the file has once a value of every row.
            largest = _largest(path)
            size = min(MAX_ROWS, max(MIN_ROWS, BATCH_BYTES // largest))
            batches = file.iter_batches(batch_size=size, columns=columns)
            records = (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="lossy"))
            rows = enumerate(_bounded(records, path), 1)
            yield from record_documents(path, rows, options, report)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read as Parquet: {error}", file=path) from error


def _largest(path: Path | str) -> int:
    """Bytes of the largest column chunk, by the file's own account; refuses far too many."""
    chunks = column_sizes(path)
    unpacked = sum(size + ITEM_BYTES * items for items, size in chunks)
    check_unpacked(unpacked, Path(path).stat().st_size, file=path)
    return max([1, *(size for _, size in chunks)])


def _bounded(records: Iterable[JsonObject], path: Path | str) -> Iterator[JsonObject]:
    """The records, as long as their texts are in proportion to the file."""
    packed, unpacked = Path(path).stat().st_size, 0
    for record in records:
        unpacked += sum(len(cell) for cell in record.values() if isinstance(cell, str))
        check_unpacked(unpacked, packed, file=path)
        yield record


Value: TypeAlias = Any  # a number, bytes, a list, or a struct: values by the numbers of fields
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_ROW_GROUPS, _COLUMNS, _METADATA, _VALUES, _SIZE = 4, 1, 3, 5, 6  # numbers of fields
_TAIL = 8  # bytes: the footer's length, and PAR1


# pyarrow tells the same as column_sizes, but where a statistic of a column is damaged it ends the
# process (``RowGroupMetaData.column``, at least up to version 26). The format of a file's footer is
# Thrift's compact protocol.
def column_sizes(path: Path | str) -> list[tuple[int, int]]:
    """Values and uncompressed bytes of each column of each row group."""
    with Path(path).open("rb") as file:
        file.seek(-_TAIL, 2)
        length = int.from_bytes(file.read(4), "little")
        file.seek(-_TAIL - length, 2)
        content = file.read(length)
    try:
        footer = _Compact(content).fields()
        return [
            (max(0, column[_METADATA][_VALUES]), max(0, column[_METADATA][_SIZE]))
            for group in footer[_ROW_GROUPS]
            for column in group[_COLUMNS]
        ]
    except (LookupError, TypeError, RecursionError) as error:
        raise DataError("cannot be read as Parquet: its footer is damaged", file=path) from error


class _Compact:
    """Reads values from bytes, one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0

    def fields(self) -> dict[int, Value]:
        """A struct."""
        fields: dict[int, Value] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Value:
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _STRUCT:
            return self.fields()
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._unsigned()
            return [self._value(head & 15) for _ in range(size)]
        if kind == _MAP:
            size = self._unsigned()
            kinds = self._byte() if size else 0
            return [self._value(part) for _ in range(size) for part in (kinds >> 4, kinds & 15)]
        if kind in (_BINARY, _DOUBLE):
            start = self._unsigned() if kind == _BINARY else 8
            self._place += start
            return self._content[self._place - start : self._place]
        return self._signed()

    def _byte(self) -> int:
        self._place += 1
        return self._content[self._place - 1]

    def _unsigned(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise LookupError("no number is longer")

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)
