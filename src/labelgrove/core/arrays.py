"""Sparse matrices on their way to the native kernels: checked once, in the layout kernels read.

Kernels trust their arguments. So everything that could make them read out of bounds is refused
here: wrong shapes, unsorted or out-of-range indices, indptr that goes backwards, NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove import _native
from labelgrove.core.late import SparseMatrix, sparse
from labelgrove.errors import DataError

Array: TypeAlias = npt.NDArray[Any]  # of any type of numbers
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
CSR: TypeAlias = SparseMatrix  # a scipy.sparse.csr_array
MatrixLike: TypeAlias = Any  # a SciPy matrix, a 2-d array, or rows of numbers
_CHECKED = 1 << 22


class CsrParts(NamedTuple):
    """The three arrays of a CSR matrix as kernels read them, and its number of columns."""

    indptr: Int64
    indices: Int32
    data: Float32
    cols: int


def offsets(counts: npt.ArrayLike) -> Int64:
    """Where each of several pieces begins, one after another, and where the last ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def entry_rows(matrix: CSR) -> Int64:
    """The row of each stored entry of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))


def entry_keys(matrix: CSR) -> Int64:
    """A number for the cell of each stored entry: row * columns + column."""
    keys: Int64 = entry_rows(matrix) * matrix.shape[1] + matrix.indices
    return keys


def with_values(matrix: CSR, values: npt.ArrayLike) -> CSR:
    """A CSR matrix with the same pattern and other values: an array, or one number for all."""
    if np.ndim(values) == 0:
        values = np.full(matrix.nnz, values, np.float32)
    return sparse.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def stacked_rows(parts: Sequence[CSR]) -> CSR:
    """The rows of several CSR matrices, one matrix after another."""
    return sparse.vstack(parts, format="csr")


def as_csr(matrix: MatrixLike, *, name: str = "matrix") -> CSR:
    """Any 2-d array or SciPy sparse matrix as float32 CSR with sorted, unique column indices.

    Copies only when something has to change; the input is never modified.
    """
    given = checked_table(matrix, name=name)
    if sparse.issparse(given):
        try:
            csr = sparse.csr_array(given)
        except (OverflowError, TypeError, ValueError) as error:
            raise DataError(f"{name}: SciPy cannot convert it to CSR ({error})") from error
        if given.format != "csr":
            check_structure(csr, name=name)
        if csr.dtype != np.float32:
            csr = csr.astype(np.float32)
    else:
        csr = sparse.csr_array(given.astype(np.float32, copy=False))
    if not csr.has_canonical_format:
        # csr_array(matrix) may share its arrays with the caller's matrix: sort a copy.
        csr = csr.copy()
        csr.sum_duplicates()
    if csr.shape[1] > np.iinfo(np.int32).max:
        raise DataError(f"{name} has {csr.shape[1]:,} columns; at most 2^31 - 1 are supported")
    return csr


def checked_table(matrix: MatrixLike, *, name: str) -> MatrixLike:
    """A sound SciPy matrix as it is, anything else as an array; refuses all but numbers."""
    given = matrix
    if not sparse.issparse(matrix):
        try:
            given = np.asanyarray(matrix)
        except ValueError as error:
            raise DataError(f"{name} must have rows of equal length ({error})") from error
    if given.ndim != 2:
        raise DataError(f"{name} must have two dimensions, got shape {given.shape}")
    if sparse.issparse(given):
        check_structure(given, name=name)
    if given.dtype.kind not in "biuf":
        raise DataError(f"{name} must hold numbers, got dtype {given.dtype}")
    return given


def csr_parts(matrix: CSR, *, name: str = "matrix", finite: bool = True) -> CsrParts:
    """Arrays of a canonical CSR matrix, checked and cast to what the kernels read.

    ``finite=False`` lets NaN and infinity pass, for kernels that check values themselves.
    """
    indptr = np.ascontiguousarray(matrix.indptr, dtype=np.int64)
    wide = matrix.indices  # a wrong index must not wrap around to a valid one
    indices = np.ascontiguousarray(wide, dtype=np.int32)
    data = np.ascontiguousarray(matrix.data, dtype=np.float32)
    rows, cols = matrix.shape
    if len(indptr) != rows + 1 or indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        raise DataError(f"{name}: indptr is not a valid CSR row pointer")
    nnz = int(indptr[-1])
    if len(indices) < nnz or len(data) < nnz:
        raise DataError(f"{name}: indices or data are shorter than indptr says")
    if not matrix.has_canonical_format:
        raise DataError(f"{name}: column indices must be sorted and unique; use as_csr first")
    if nnz and (wide[:nnz].min() < 0 or wide[:nnz].max() >= cols):
        raise DataError(f"{name}: a column index lies outside 0..{cols - 1}")
    if finite and not all_finite(data[:nnz]):
        raise DataError(f"{name}: contains NaN or infinity")
    return CsrParts(indptr, indices[:nnz], data[:nnz], int(cols))


def all_finite(numbers: Array) -> bool:
    """Whether no number is NaN or infinite; looks at some at a time, which saves memory."""
    return all(
        np.isfinite(numbers[first : first + _CHECKED]).all()
        for first in range(0, len(numbers), _CHECKED)
    )


def matrix_parts(matrix: MatrixLike, *, name: str = "matrix") -> CsrParts:
    """The arrays of any 2-d array or SciPy matrix: :func:`as_csr`, then :func:`csr_parts`.

    A sound float32 CSR matrix takes a shortcut of a few microseconds, which matters when documents
    come one by one.
    """
    if sparse.issparse(matrix) and matrix.format == "csr" and matrix.ndim == 2:
        indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
        rows, cols = matrix.shape
        if (
            data.dtype == np.float32
            and indices.dtype == np.int32
            and indptr.dtype in (np.int32, np.int64)
            and indptr.shape == (rows + 1,)
            and cols <= np.iinfo(np.int32).max
            and all(a.flags.c_contiguous and a.ndim == 1 for a in (indptr, indices, data))
            and _native.csr_is_sound(indptr, indices, data, cols)
        ):
            used = int(indptr[-1])
            return CsrParts(indptr.astype(np.int64, copy=False), indices[:used], data[:used], cols)
    return csr_parts(as_csr(matrix, name=name), name=name)


def csr_arrays(matrix: CSR, prefix: str) -> dict[str, Array]:
    """A CSR matrix as named arrays of a Part; :func:`csr_from_arrays` reads them."""
    parts = csr_parts(matrix, name=prefix)._asdict()
    parts["shape"] = np.array(matrix.shape, dtype=np.int64)
    return {f"{prefix}.{name}": parts[name] for name in ("indptr", "indices", "data", "shape")}


def csr_from_arrays(arrays: Mapping[str, Array], prefix: str) -> CSR:
    """The inverse of :func:`csr_arrays`; memory-mapped arrays stay memory-mapped where they can."""
    indptr, indices, data, shape = (
        arrays[f"{prefix}.{name}"] for name in ("indptr", "indices", "data", "shape")
    )
    matrix = narrow_csr(data, indices, indptr, tuple(shape.tolist()))
    check_structure(matrix, name=prefix)
    return matrix


def narrow_csr(data: Array, indices: Array, indptr: Int64, shape: tuple[int, int]) -> CSR:
    """A CSR matrix that keeps its 32-bit ``indices``, which SciPy would widen with ``indptr``."""
    pointers: Array = indptr
    if len(indices) <= np.iinfo(np.int32).max:
        pointers = indptr.astype(np.int32)
    return sparse.csr_array((data, indices, pointers), shape=shape)


# SciPy's conversions trust their arrays as kernels do: a wrong pointer makes them write out of
# bounds. SciPy's own check_format does not look at the pointers if the last of them is 0.
def check_structure(matrix: SparseMatrix, *, name: str = "matrix") -> None:
    """Raises DataError unless every conversion of a SciPy matrix stays inside its arrays."""
    try:
        if len(matrix.shape) != 2 or min(matrix.shape) < 0:
            raise ValueError(f"the shape is {matrix.shape}")
        _check_kind(matrix, *matrix.shape)
    except (AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{name}: not a valid sparse matrix ({error})") from error


def _check_kind(matrix: SparseMatrix, rows: int, cols: int) -> None:
    """Raises a ValueError that says what is wrong."""
    kind = matrix.format
    if kind in ("lil", "dok"):  # Python lists and dicts: only their indices can be wrong
        return
    if kind not in ("csr", "csc", "coo", "dia"):
        raise ValueError(f"a matrix of the kind {kind!r} is not supported; use csr")
    dimensions = 2 if kind == "dia" else 1
    if not isinstance(matrix.data, np.ndarray) or matrix.data.ndim != dimensions:
        raise ValueError(f"data must be an array of {dimensions} dimensions")
    if kind == "csr":
        _check_pointers(matrix, rows, cols, "CSR row", "a column index")
    elif kind == "csc":
        _check_pointers(matrix, cols, rows, "CSC column", "a row index")
    elif kind == "dia":
        diagonals = _indices(matrix.offsets, "offsets")
        if len(diagonals) != len(matrix.data):
            raise ValueError("data must have one row for each of the offsets")
        if len(np.unique(diagonals)) != len(diagonals):
            raise ValueError("a diagonal occurs twice")
        _check_range(diagonals + rows, rows + cols + 1, "a diagonal")
    else:
        row, column = _indices(matrix.row, "row"), _indices(matrix.col, "col")
        if not len(row) == len(column) == len(matrix.data):
            raise ValueError("row, col and data must have the same length")
        _check_range(row, rows, "a row index")
        _check_range(column, cols, "a column index")


def _check_pointers(matrix: SparseMatrix, lines: int, width: int, kind: str, index: str) -> None:
    pointers, indices = _indices(matrix.indptr, "indptr"), _indices(matrix.indices, "indices")
    stored = min(len(indices), len(matrix.data))
    if (
        len(pointers) != lines + 1
        or pointers[0] != 0
        or pointers[-1] > stored
        or np.any(pointers[1:] < pointers[:-1])
    ):
        raise ValueError(f"indptr is no {kind} pointer")
    _check_range(indices[: pointers[-1]], width, index)


def _indices(value: object, what: str) -> Array:
    if (
        not isinstance(value, np.ndarray)
        or value.ndim != 1
        or value.dtype not in (np.int32, np.int64)
    ):
        raise ValueError(f"{what} must be an array of whole numbers")
    return value


def _check_range(indices: Array, width: int, index: str) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= width):
        raise ValueError(f"{index} lies outside 0..{width - 1}")
