"""Arrays on disk in the safetensors layout: written without a second copy, read by mapping.

The layout is eight bytes of header length, a JSON header, then the arrays one after another without
gaps. We pad the header so that the data starts on a 64-byte boundary, and write large item sizes
first, so that every array is aligned to its items and can be used in place.

Why not the package safetensors: it copies what it reads into the process's own memory, while mapped
files are shared by all workers of a service and need no time to load.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from labelgrove.core import jsonio
from labelgrove.core.arrays import Array
from labelgrove.core.jsonio import JsonObject
from labelgrove.errors import ConfigError, ModelFormatError

DType: TypeAlias = "np.dtype[np.generic]"

_CODES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
_DTYPES = {code: np.dtype(f"<{code[0].lower()}{int(code[1:]) // 8}") for code in _CODES}
_DTYPES["BOOL"] = np.dtype(bool)
_CODE_OF = {dtype: code for code, dtype in _DTYPES.items()}
_MAX_HEADER = 100_000_000  # the safetensors library's own limit
_MAX_DIMENSIONS = 32
_ALIGNMENT = 64
_BLOCK = 16 << 20


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> str:
    """Writes named arrays to a new file, syncs it to disk and returns its SHA-256."""
    header: JsonObject = {}
    position = 0
    ordered = _ordered(arrays, path)
    for name, array in ordered:
        end = position + array.nbytes
        header[name] = {
            "dtype": _CODE_OF[_little(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = jsonio.dump(header, where=path.name, indent=None)
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > _MAX_HEADER:
        raise ConfigError(f"{path.name}: {len(arrays):,} arrays are too many for one file")
    contents = chain.from_iterable(array_blocks(array) for _, array in ordered)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for block in chain([memoryview(len(text).to_bytes(8, "little") + text)], contents):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def read_tensors(path: Path) -> dict[str, Array]:
    """The arrays of a file as read-only views of one memory map.

    A header that does not describe the file exactly is a ModelFormatError.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header, start = _read_header(file, path, size)
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{path}: cannot be read ({error})") from error
    arrays: dict[str, Array] = {}
    for name, (dtype, shape, begin) in _checked_entries(header, path, size - start).items():
        array = np.ndarray(shape, dtype, buffer=mapped, offset=start + begin)
        if not array.flags.aligned:  # not in our own files; kernels cannot read such arrays
            array = array.copy()
            array.flags.writeable = False
        arrays[name] = array
    return arrays


def tensor_sizes(path: Path) -> dict[str, int]:
    """How many numbers each tensor of a file has, of any type, by its header alone."""
    with path.open("rb") as file:
        header, _ = _read_header(file, path, os.fstat(file.fileno()).st_size)
    header.pop("__metadata__", None)
    return {name: math.prod(entry["shape"]) for name, entry in header.items()}


def array_blocks(array: Array) -> Iterator[memoryview]:
    """An array's little-endian bytes in C order, in pieces that copy a few megabytes at most."""
    little = _little(array.dtype)
    if array.size == 0:
        return
    if array.flags.c_contiguous and array.dtype == little:
        flat = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(flat), _BLOCK):
            yield flat[start : start + _BLOCK]
    elif array.ndim and array.nbytes > _BLOCK and len(array) > 1:
        rows = max(1, len(array) * _BLOCK // array.nbytes)
        for start in range(0, len(array), rows):
            block = array[start : start + rows]
            yield from array_blocks(np.ascontiguousarray(block, dtype=little))
    else:
        yield from array_blocks(np.ascontiguousarray(array, dtype=little))


def _ordered(arrays: Mapping[str, Array], path: Path) -> list[tuple[str, Array]]:
    checked = []
    for name, given in arrays.items():
        array = np.asarray(given) if isinstance(given, np.generic) else given
        if not name or name == "__metadata__" or not name.isprintable():
            raise ConfigError(f"{path.name}: {name!r} cannot be the name of an array")
        if not isinstance(array, np.ndarray):
            raise ConfigError(f"{path.name}: {name} is a {type(array).__name__}, not an array")
        if _little(array.dtype) not in _CODE_OF:
            raise ConfigError(f"{path.name}: {name} has dtype {array.dtype}, which is not stored")
        checked.append((name, array))
    # Large items first: each array then starts at a multiple of its own item size.
    return sorted(checked, key=lambda item: (-item[1].itemsize, item[0]))


def _little(dtype: DType) -> DType:
    return dtype.newbyteorder("<")


def _read_header(file: BinaryIO, path: Path, size: int) -> tuple[JsonObject, int]:
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(_MAX_HEADER, size - 8):
        raise ModelFormatError(f"{path}: not a safetensors file, or cut off; copy it again")
    content = file.read(length)
    header = jsonio.parse(content, file=path)
    if not isinstance(header, dict):
        raise ModelFormatError(f"{path}: the safetensors header is not an object")
    return header, 8 + length


def _checked_entries(
    header: JsonObject, path: Path, data_size: int
) -> dict[str, tuple[DType, tuple[int, ...], int]]:
    """Name -> dtype, shape, begin; refuses arrays that do not fill the data exactly."""
    entries: dict[str, tuple[DType, tuple[int, ...], int]] = {}
    extents: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        where = f"{path}: array {name!r}"
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ModelFormatError(f"{where} is not described by dtype, shape and data_offsets")
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        if dtype is None:
            raise ModelFormatError(f"{where} has the unknown dtype {entry['dtype']!r}")
        shape, offsets = entry["shape"], entry["data_offsets"]
        if not _whole_numbers(shape) or len(shape) > _MAX_DIMENSIONS:
            raise ModelFormatError(f"{where} has an impossible shape")
        if not _whole_numbers(offsets) or len(offsets) != 2:
            raise ModelFormatError(f"{where} has impossible data_offsets")
        begin, end = offsets
        if end > data_size or end - begin != math.prod(shape) * dtype.itemsize:
            raise ModelFormatError(f"{where} does not fit its place in the file")
        # NumPy multiplies the other dimensions even where one is 0, and gives up past 2^63.
        if math.prod(max(n, 1) for n in shape) * dtype.itemsize >= 1 << 63:
            raise ModelFormatError(f"{where} has an impossible shape")
        entries[name] = (dtype, tuple(shape), begin)
        extents.append((begin, end))
    position = 0
    for begin, end in sorted(extents):
        if begin != position:
            raise ModelFormatError(f"{path}: arrays overlap or leave a gap at byte {position}")
        position = end
    if position != data_size:
        raise ModelFormatError(f"{path}: {data_size - position} bytes belong to no array")
    return entries


def _whole_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
