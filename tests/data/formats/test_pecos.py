"""Files of sparse matrices: what SciPy wrote is read, and small files cannot take much memory."""

import io
import zipfile

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import memory
from labelgrove.data.formats.pecos import read_npz
from labelgrove.errors import DataError, ResourceError

HUGE = 2**31 - 2


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia"])
@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_wrote_is_read(kind, compressed, tmp_path):
    matrix = sparse.coo_array(np.diag(np.arange(1.0, 5.0))).asformat(kind)
    sparse.save_npz(tmp_path / "a.npz", matrix, compressed=compressed)
    again = read_npz(tmp_path / "a.npz")
    assert again.format == kind
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())


@pytest.mark.parametrize(
    "matrix",
    [
        sparse.coo_array(([1.0], ([0], [0])), shape=(HUGE, 1)),
        sparse.coo_array(([1.0], ([0], [0])), shape=(1, HUGE)),
        sparse.csr_array(([1.0], [0], [0, 1]), shape=(1, HUGE)),
        sparse.csc_array(([1.0], [0], [0, 1]), shape=(HUGE, 1)),
        sparse.dia_array(([[1.0]], [0]), shape=(HUGE, HUGE)),
    ],
    ids=lambda matrix: f"{matrix.format} {matrix.shape}",
)
def test_a_small_file_with_a_huge_shape_is_refused(matrix, tmp_path):
    sparse.save_npz(tmp_path / "a.npz", matrix)
    assert (tmp_path / "a.npz").stat().st_size < 2000
    pytest.raises(DataError, read_npz, tmp_path / "a.npz").match(r"announces 2,147,483,646 \w+")


def header(shape, write=np.lib.format.write_array_header_1_0):
    file = io.BytesIO()
    write(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_both_versions_of_headers_are_read(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.eye(3)))
    with (
        zipfile.ZipFile(tmp_path / "a.npz") as old,
        zipfile.ZipFile(tmp_path / "b.npz", "w") as new,
    ):
        for name in old.namelist():
            second = header((3,), np.lib.format.write_array_header_2_0) + np.ones(3).tobytes()
            new.writestr(name, second if name == "data.npy" else old.read(name))
    np.testing.assert_array_equal(read_npz(tmp_path / "b.npz").toarray(), np.eye(3))


@pytest.mark.parametrize("shape", [(10**12,), (2, 10**12), (0, 1)])
def test_an_array_that_announces_more_than_it_has_is_refused(shape, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("data.npy", header(shape) + bytes(16))
    pytest.raises(DataError, read_npz, tmp_path / "a.npz").match("does not have the size that it")


def test_arrays_that_unpack_to_more_than_the_free_memory_are_refused(tmp_path, monkeypatch):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(np.ones((1000, 1000))))
    assert (tmp_path / "a.npz").stat().st_size < 100_000
    monkeypatch.setattr(memory, "available_memory", lambda: 1_000_000)
    pytest.raises(ResourceError, read_npz, tmp_path / "a.npz").match(r"a\.npz needs about 11")


def test_what_is_not_a_sparse_matrix_is_refused(tmp_path):
    np.savez(tmp_path / "dense.npz", a=np.ones(3))
    np.savez(tmp_path / "pickle.npz", a=np.array([{}], dtype=object))
    (tmp_path / "text.npz").write_text("text")
    (tmp_path / "empty.npz").touch()
    for file in tmp_path.iterdir():
        pytest.raises(DataError, read_npz, file).match("is not a sparse matrix saved by SciPy")


def test_a_small_file_that_unpacks_to_far_more_is_refused(tmp_path):
    ones = np.ones(10_000_000, np.float64)
    indices, indptr = np.zeros(len(ones), np.int32), np.arange(len(ones) + 1, dtype=np.int64)
    matrix = sparse.csr_array((ones, indices * 0, indptr * 0), shape=(len(ones), 1))
    sparse.save_npz(tmp_path / "a.npz", matrix)
    with pytest.raises(DataError, match=r"a\.npz: unpacks to more than .* MiB, though it has only"):
        read_npz(tmp_path / "a.npz")
