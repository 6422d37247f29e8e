"""Arrays in files: the same content as in memory, and nothing left of the files."""

import errno
import os

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import scratch as module
from labelgrove.core.scratch import ColumnLists, ListJoiner, Scratch, row_ranges
from labelgrove.errors import StorageError


def places(tmp_path):
    return [Scratch(), Scratch(tmp_path)]


def test_arrays_in_files_are_mapped_and_have_no_name(tmp_path):
    array = Scratch(tmp_path).empty(1000, np.float32)
    array[:] = np.arange(1000)
    assert isinstance(array.base, np.memmap)
    assert array.sum() == 499500
    assert os.name != "posix" or not list(tmp_path.iterdir())
    assert Scratch().empty(10, np.int8).base is None


def test_growing_arrays_are_the_blocks_one_after_another(tmp_path):
    blocks = [np.arange(5), np.zeros(0, np.int64), np.arange(3)[::-1]]
    for place in places(tmp_path):
        growing = place.growing(np.int64)
        for block in blocks:
            growing.append(block)
        assert growing.array().tolist() == [0, 1, 2, 3, 4, 2, 1, 0]
        empty = place.growing(np.float32).array()
        assert (len(empty), empty.dtype) == (0, np.float32)
    assert os.name != "posix" or not list(tmp_path.iterdir())

    growing = Scratch(tmp_path).growing(np.uint8)
    pytest.raises(TypeError, growing.append, np.array([300], np.uint16))
    growing.close()


def test_a_full_disk_is_an_error_with_the_folder(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "_reserve", full)
    pytest.raises(StorageError, Scratch(tmp_path).empty, 10, np.int64).match(str(tmp_path))


@pytest.mark.parametrize("entries", [1, 7, 1 << 22])
def test_joined_lists_are_the_columns_of_the_whole_matrix(tmp_path, monkeypatch, entries):
    monkeypatch.setattr(module, "MERGED_ENTRIES", entries)
    monkeypatch.setattr(module, "BLOCK_ROWS", 16)
    matrix = sparse.random_array((70, 12), density=0.2, rng=0, format="csr", dtype=np.float32)
    whole = matrix.tocsc()
    for place in places(tmp_path):
        joiner = ListJoiner(place)
        for rows in row_ranges(70):
            block = matrix[rows].tocsc()
            lists = ColumnLists(block.indptr.astype(np.int64), block.indices, block.data)
            joiner.add(lists, first=rows.start)
        indptr, rows_, values = joiner.joined()
        assert np.array_equal(indptr, whole.indptr)
        assert np.array_equal(rows_, whole.indices)
        assert np.array_equal(values, whole.data)
