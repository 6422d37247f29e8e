"""Two blocks of features that travel together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import _native
from labelgrove.data import features
from labelgrove.data.features import (
    Features,
    as_dense,
    as_features,
    row_blocks,
    row_lengths,
    scaled_rows,
    unit_values,
    with_dense,
)
from labelgrove.errors import DataError

pytestmark = pytest.mark.kernel


@pytest.fixture
def both():
    random = np.random.default_rng(0)
    terms = sparse.csr_array(
        random.random((6, 9)) * (random.random((6, 9)) < 0.4), dtype=np.float32
    )
    return Features(sparse.csr_array(terms), random.normal(size=(6, 3)))


def test_blocks_must_fit():
    pytest.raises(DataError, Features, [[1.0]], [[1.0], [2.0]]).match("sparse block has 1 rows")
    pytest.raises(DataError, Features).match("a sparse or a dense block")
    assert repr(with_dense(None, [[1.0]])) == "Features(1 rows, 0 sparse + 1 dense)"
    with pytest.raises(DataError, match="2 rows, the dense block 1"):
        with_dense(Features(sparse=np.eye(2)), [[1.0]])
    with pytest.raises(DataError, match="dense block already"):
        with_dense(Features(dense=[[1.0]]), [[1.0]])


def test_rows_arrays_and_kinds_of_both_blocks(both):
    picked = both.take([4, 0])
    assert np.array_equal(picked.to_csr().toarray(), both.to_csr().toarray()[[4, 0]])
    mask = np.arange(6) % 2 == 0
    assert len(both.take(mask)) == 3
    again = Features.from_arrays(both.arrays("x"), "x")
    assert np.array_equal(again.to_csr().toarray(), both.to_csr().toarray())
    assert Features.from_arrays(Features([[1.0]]).arrays("x"), "x").dense is None
    assert as_features(both) is both
    assert as_features(both.sparse).dense is None
    assert as_features(both.dense).sparse is None

    assert both.parts().rows == 6
    assert Features(both.sparse).parts().dense.shape == (6, 0)
    assert Features(dense=both.dense).parts().sparse.cols == 0
    with pytest.raises(DataError, match="documents: the dense block contains NaN"):
        Features(dense=[[np.nan]]).parts(name="documents")


def test_each_block_gets_unit_length(both):
    unit = both.normalised()
    assert np.allclose(np.linalg.norm(unit.dense, axis=1), 1)
    lengths = np.linalg.norm(unit.sparse.toarray(), axis=1)
    assert np.allclose(lengths[lengths > 0], 1)
    assert not Features(dense=[[0.0, 0.0]]).normalised().dense.any()


def test_unit_values_of_any_size_sign_and_block(monkeypatch):
    rows = np.array([[3e38, -2e38, 0], [0, 0, 0], [1e-40, 0, -1e-40], [0, 0, 7]], np.float32)
    expected = (
        rows.astype(float) / np.maximum(np.linalg.norm(rows.astype(float), axis=1), 1e-99)[:, None]
    )
    matrix = sparse.csr_array(rows)
    unit = unit_values(matrix.indptr, matrix.data)
    np.testing.assert_allclose(unit, expected[rows != 0], rtol=1e-6)
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 1)
    assert unit_values(matrix.indptr, matrix.data).tobytes() == unit.tobytes()
    lengths = row_lengths(matrix.indptr, matrix.data)
    np.testing.assert_allclose(lengths, np.linalg.norm(rows.astype(float), axis=1))
    stored_zero = unit_values(np.array([0, 1, 1]), np.zeros(1, np.float32))
    assert stored_zero.tolist() == [0] and row_lengths(np.array([0]), np.zeros(0)).size == 0


@pytest.mark.parametrize("wrong", [[1.0], [["a"]], [[1.0], [1.0, 2.0]]])
def test_what_is_not_a_table_of_numbers_is_refused(wrong):
    pytest.raises(DataError, as_dense, wrong)


def test_half_precision_stays_half_precision_and_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float16))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    dense = Features(dense=mapped).dense
    assert dense.dtype == np.float16
    assert np.shares_memory(dense, mapped)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=40))
def test_kernels_round_to_the_nearest_half_and_read_it_exactly(values):
    singles = np.array(values, np.float32)
    halves = np.clip(singles, -65504, 65504).astype(np.float16)
    assert np.array_equal(_native.to_half(singles), halves.view(np.uint16))
    assert np.array_equal(_native.dense_rows(halves[None]), halves.astype(np.float32))


def test_nan_is_found_in_any_block_of_rows(monkeypatch):
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 4)
    dense = np.zeros((7, 3), np.float32)
    for row in range(7):
        broken = dense.copy()
        broken[row, row % 3] = np.nan
        with pytest.raises(DataError, match="x: the dense block contains NaN"):
            Features(dense=broken).parts(name="x")
    assert Features(dense=dense).parts().rows == 7


def test_blocks_of_rows_cover_all_rows_once():
    blocks = list(row_blocks(np.zeros((9, 1 << 20))))
    assert [len(range(9)[rows]) for rows in blocks] == [4, 4, 1]
    scaled = scaled_rows(np.ones((2, 1), np.float16), np.array([1.0, 3.0]))
    assert scaled.tolist() == [[1.0], [3.0]] and scaled.dtype == np.float16
