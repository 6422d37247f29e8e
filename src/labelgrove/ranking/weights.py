"""Weights in fewer bytes: what a model's sparse weights are stored as, and read as.

A weight is a child's number within its chunk and a value. Kernels read all forms where they lie, so
a model takes the same space on disk, in memory and in the caches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Float32, Int64
from labelgrove.errors import ConfigError
from labelgrove.ranking.solver import ChunkedWeights

Storage = Literal["float32", "float16", "int8"]
LARGEST_HALF = 65504.0
LARGEST_BYTE = 127


def compress(weights: ChunkedWeights, children: Int64, storage: Storage) -> ChunkedWeights:
    """The same level with its sparse weights stored as ``storage`` says.

    ``children[p] .. children[p+1]`` are the nodes below parent p. Children become bytes where no
    parent has more than 256 of them, whatever the storage.

    >>> level = ChunkedWeights(
    ...     chunk_rows=np.array([0, 1]), chunk_entries=np.array([0, 2]),
    ...     features=np.array([0], np.int32), row_start=np.array([0, 2], np.uint32),
    ...     children=np.array([0, 1], np.uint16), values=np.array([2, -0.5], np.float32),
    ...     bias=np.zeros(2, np.float32))
    >>> small = compress(level, np.array([0, 2]), "int8")
    >>> small.values.tolist(), single_values(small, np.array([0, 2])).tolist()
    ([127, -127], [2.0, -0.5])
    """
    if storage not in get_args(Storage):
        raise ConfigError(
            f"storage: must be one of {', '.join(get_args(Storage))}, got {storage!r}"
        )
    values = single_values(weights, children)
    changed: dict[str, npt.NDArray[Any]] = {"scales": np.zeros(0, np.float32)}
    if np.diff(children).max(initial=0) <= 256:
        changed["children"] = weights.children.astype(np.uint8, copy=False)
    if storage == "float16":
        values = np.clip(values, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)
    elif storage == "int8":
        nodes = entry_nodes(weights, children)
        largest = np.zeros(int(children[-1]), np.float32)
        np.maximum.at(largest, nodes, np.abs(values))
        changed["scales"] = largest / np.float32(LARGEST_BYTE)
        scale = np.where(largest > 0, changed["scales"], np.float32(1))[nodes]
        values = np.rint(values / scale).astype(np.int8)
    return replace(weights, values=values, **changed)


def single_values(weights: ChunkedWeights, children: Int64) -> Float32:
    """The values of a level's sparse weights in single precision, whatever they are stored as."""
    if weights.values.dtype != np.int8:
        return weights.values.astype(np.float32, copy=False)
    return weights.values * weights.scales[entry_nodes(weights, children)]


def entry_nodes(weights: ChunkedWeights, children: Int64) -> Int64:
    """The node that each of a level's sparse weights belongs to."""
    first: Int64 = np.repeat(children[:-1], np.diff(weights.chunk_entries))
    first += weights.children
    return first
