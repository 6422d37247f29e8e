"""Content hashes: equal inputs have the same key on any machine, other inputs another one.

Stored stages of a run are found by these keys, so every value is hashed with its type and length:
``1``, ``1.0``, ``"1"`` and ``True`` differ, and so do ``["ab"]`` and ``["a", "b"]``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Array, check_structure
from labelgrove.core.late import SparseMatrix
from labelgrove.core.strings import StringTable
from labelgrove.disk.tensors import array_blocks
from labelgrove.errors import ConfigError

Hash: TypeAlias = "hashlib._Hash"

_CHUNK = 65_536  # strings joined at a time; part of the definition of the hash
_WIDENED = 1 << 20  # indices widened at a time


def content_hash(*objects: object) -> str:
    """SHA-256, in hex, of plain values, arrays, sparse matrices, string tables and dataclasses.

    Lists equal tuples and string tables, NumPy scalars Python numbers, and a component with
    ``state()`` that state. Dicts may have any order.
    """
    return _digest(list(objects), "input").hex()


def file_hash(file: Path) -> str:
    """SHA-256, in hex, of a file's content."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _digest(value: object, where: str) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return _leaf(b"none", b"")
    if isinstance(value, bool):
        return _leaf(b"bool", b"1" if value else b"0")
    if isinstance(value, int):
        return _leaf(b"int", hex(value).encode())
    if isinstance(value, float):
        return _leaf(b"float", struct.pack("<d", value))
    if isinstance(value, str):
        return _leaf(b"str", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bytes, bytearray)):
        return _leaf(b"bytes", value)
    if isinstance(value, np.ndarray):
        return _array(value, where)
    if isinstance(value, StringTable):
        return _table(value)
    if isinstance(value, Mapping):
        return _mapping(value, where)
    if isinstance(value, Sequence):
        return _sequence(value, where)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return _leaf(b"dataclass " + type(value).__name__.encode(), _mapping(fields, where))
    sparse = sys.modules.get("scipy.sparse")  # without it there is no sparse matrix to hash
    if sparse is not None and sparse.issparse(value):
        return _sparse(value)
    state = getattr(value, "state", None)
    if callable(state) and not isinstance(value, type):
        return _leaf(b"state " + type(value).__name__.encode(), _digest(state(), where))
    raise ConfigError(
        f"{where}: a {type(value).__name__} has no content hash; "
        "give plain values, arrays, sparse matrices, dataclasses or strings"
    )


def _leaf(tag: bytes, content: bytes | bytearray) -> bytes:
    # The tag ends at the first zero byte and the content at the end: nothing can be confused.
    digest = hashlib.sha256(tag + b"\0")
    digest.update(content)
    return digest.digest()


def _mapping(value: Mapping[str, object], where: str) -> bytes:
    pairs = [_digest(k, where) + _digest(item, f"{where}.{k}") for k, item in value.items()]
    return _leaf(b"mapping", b"".join(sorted(pairs)))


def _sequence(value: Sequence[object], where: str) -> bytes:
    digest = hashlib.sha256(b"strings\0")
    try:
        rest = iter(value)
        while chunk := list(islice(rest, _CHUNK)):
            _add_strings(digest, chunk)  # type: ignore[arg-type]
        return digest.digest()
    except TypeError:  # not all are strings
        digest = hashlib.sha256(b"sequence\0")
        for i, item in enumerate(value):
            digest.update(_digest(item, f"{where}[{i}]"))
        return digest.digest()


def _add_strings(digest: Hash, chunk: list[str]) -> None:
    joined = "".join(chunk)
    if joined.isascii():
        lengths, content = map(len, chunk), joined.encode("ascii")
    else:
        pieces = [string.encode("utf-8", "surrogatepass") for string in chunk]
        lengths, content = map(len, pieces), b"".join(pieces)
    _add_chunk(digest, np.fromiter(lengths, np.int64, len(chunk)), content)


def _table(value: StringTable) -> bytes:
    digest = hashlib.sha256(b"strings\0")
    for start in range(0, len(value), _CHUNK):
        offsets = value.offsets[start : start + _CHUNK + 1]
        content = np.ascontiguousarray(value.blob[offsets[0] : offsets[-1]])
        _add_chunk(digest, np.diff(offsets), content.data)
    return digest.digest()


def _add_chunk(digest: Hash, lengths: npt.NDArray[np.int64], content: bytes | memoryview) -> None:
    digest.update(struct.pack("<q", len(lengths)))
    _add_array(digest, lengths)
    digest.update(content)


def _array(value: Array, where: str) -> bytes:
    if value.dtype.kind in "OU":  # texts and labels come in such arrays too
        return _sequence(value.tolist(), where) if value.ndim else _digest(value.item(), where)
    if value.dtype.kind not in "biuf":
        raise ConfigError(f"{where}: an array of dtype {value.dtype} has no content hash")
    digest = hashlib.sha256(f"array {value.dtype.newbyteorder('<').str} {value.shape}\0".encode())
    _add_array(digest, value)
    return digest.digest()


def _add_array(digest: Hash, array: Array) -> None:
    for block in array_blocks(array):
        digest.update(block)


def _sparse(value: SparseMatrix) -> bytes:
    check_structure(value)
    csr = value.tocsr()
    used = int(csr.indptr[-1])
    digest = hashlib.sha256(f"csr {csr.dtype.newbyteorder('<').str} {csr.shape}\0".encode())
    # SciPy chooses the width of indices by size and history; the content is the same.
    for indices in (csr.indptr, csr.indices[:used]):
        for start in range(0, len(indices), _WIDENED):
            _add_array(digest, indices[start : start + _WIDENED].astype(np.int64))
    _add_array(digest, csr.data[:used])
    return digest.digest()
