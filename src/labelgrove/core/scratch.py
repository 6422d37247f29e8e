"""Large temporary arrays: in memory, or in files that the system may drop from memory.

A file has no name (where the system allows that), so nothing is left of it when the last array over
it is gone, even if the process is killed. Mapped files are not part of the process's own memory:
under pressure the system writes their pages to the disk and reads them again when they are used.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, narrow_csr, offsets
from labelgrove.core.storing import storing

# Rows of a large matrix that are processed at once. Smaller corpora are one block.
BLOCK_ROWS = 1 << 17
MERGED_ENTRIES = 1 << 22  # entries of lists that are joined at once


class Scratch:
    """Where large arrays are made: in files of ``folder``, or in memory without one.

    Work that can be cut into pieces of any size should take no more than about ``memory`` bytes.
    """

    def __init__(self, folder: str | Path | None = None, *, memory: float = math.inf) -> None:
        self.folder = None if folder is None else Path(folder)
        self.memory = memory

    def __bool__(self) -> bool:
        return self.folder is not None

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """A new array of any content."""
        if self.folder is None or size == 0:
            return np.empty(size, dtype)
        with storing(self.folder), tempfile.TemporaryFile(dir=self.folder) as file:
            _reserve(file.fileno(), size * np.dtype(dtype).itemsize)
            # As a plain array: slices of np.memmap are slow.
            return np.asarray(np.memmap(file, dtype, mode="r+", shape=(size,)))

    def growing(self, dtype: npt.DTypeLike) -> GrowingArray:
        """An array whose size is not known yet."""
        return GrowingArray(self, dtype)


class GrowingArray:
    """Blocks one after another, which become one array; ``close`` it even if there is an error."""

    def __init__(self, scratch: Scratch, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.size = 0
        self._folder = scratch.folder
        self._blocks: list[Array] = []
        self._file: IO[bytes] | None = None
        if self._folder is not None:
            with storing(self._folder):
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115

    def append(self, block: Array) -> None:
        """Adds the block at the end; it must not change afterwards."""
        self.size += len(block)
        if self._file is None:
            self._blocks.append(block)
        elif len(block):
            with storing(str(self._folder)):
                exact = block.astype(self.dtype, casting="safe", copy=False)
                self._file.write(np.ascontiguousarray(exact).data)

    def array(self) -> Array:
        """All blocks as one array; nothing can be added afterwards."""
        if self._file is None:
            blocks, self._blocks = self._blocks, []
            return np.concatenate(blocks) if blocks else np.empty(0, self.dtype)
        with storing(str(self._folder)), self._file as file:
            file.flush()
            if self.size == 0:
                return np.empty(0, self.dtype)
            return np.asarray(np.memmap(file, self.dtype, mode="r", shape=(self.size,)))

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            self._file.close()


class GrowingCsr:
    """A sparse matrix that gets its rows block by block; use it in a ``with`` statement."""

    def __init__(self, scratch: Scratch, columns: int) -> None:
        self.columns = columns
        self._lengths: list[Int64] = []
        self._indices = scratch.growing(np.int32)
        self._data = scratch.growing(np.float32)

    def append(self, indptr: npt.ArrayLike, indices: Int32, data: Float32) -> None:
        """Adds rows, with sorted and unique columns."""
        self._lengths.append(np.diff(indptr))
        self._indices.append(indices)
        self._data.append(data)

    def matrix(self) -> CSR:
        """All rows; nothing can be added afterwards."""
        indptr = offsets(np.concatenate(self._lengths)) if self._lengths else offsets([])
        shape = (len(indptr) - 1, self.columns)
        matrix = narrow_csr(self._data.array(), self._indices.array(), indptr, shape)
        matrix.has_canonical_format = True
        return matrix

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._indices.close()
        self._data.close()


class ColumnLists(NamedTuple):
    """For each column a sorted list of row numbers, and a value for each of them."""

    indptr: Int64
    rows: Int32
    values: Float32


def row_ranges(count: int) -> Iterator[slice]:
    """Slices of the rows that are processed at once."""
    size = BLOCK_ROWS
    return (slice(first, min(count, first + size)) for first in range(0, count, size))


class ListJoiner:
    """Joins the lists of consecutive blocks of rows."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._blocks: list[ColumnLists] = []
        # One file for each array of all blocks: every map of a file keeps it open.
        self._files: list[GrowingArray] = []
        self._ends: list[list[int]] = [[0, 0, 0]]

    def add(self, block: ColumnLists, *, first: int) -> None:
        """Adds a block whose row 0 is the row ``first`` of all rows."""
        if first:
            block = block._replace(rows=block.rows + np.int32(first))
        if not self._scratch:
            self._blocks.append(block)
            return
        if not self._files:
            self._files = [self._scratch.growing(array.dtype) for array in block]
        arrays: tuple[Array, ...] = block
        for file, array in zip(self._files, arrays, strict=True):
            file.append(array)
        self._ends.append([file.size for file in self._files])

    def joined(self) -> ColumnLists:
        """All lists; a single block as it is."""
        blocks, self._blocks = self._blocks, []
        if self._files:
            arrays = [file.array() for file in self._files]
            for bounds in pairwise(self._ends):
                parts = zip(arrays, *bounds, strict=True)
                blocks.append(ColumnLists(*(array[first:last] for array, first, last in parts)))
        if len(blocks) == 1:
            return blocks[0]
        indptr = offsets(sum(np.diff(block.indptr) for block in blocks))
        rows = self._scratch.empty(int(indptr[-1]), np.int32)
        values = self._scratch.empty(int(indptr[-1]), np.float32)
        for columns in entry_ranges(indptr, MERGED_ENTRIES):
            ends = indptr[columns].copy()  # where the next entry of each column goes
            for block in blocks:
                own = block.indptr[columns.start : columns.stop + 1]
                lengths, first, last = np.diff(own), int(own[0]), int(own[-1])
                places = np.arange(first, last) + np.repeat(ends - own[:-1], lengths)
                rows[places], values[places] = block.rows[first:last], block.values[first:last]
                ends += lengths
        return ColumnLists(indptr, rows, values)


def entry_ranges(indptr: Array, most: int) -> Iterator[slice]:
    """Slices of lists that have up to so many entries together, or of one list.

    >>> list(entry_ranges(np.array([0, 2, 3, 9]), 3))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    first, count = 0, len(indptr) - 1
    while first < count:
        enough = int(np.searchsorted(indptr, indptr[first] + most, side="right")) - 1
        last = min(count, max(first + 1, enough))
        yield slice(first, last)
        first = last


def _reserve(descriptor: int, size: int) -> None:
    """Makes a file this large. Writing to a map of a full disk would kill the process."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    os.truncate(descriptor, size)  # macOS, Windows, and file systems that cannot reserve
