"""Checks of the raw arrays of SciPy's sparse matrices, before SciPy itself follows them.

SciPy's conversions trust their arrays as kernels do: a wrong pointer makes them write out of
bounds. SciPy's own ``check_format`` does not look at the pointers of a matrix whose last pointer is
0, and some kinds of matrices have no such check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labelgrove.errors import DataError


def check_structure(matrix: Any, *, name: str = "matrix") -> None:
    """Raises DataError unless every conversion of a SciPy matrix stays inside its arrays.

    >>> from scipy import sparse
    >>> matrix = sparse.csc_array([[1.0, 2.0]])
    >>> matrix.indptr[:] = [0, 2, 0]
    >>> check_structure(matrix)
    Traceback (most recent call last):
    labelgrove.errors.DataError: matrix: not a valid sparse matrix (indptr is no CSC column pointer)
    """
    check = _CHECKS.get(matrix.format)
    if check is None:
        raise DataError(f"{name}: a matrix of the kind {matrix.format!r} is not supported")
    try:
        if len(matrix.shape) != 2 or min(matrix.shape) < 0:
            raise _Broken(f"the shape is {matrix.shape}")
        check(matrix, *matrix.shape)
    except (_Broken, AttributeError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"{name}: not a valid sparse matrix ({error})") from error


class _Broken(Exception):
    """What is wrong with a matrix."""


def _check_csr(matrix: Any, rows: int, cols: int) -> None:
    _check_compressed(matrix, rows, cols, "CSR row", "a column index")


def _check_csc(matrix: Any, rows: int, cols: int) -> None:
    _check_compressed(matrix, cols, rows, "CSC column", "a row index")


def _check_compressed(matrix: Any, lines: int, width: int, kind: str, index: str) -> None:
    if _array(matrix.data, "data").ndim != 1:
        raise _Broken("data must have one dimension")
    _check_pointers(matrix, lines, width, kind, index)


def _check_bsr(matrix: Any, rows: int, cols: int) -> None:
    if _array(matrix.data, "data").ndim != 3:
        raise _Broken("data must have three dimensions")
    height, width = matrix.data.shape[1:]
    if not height or not width or rows % height or cols % width:
        raise _Broken(f"blocks of {height} x {width} do not divide {rows} x {cols}")
    _check_pointers(matrix, rows // height, cols // width, "BSR row", "a block's column")


def _check_pointers(matrix: Any, lines: int, width: int, kind: str, index: str) -> None:
    pointers, indices = _indices(matrix.indptr, "indptr"), _indices(matrix.indices, "indices")
    stored = min(len(indices), len(matrix.data))
    if (
        len(pointers) != lines + 1
        or pointers[0] != 0
        or pointers[-1] > stored
        or np.any(pointers[1:] < pointers[:-1])
    ):
        raise _Broken(f"indptr is no {kind} pointer")
    _check_range(indices[: pointers[-1]], width, index)


def _check_coo(matrix: Any, rows: int, cols: int) -> None:
    row, column = _indices(matrix.row, "row"), _indices(matrix.col, "col")
    if not len(row) == len(column) == len(_array(matrix.data, "data")) or matrix.data.ndim != 1:
        raise _Broken("row, col and data must have the same length")
    _check_range(row, rows, "a row index")
    _check_range(column, cols, "a column index")


def _check_dia(matrix: Any, rows: int, cols: int) -> None:
    offsets = _indices(matrix.offsets, "offsets")
    if _array(matrix.data, "data").ndim != 2 or len(offsets) != len(matrix.data):
        raise _Broken("data must have one row for each of the offsets")
    if len(np.unique(offsets)) != len(offsets):
        raise _Broken("a diagonal occurs twice")
    if len(offsets) and (offsets.min() < -rows or offsets.max() > cols):
        raise _Broken(f"a diagonal lies outside {rows} x {cols}")


def _check_lil(matrix: Any, rows: int, cols: int) -> None:
    columns, values = matrix.rows, matrix.data
    if columns.shape != (rows,) or values.shape != (rows,):
        raise _Broken("rows and data must have one list for each row")
    for own_columns, own_values in zip(columns, values, strict=True):
        if type(own_columns) is not list or type(own_values) is not list:
            raise _Broken("rows and data must contain lists")
        if len(own_columns) != len(own_values):
            raise _Broken("rows and data must have lists of the same length")
        if own_columns and (min(own_columns) < 0 or max(own_columns) >= cols):
            raise _Broken(f"a column index lies outside 0..{cols - 1}")


def _check_dok(matrix: Any, rows: int, cols: int) -> None:
    for row, column in matrix.keys():  # noqa: SIM118 - iterating over the matrix is something else
        if not (0 <= row < rows and 0 <= column < cols):
            raise _Broken(f"the key ({row}, {column}) lies outside {rows} x {cols}")


_CHECKS: dict[str, Callable[[Any, int, int], None]] = {
    "csr": _check_csr,
    "csc": _check_csc,
    "bsr": _check_bsr,
    "coo": _check_coo,
    "dia": _check_dia,
    "lil": _check_lil,
    "dok": _check_dok,
}


def _array(value: Any, what: str) -> Any:
    if not isinstance(value, np.ndarray):
        raise _Broken(f"{what} is a {type(value).__name__}, not an array")
    return value


def _indices(value: Any, what: str) -> Any:
    array = _array(value, what)
    if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
        raise _Broken(f"{what} must be a list of whole numbers, got {array.dtype} {array.shape}")
    return array


def _check_range(indices: Any, width: int, index: str) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= width):
        raise _Broken(f"{index} lies outside 0..{width - 1}")
