"""Texts that are nearly the same, by a small sketch of each text (MinHash).

A sketch has the smallest hash of runs of eight characters in each of 32 bins. Two texts agree in
about the share of bins that is the share of their runs that both have. It works for any script.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from labelgrove.core.late import sparse
from labelgrove.core.nfc import nfc

CHARACTERS = 2000  # of a text, from its beginning
SIMILAR = 0.8  # share of bins in which nearly equal texts agree
_RUN, _LENGTHS, _BINS = 8, (1, 2, 4), 32
_EMPTY = 0  # the value of a bin without a hash
_ROTATIONS, _SORTED_BY = 8, 6
_BIN_BITS = np.uint64(59)  # the first five bits of a hash are its bin
_EDGES = np.arange(_BINS, dtype=np.uint64) << _BIN_BITS
_FACTOR, _MIXER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)

# Only so many documents of a part are compared: that takes seconds, and 128 bytes each.
COMPARED = 200_000

UInt32 = npt.NDArray[np.uint32]


class Texts:
    """Texts of a part as hashes and sketches; ``known`` are those of another part."""

    def __init__(self, others: Texts | None = None) -> None:
        self.repeated = 0  # texts that are the same as an earlier one
        self.known = 0  # texts that are the same as one of the others
        self._others = others
        self._hashes: set[bytes] = set()
        self._sketches: dict[bytes, UInt32] = {}

    def add(self, text: str) -> None:
        """Counts a text, which is not empty."""
        key = digest(text)
        if self._others is not None:
            self.known += key in self._others._hashes
        if key in self._hashes:
            self.repeated += 1
            return
        self._hashes.add(key)
        if len(self._sketches) < COMPARED:
            self._sketches[key] = sketch(text)

    def similar(self) -> int:
        """How many of the different texts are nearly the same as another one, less one of each."""
        rows = list(self._sketches.values())
        return len(rows) - len(set(similar_groups(np.stack(rows)).tolist())) if rows else 0

    def similar_to_known(self) -> int:
        """How many of the different texts are nearly the same as one of the others."""
        assert self._others is not None
        theirs = list(self._others._sketches.values())
        own = [row for key, row in self._sketches.items() if key not in self._others._hashes]
        if not theirs or not own:
            return 0
        groups = similar_groups(np.stack([*theirs, *own]))
        return int(np.isin(groups[len(theirs) :], groups[: len(theirs)]).sum())


def digest(string: str) -> bytes:
    """A hash of eight bytes."""
    return hashlib.blake2b(string.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def sketch(text: str) -> UInt32:
    """32 numbers; case, white space and how accents are spelled make no difference."""
    plain = " ".join(nfc(text[:CHARACTERS]).casefold().split()).ljust(_RUN)
    hashes = np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    for length in _LENGTHS:  # from the hashes of runs to those of runs twice as long
        hashes = hashes[:-length] * _FACTOR + (hashes[length:] ^ _MIXER)
        hashes ^= hashes >> np.uint64(32)
    runs = len(hashes)
    hashes *= _FACTOR
    hashes.sort()
    starts = np.searchsorted(hashes, _EDGES)
    smallest = hashes[np.minimum(starts, runs - 1)]
    inside = (starts < runs) & (smallest >> _BIN_BITS == _EDGES >> _BIN_BITS)
    values = (smallest >> np.uint64(27)).astype(np.uint32) | np.uint32(1)
    return np.where(inside, values, np.uint32(_EMPTY))


def similar_groups(sketches: UInt32) -> npt.NDArray[np.int64]:
    """The number of each text's group: texts of a group are joined by pairs that are similar.

    Pairs are looked for among neighbours in several sorted orders, so some can be missed. Texts
    with the same sketch are always in one group.

    >>> texts = ["The same few words, here.", "the  same few words, here.", "Something else"]
    >>> similar_groups(np.stack([sketch(text) for text in texts])).tolist()
    [0, 0, 1]
    """
    count = len(sketches)
    columns = np.ascontiguousarray(sketches).view(np.uint64)
    pairs = []
    for rotation in range(_ROTATIONS):
        first = rotation * columns.shape[1] // _ROTATIONS
        keys = np.roll(columns, -first, axis=1)[:, :_SORTED_BY]
        order = np.lexsort(keys.T[::-1])
        one, other = sketches[order[:-1]], sketches[order[1:]]
        filled = (one != _EMPTY) | (other != _EMPTY)
        agreement = ((one == other) & filled).sum(axis=1) / np.maximum(filled.sum(axis=1), 1)
        near = agreement >= SIMILAR
        pairs.append(np.stack([order[:-1][near], order[1:][near]]))
    rows, others = np.concatenate(pairs, axis=1)
    graph = sparse.coo_array((np.ones(len(rows), np.int8), (rows, others)), (count, count))
    groups: npt.NDArray[np.int64] = sparse.csgraph.connected_components(graph, directed=False)[1]
    return groups
