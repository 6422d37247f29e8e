"""Broken sparse matrices of every kind are refused before SciPy follows their arrays."""

import contextlib
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr, check_structure
from labelgrove.errors import DataError

ARRAYS = {
    "csr": ("indptr", "indices", "data"),
    "csc": ("indptr", "indices", "data"),
    "coo": ("row", "col", "data"),
    "dia": ("offsets", "data"),
}
NUMBERS = st.sampled_from([-(2**31), -7, -2, -1, 0, 1, 2, 3, 4, 5, 6, 9, 100, 2**31 - 1])


def example(kind):
    dense = np.zeros((4, 6), np.float32)
    dense[[0, 0, 1, 3, 3], [0, 5, 2, 1, 4]] = [1, 2, 3, 4, 5]
    return sparse.coo_array(dense).asformat(kind)


def entries(matrix):
    """Row, column and value of all entries, by the book; raises where an array ends too early."""
    rows, cols = matrix.shape
    kind = matrix.format
    if kind == "coo":
        return list(zip(listed(matrix.row), listed(matrix.col), listed(matrix.data), strict=True))
    if kind == "dia":
        return [
            (column - offset, column, float(matrix.data[number, column]))
            for number, offset in enumerate(listed(matrix.offsets))
            for column in range(min(cols, matrix.data.shape[1]))
            if 0 <= column - offset < rows
        ]
    pointers, indices = listed(matrix.indptr), listed(matrix.indices)
    assert pointers[0] == 0 and len(pointers) == (cols if kind == "csc" else rows) + 1
    assert all(a <= b for a, b in itertools.pairwise(pointers))
    result = []
    for line, (first, last) in enumerate(itertools.pairwise(pointers)):
        for at in range(first, last):
            place = (line, indices[at])
            result.append((*(place[::-1] if kind == "csc" else place), float(matrix.data[at])))
    return result


def listed(array):
    assert array.ndim == 1
    return array.tolist()


@st.composite
def broken(draw):
    """A matrix of any kind with a few changes to its raw arrays, which may leave it sound."""
    kind = draw(st.sampled_from(sorted(ARRAYS)))
    matrix = example(kind)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(ARRAYS[kind]))
        array = getattr(matrix, name).copy()
        change = draw(st.sampled_from(["value", "shorter", "longer", "zeros", "dtype", "ndim"]))
        if change == "value" and len(array):
            number = np.int64(draw(NUMBERS)).astype(array.dtype)  # in a uint8, another number
            array[draw(st.integers(0, len(array) - 1))] = number
        elif change == "shorter":
            array = array[: draw(st.integers(0, len(array)))]
        elif change == "longer":
            array = np.concatenate([array, array[:2]])
        elif change == "zeros":
            array[-1:] = 0
        elif change == "dtype" and name != "data":
            array = array.astype(draw(st.sampled_from([np.int64, np.float32, np.uint8])))
        elif change == "ndim":
            array = array[None]
        try:
            setattr(matrix, name, array)
        except (ValueError, IndexError):  # SciPy refuses some changes itself
            continue
    return matrix


@given(broken())
def test_what_passes_the_check_has_only_entries_inside(matrix):
    try:
        check_structure(matrix)
    except DataError:
        return
    dense = np.zeros(matrix.shape, np.float64)
    rows, cols = matrix.shape
    for row, column, value in entries(matrix):
        assert 0 <= row < rows and 0 <= column < cols
        dense[row, column] += value
    with contextlib.suppress(DataError):  # SciPy refuses some arrays of different lengths itself
        np.testing.assert_allclose(as_csr(matrix).toarray(), dense, rtol=1e-6)


@pytest.mark.parametrize("kind", [*ARRAYS, "lil", "dok"])
def test_sound_matrices_pass(kind):
    check_structure(example(kind))
    check_structure(sparse.coo_array((3, 0)).asformat(kind))
    np.testing.assert_array_equal(as_csr(example(kind)).toarray(), example("csr").toarray())


def test_other_kinds_are_refused():
    pytest.raises(DataError, as_csr, example("bsr")).match("kind 'bsr' is not supported; use csr")


@pytest.mark.parametrize("kind", ["lil", "dok"])
def test_wrong_columns_of_lists_and_dicts_are_refused(kind):
    matrix = example(kind)
    if kind == "lil":
        matrix.rows[1] = [9]
    else:
        matrix._dict[(1, 9)] = 1.0
    pytest.raises(DataError, as_csr, matrix).match("not a valid sparse matrix|cannot convert")
