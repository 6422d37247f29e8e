"""Many strings in two arrays: one UTF-8 blob and the offsets of its pieces.

Ten million texts as Python objects take gigabytes and minutes to load. A memory-mapped blob takes
nothing until it is read, is shared between processes, and kernels scan it in place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import overload

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array, offsets
from labelgrove.errors import DataError

_BLOCK = 1 << 16  # offsets that iteration holds as Python numbers
# The search for the nearest strings is bounded: characters of each, strings, and those compared.
_LONGEST, _MOST_COMPARED, _CANDIDATES = 100, 500_000, 50


class StringTable(Sequence[str]):
    """An immutable sequence of strings over ``blob`` (uint8) and ``offsets`` (int64, n + 1).

    Lone surrogates, which JSON can put into a Python string, survive the round trip.
    """

    __slots__ = ("blob", "offsets")

    def __init__(self, blob: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> None:
        flat = blob.ndim == 1 and offsets.ndim == 1
        if not flat or blob.dtype != np.uint8 or offsets.dtype != np.int64 or len(offsets) == 0:
            raise DataError("a string table needs a uint8 blob and a non-empty int64 offsets array")
        if offsets[0] != 0 or offsets[-1] != len(blob) or np.any(offsets[1:] < offsets[:-1]):
            raise DataError("string table: offsets do not describe the blob")
        self.blob = blob
        self.offsets = offsets

    @classmethod
    def from_strings(cls, strings: Iterable[str]) -> StringTable:
        """Packs strings, reading the iterable once."""
        if isinstance(strings, StringTable):
            return cls(strings.blob, strings.offsets)
        blob = bytearray()
        ends = array("q", [0])  # a list of Python numbers would take five times the memory
        for string in strings:
            if not isinstance(string, str):
                raise DataError(f"string {len(ends) - 1} is {string!r}, not a string")
            blob += string.encode("utf-8", "surrogatepass")
            ends.append(len(blob))
        return cls(np.frombuffer(blob, dtype=np.uint8), np.frombuffer(ends, dtype=np.int64))

    def arrays(self, name: str) -> dict[str, Array]:
        """The two arrays under the names they have in a stored part."""
        return {f"{name}.blob": self.blob, f"{name}.offsets": self.offsets}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], name: str) -> StringTable:
        """The table that :meth:`arrays` put among a part's arrays under ``name``."""
        try:
            return cls(arrays[f"{name}.blob"], arrays[f"{name}.offsets"])
        except KeyError as error:
            raise DataError(f"the string table {name!r} is missing its {error.args[0]}") from error

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
        try:
            return piece.tobytes().decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise DataError(f"string {position} of the table is not valid UTF-8") from error

    def __iter__(self) -> Iterator[str]:
        source = np.ascontiguousarray(self.blob).data
        for first in range(0, len(self), _BLOCK):
            ends = self.offsets[first : first + _BLOCK + 1].tolist()
            for position in range(len(ends) - 1):
                piece = bytes(source[ends[position] : ends[position + 1]])
                try:
                    yield piece.decode("utf-8", "surrogatepass")
                except UnicodeDecodeError:
                    yield self[first + position]  # raises the error that names the string

    def part(self, rows: slice) -> StringTable:
        """Consecutive strings, without copying them."""
        first, last, _ = rows.indices(len(self))
        ends = self.offsets[first : max(first, last) + 1]
        return StringTable(self.blob[ends[0] : ends[-1]], ends - ends[0])

    def take(self, rows: npt.ArrayLike) -> StringTable:
        """The strings at ``rows`` (numbers or a mask), in that order, as a new table."""
        picked = row_numbers(rows, len(self))
        starts, ends = self.offsets[picked], self.offsets[picked + 1]
        # Slices of memoryviews take a third of the time of slices of arrays.
        source, blob = np.ascontiguousarray(self.blob).data, bytearray()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            blob += source[start:end]
        return StringTable(np.frombuffer(blob, dtype=np.uint8), offsets(ends - starts))

    def __repr__(self) -> str:
        return f"StringTable({len(self):,} strings, {self.blob.nbytes:,} bytes)"


def nearest_strings(word: str, strings: Iterable[str], most: int = 3) -> list[str]:
    """The strings most like a misspelt word, best first; empty if none is much like it.

    Pairs of bytes in common choose few candidates for difflib, which would take a second for every
    100,000 strings.
    """
    import difflib

    folded = word[:_LONGEST].casefold()
    names = list(islice(strings, _MOST_COMPARED))
    data = [name[:_LONGEST].casefold().encode("utf-8", "surrogatepass") for name in names]
    ends = np.cumsum([len(name) for name in data])
    if len(folded) < 2 or not len(ends) or not ends[-1]:
        return []
    shared = np.zeros(1 << 16, np.int32)
    shared[_pairs(folded.encode("utf-8", "surrogatepass"))] = 1
    counts = np.concatenate([[0], np.cumsum(shared[_pairs(b"".join(data) + b"\0")])])
    sizes = np.diff(ends, prepend=0)
    likeness = np.diff(counts[ends], prepend=0) / (sizes + len(folded))
    best = np.argsort(-likeness, kind="stable")[:_CANDIDATES]
    spellings = {names[at][:_LONGEST].casefold(): names[at] for at in best.tolist()[::-1]}
    return [spellings[near] for near in difflib.get_close_matches(folded, spellings, n=most)]


LONGEST = 60  # characters of a text that is shown on a line


def cut(text: str, longest: int = LONGEST) -> str:
    """A text on one line, with dots where it is too long."""
    line = " ".join(text[: 4 * longest].split())
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"


def _pairs(data: bytes) -> npt.NDArray[np.int64]:
    """A number for each byte and its successor."""
    codes = np.frombuffer(data, np.uint8).astype(np.int64)
    return codes[:-1] << 8 | codes[1:]


def row_numbers(rows: npt.ArrayLike, count: int) -> npt.NDArray[np.int64]:
    """Rows given as numbers (negative ones count from the end) or as a mask, as checked numbers."""
    given = np.asarray(rows)
    if given.dtype == np.bool_ and given.shape == (count,):
        return np.flatnonzero(given)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise DataError(f"rows must be a list of row numbers or a mask of {count:,} rows")
    numbers = given.astype(np.int64)
    numbers = np.where(numbers < 0, numbers + count, numbers)
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
        raise DataError(f"a row number lies outside the {count:,} rows")
    return numbers
