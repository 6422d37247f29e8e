"""The door to the kernels lets sound matrices in and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from labelgrove.core.arrays import (
    as_csr,
    csr_arrays,
    csr_from_arrays,
    csr_parts,
    entry_keys,
    entry_rows,
    matrix_parts,
    offsets,
    with_values,
)
from labelgrove.errors import DataError

Small = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5),
    elements=st.integers(-3, 3).map(float),
)


def broken(**arrays):
    """A 2 x 2 identity with some of its arrays replaced behind SciPy's back."""
    matrix = sparse.csr_array(np.eye(2, dtype=np.float32))
    for name, values in arrays.items():
        setattr(matrix, name, np.asarray(values))
    return matrix


@given(Small, st.sampled_from(["dense", "list", "csr", "csc", "coo", "lil", "csr_matrix"]))
def test_any_kind_of_matrix_keeps_its_values(dense, kind):
    if kind == "dense":
        matrix = dense
    elif kind == "list":
        matrix = dense.tolist()
        if not dense.shape[0]:
            return  # an empty list has no columns
    elif kind == "csr_matrix":
        matrix = sparse.csr_matrix(dense)
    else:
        matrix = sparse.coo_array(dense).asformat(kind) if dense.size else sparse.csr_array(dense)
    csr = as_csr(matrix)
    np.testing.assert_array_equal(csr.toarray(), dense)
    assert csr.dtype == np.float32
    parts = csr_parts(csr)
    assert (parts.indptr.dtype, parts.indices.dtype, parts.cols) == (
        np.int64,
        np.int32,
        dense.shape[1],
    )


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float64, np.longdouble])
def test_numbers_become_float32(dtype):
    assert as_csr(np.eye(2, dtype=dtype)).dtype == np.float32
    assert as_csr(sparse.csr_array(np.eye(2, dtype=dtype))).toarray().tolist() == [[1, 0], [0, 1]]


def test_duplicates_are_summed_and_sorted_without_touching_the_input():
    indices = np.array([2, 0, 2])
    data = np.array([1, 2, 3], np.float32)
    matrix = sparse.csr_array((data, indices, np.array([0, 3])), shape=(1, 3))
    csr = as_csr(matrix)
    assert csr.indices.tolist() == [0, 2]
    assert csr.data.tolist() == [2, 4]
    assert indices.tolist() == [2, 0, 2]
    assert matrix.indices.tolist() == [2, 0, 2]


def test_a_sound_matrix_is_not_copied_and_spare_room_at_its_end_is_cut_off():
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    assert np.shares_memory(as_csr(matrix).data, matrix.data)
    assert np.shares_memory(csr_parts(matrix).data, matrix.data)
    matrix = broken(indices=[0, 1, 99], data=np.array([1, 1, np.nan], np.float32))
    parts = csr_parts(matrix)
    assert (parts.indices.tolist(), parts.data.tolist()) == ([0, 1], [1, 1])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (5, "two dimensions"),
        ([1, 2], "two dimensions"),
        (np.zeros((1, 1, 1)), "two dimensions"),
        (sparse.coo_array(np.array([1, 2])), "two dimensions"),
        ([[1], [1, 2]], "rows of equal length"),
        ([["a"]], "must hold numbers"),
        ([[None]], "must hold numbers"),
        ([[1j]], "must hold numbers"),
        (sparse.csr_array(np.array([[1j]])), "must hold numbers"),
        (sparse.csr_array((1, 1 << 31)), "at most"),
        # SciPy itself corrupts memory when it sorts or converts these.
        (broken(indptr=[0, 5, 2]), "row pointer"),
        (broken(indptr=[0, 1 << 40, 2]), "row pointer"),
        (broken(indptr=[1, 1, 2]), "row pointer"),
        (broken(indptr=[0, 1, 3]), "row pointer"),
        (broken(indptr=[0, 2]), "row pointer"),
        (broken(data=np.ones(1, np.float32)), "row pointer"),
    ],
)
def test_what_is_not_a_matrix_is_refused_by_name(matrix, message):
    with pytest.raises(DataError, match=message) as caught:
        as_csr(matrix, name="features")
    assert "features" in str(caught.value)


