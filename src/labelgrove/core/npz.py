"""Sparse matrices in files of SciPy's ``save_npz``, which may be damaged or made to do harm."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path

import numpy as np

from labelgrove.core.arrays import check_structure
from labelgrove.core.late import SparseMatrix, sparse
from labelgrove.core.memory import check_announced, check_unpacked, require
from labelgrove.errors import DataError, LabelgroveError

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_npz(path: Path) -> SparseMatrix:
    """The matrix in a file, of any SciPy kind, with arrays that are safe to convert.

    Pickled objects are refused, as well as arrays and shapes much larger than the file.
    """
    try:
        size = _unpacked_size(path)
        check_unpacked(size, path.stat().st_size, file=path)
        require(None, size, f"reading {path}")
        matrix = sparse.load_npz(path)
    except (LabelgroveError, MemoryError):
        raise
    except Exception as error:  # SciPy, NumPy and zipfile raise many kinds for damaged files
        raise DataError(f"is not a sparse matrix saved by SciPy: {error}", file=path) from error
    if not sparse.issparse(matrix):
        raise DataError("is not a sparse matrix saved by SciPy", file=path)
    for count, axis in zip(matrix.shape, ("rows", "columns"), strict=False):
        check_announced(int(count), size, axis, file=path)
    try:
        check_structure(matrix)
    except DataError as error:
        raise DataError(f"is not a sparse matrix saved by SciPy: {error}", file=path) from error
    return matrix


def _unpacked_size(path: Path) -> int:
    """Bytes of all arrays; raises for an array whose header announces more than there is."""
    total = 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as file:
                version = np.lib.format.read_magic(file)
                if version not in _HEADERS:
                    raise ValueError(f"{entry.filename} has an unknown version")
                shape, _, dtype = _HEADERS[version](file)
                start = file.tell()
            content = entry.file_size - start
            if dtype.hasobject:
                raise ValueError(f"{entry.filename} is a pickle, which could run code")
            if dtype.itemsize * math.prod(shape) != content:
                raise ValueError(f"{entry.filename} does not have the size that it announces")
            total += entry.file_size
    return total
