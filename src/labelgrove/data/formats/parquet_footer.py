"""What a Parquet file says about the sizes of its columns.

pyarrow tells the same, but where a statistic of a column is damaged it ends the process
(``RowGroupMetaData.column``, at least up to version 26). The format is Thrift's compact protocol.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.errors import DataError

Value: TypeAlias = Any  # a number, bytes, a list, or a struct: values by the numbers of fields
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_ROW_GROUPS, _COLUMNS, _METADATA, _VALUES, _SIZE = 4, 1, 3, 5, 6  # numbers of fields
_TAIL = 8  # bytes: the footer's length, and PAR1


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
