"""Arrays on disk: the layout is what the safetensors library reads, and bad headers are refused."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from labelgrove.disk.tensors import array_blocks, read_tensors, write_tensors
from labelgrove.errors import ConfigError, ModelFormatError

KINDS = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", ">f4", ">i8"]
SOME = {
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((0, 4), np.int8),
    "empty wide": np.zeros(0, np.float64),
    "mask": np.array([True, False, True]),
    "half": np.arange(5, dtype=np.float16),
    "columns": np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    "grün": np.arange(7, dtype=np.uint8)[::2],
}


def same(left, right):
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def test_the_safetensors_library_reads_our_files_and_we_read_its(tmp_path):
    file = tmp_path / "a.safetensors"
    digest = write_tensors(file, SOME)
    theirs = load_file(file)
    assert set(theirs) == set(SOME)
    assert all(same(theirs[name], SOME[name]) for name in SOME)
    assert digest == hashlib.sha256(file.read_bytes()).hexdigest()
    # Without padding to 64 bytes, and with its metadata.
    arrays = {name: np.ascontiguousarray(array) for name, array in SOME.items()}
    save_file(arrays, tmp_path / "a.safetensors", metadata={"made": "elsewhere"})
    ours = read_tensors(tmp_path / "a.safetensors")
    assert all(same(ours[name], arrays[name]) for name in arrays)


def test_arrays_are_aligned_read_only_views_without_copies(tmp_path):
    file = tmp_path / "a.safetensors"
    write_tensors(file, SOME)
    assert (8 + int.from_bytes(file.read_bytes()[:8], "little")) % 64 == 0
    for array in read_tensors(file).values():
        assert array.flags.aligned
        assert not array.flags.writeable
        assert not array.flags.owndata
        assert type(array) is np.ndarray


@given(
    array=st.sampled_from(KINDS).flatmap(
        lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
    ),
    order=st.sampled_from(["C", "F", "stepped"]),
)
def test_any_array_survives(tmp_path_factory, array, order):
    given_array = np.asfortranarray(array) if order == "F" else array
    if order == "stepped" and array.ndim:
        given_array = array[::-2]
    file = tmp_path_factory.mktemp("tensors") / "a.safetensors"
    write_tensors(file, {"x": given_array, "y": np.ones(3, np.int8)})
    expected = np.array(given_array, dtype=given_array.dtype.newbyteorder("<"), order="C")
    assert same(read_tensors(file)["x"], expected)
    assert same(load_file(file)["x"], expected)


def test_large_arrays_go_out_in_bounded_pieces(monkeypatch):
    monkeypatch.setattr("labelgrove.disk.tensors._BLOCK", 64)
    table = np.arange(600, dtype=np.int32).reshape(30, 20).T
    pieces = list(array_blocks(table))
    assert max(map(len, pieces)) <= 64 * 2
    assert b"".join(pieces) == table.tobytes()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.array(["a"])}, "dtype"),
        ({"x": np.array([object()])}, "dtype"),
        ({"x": np.zeros(2, complex)}, "dtype"),
        ({"x": [1, 2]}, "not an array"),
        ({"__metadata__": np.zeros(1)}, "cannot be the name"),
        ({"": np.zeros(1)}, "cannot be the name"),
        ({"\ud800": np.zeros(1)}, "cannot be the name"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path, arrays, message):
    pytest.raises(ConfigError, write_tensors, tmp_path / "a.safetensors", arrays).match(message)
    assert not list(tmp_path.iterdir())


def crafted(folder, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    file = folder / "crafted.safetensors"
    file.write_bytes(size.to_bytes(8, "little") + text + data)
    return file


def entry(dtype="U8", shape=(2,), offsets=(0, 2)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"x": entry("BF16", (1,))}, b"12", "unknown dtype"),
        ({"x": entry(["U8"])}, b"12", "unknown dtype"),
        ({"x": entry(offsets=(0, 3))}, b"12", "does not fit"),
        ({"x": entry(shape=(3,), offsets=(0, 3))}, b"12", "does not fit"),
        ({"x": entry(offsets=(2, 0))}, b"12", "does not fit"),
        ({"x": entry(shape=(-2,))}, b"12", "shape"),
        ({"x": entry(shape=(2.0,))}, b"12", "shape"),
        ({"x": entry(shape=(True, 2))}, b"12", "shape"),
        ({"x": entry(shape=[1] * 40 + [2])}, b"12", "shape"),
        ({"x": entry("F64", (0, 1 << 62), (0, 0))}, b"", "shape"),
        ({"x": entry(offsets=(0,))}, b"12", "data_offsets"),
        ({"x": entry(offsets="02")}, b"12", "data_offsets"),
        ({"x": entry(), "y": entry()}, b"12", "overlap"),
        ({"x": entry(), "y": entry(offsets=(1, 3))}, b"123", "overlap"),
        ({"x": entry(), "y": entry(offsets=(3, 5))}, b"12345", "gap"),
        ({"x": entry()}, b"123", "belong to no array"),
        ({"x": 3}, b"", "not described"),
        ({"x": {"dtype": "U8"}}, b"", "not described"),
        ([], b"", "not an object"),
        (b'{"x": 1, "x": 2}', b"", "occurs twice"),
        (b'{"\xff": 1}', b"", "not valid JSON"),
        (b"[" * 100_000, b"", "not valid JSON"),
        (b'{"x": ' + b"9" * 5000 + b"}", b"", "not valid JSON"),
    ],
)
def test_impossible_headers_are_refused(tmp_path, header, data, message):
    file = crafted(tmp_path, header, data)
    with pytest.raises(ModelFormatError, match=message) as caught:
        read_tensors(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("length", [100, 1 << 40, (1 << 64) - 1])
def test_what_is_too_short_for_its_header_is_refused(tmp_path, length):
    file = crafted(tmp_path, {}, length=length)
    for content in (file.read_bytes(), b"", b"1234567"):
        file.write_bytes(content)
        pytest.raises(ModelFormatError, read_tensors, file).match("not a safetensors file")


def test_a_file_that_is_not_there_is_a_damaged_model(tmp_path):
    with pytest.raises(ModelFormatError, match=r"gone\.safetensors: cannot be read"):
        read_tensors(tmp_path / "gone.safetensors")
