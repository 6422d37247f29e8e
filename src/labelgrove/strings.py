"""Many strings in two arrays: one UTF-8 blob and the offsets of its pieces.

Ten million texts as Python objects cost gigabytes and minutes to load; as a memory-mapped blob they
cost nothing until read, are shared between processes, and kernels can scan them in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from labelgrove.errors import DataError


class StringTable(Sequence[str]):
    """An immutable sequence of strings over ``blob`` (uint8) and ``offsets`` (int64, n + 1).

    Lone surrogates, which JSON can smuggle into a Python string, survive the round trip.

    >>> table = StringTable.from_strings(["red", "", "grün"])
    >>> table[2], len(table), table.blob.nbytes
    ('grün', 3, 8)
    """

    __slots__ = ("blob", "offsets")

    def __init__(self, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        if blob.dtype != np.uint8 or offsets.dtype != np.int64 or len(offsets) == 0:
            raise DataError("a string table needs a uint8 blob and a non-empty int64 offsets array")
        if offsets[0] != 0 or offsets[-1] != len(blob) or np.any(np.diff(offsets) < 0):
            raise DataError("string table: offsets do not describe the blob")
        self.blob = blob
        self.offsets = offsets

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> StringTable:
        """Packs strings, reading the iterable once.

        >>> list(StringTable.from_strings(iter("ab")))
        ['a', 'b']
        """
        blob = bytearray()
        offsets = [0]
        for string in strings:
            blob += string.encode("utf-8", "surrogatepass")
            offsets.append(len(blob))
        return cls(np.frombuffer(blob, dtype=np.uint8), np.array(offsets, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, position: int) -> str: ...
    @overload
    def __getitem__(self, position: slice) -> list[str]: ...

    def __getitem__(self, position: int | slice) -> str | list[str]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        if position < 0:
            position += len(self)
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)} strings")
        piece = self.blob[self.offsets[position] : self.offsets[position + 1]]
        return piece.tobytes().decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def take(self, rows: npt.NDArray[np.int64]) -> StringTable:
        """The strings at ``rows``, in that order, as a new table.

        >>> list(StringTable.from_strings("abc").take(np.array([2, 0])))
        ['c', 'a']
        """
        lengths = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        blob = np.empty(int(offsets[-1]), dtype=np.uint8)
        for target, source in enumerate(rows):
            blob[offsets[target] : offsets[target + 1]] = self.blob[
                self.offsets[source] : self.offsets[source + 1]
            ]
        return StringTable(blob, offsets)

    def __repr__(self) -> str:
        return f"StringTable({len(self):,} strings, {self.blob.nbytes:,} bytes)"