def test_pointers_whose_differences_overflow_are_refused():
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    matrix.indptr = np.array([0, 2**63 - 1, -2, 3])
    pytest.raises(DataError, csr_parts, matrix).match("row pointer")


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (broken(indptr=[0, 5, 2]), "row pointer"),
        (broken(indptr=[0, 1, 9]), "shorter than indptr|row pointer"),
        (broken(data=np.ones(1, np.float32)), "shorter than indptr|row pointer"),
        (broken(indices=[0, 2]), "outside 0..1"),
        (broken(indices=[-1, 1]), "outside 0..1"),
        (broken(indices=[1 << 32, 1]), "outside 0..1"),  # would wrap to 0 as int32
        (broken(data=[1, np.nan]), "NaN or infinity"),
        (broken(data=[1, 1e300]), "NaN or infinity"),
        (broken(indptr=[0, 2, 2], indices=[1, 0]), "sorted and unique"),
        (broken(indptr=[0, 2, 2], indices=[1, 1]), "sorted and unique"),
    ],
)
def test_parts_that_would_mislead_kernels_are_refused(matrix, message):
    with np.errstate(over="ignore"):
        pytest.raises(DataError, csr_parts, matrix, name="labels").match(f"labels: .*({message})")
        if message != "sorted and unique":  # the other way sorts a copy
            pytest.raises(DataError, matrix_parts, matrix).match(message)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csr_array])
def test_matrix_parts_are_those_of_the_longer_way(make, index):
    matrix = make(
        sparse.random_array((7, 9), density=0.4, rng=np.random.default_rng(0), dtype="f4")
    )
    matrix.indptr = matrix.indptr.astype(index)
    for one, other in zip(matrix_parts(matrix), csr_parts(as_csr(matrix)), strict=True):
        assert np.array_equal(one, other)
    assert matrix_parts(matrix).indptr.dtype == np.int64


def test_matrix_parts_sort_a_copy():
    matrix = broken(indptr=np.array([0, 2, 2], "i4"), indices=np.array([1, 0], "i4"))
    assert matrix_parts(matrix).indices.tolist() == [0, 1]
    assert matrix.indices.tolist() == [1, 0]


def test_offsets_begin_at_zero_and_count_flags():
    assert offsets([2, 0, 3]).tolist() == [0, 2, 2, 5]
    assert offsets([]).tolist() == [0]
    flags = offsets(np.array([True, False, True]))
    assert flags.tolist() == [0, 1, 1, 2] and flags.dtype == np.int64


def test_rows_and_patterns_of_entries():
    matrix = as_csr([[0, 2, 3], [0, 0, 0], [4, 0, 0]])
    assert entry_rows(matrix).tolist() == [0, 0, 2]
    assert entry_keys(matrix).tolist() == np.flatnonzero(matrix.toarray()).tolist()
    assert with_values(matrix, 7).toarray().tolist() == [[0, 7, 7], [0, 0, 0], [7, 0, 0]]
    assert with_values(matrix, np.array([1.0, 0.0, 5.0])).data.tolist() == [1, 0, 5]
    assert matrix.data.tolist() == [2, 3, 4]


def test_stored_arrays_give_the_matrix_back():
    matrix = as_csr([[0, 2], [1, 0], [0, 0]])
    arrays = csr_arrays(matrix, "x")
    assert set(arrays) == {"x.indptr", "x.indices", "x.data", "x.shape"}
    again = csr_from_arrays(arrays, "x")
    assert again.shape == (3, 2) and (again != matrix).nnz == 0
    assert again.indices.dtype == np.int32
