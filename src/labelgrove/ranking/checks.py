"""What weights must satisfy before kernels, which trust them, may read them."""

from __future__ import annotations

import numpy as np

from labelgrove.core.arrays import Int64
from labelgrove.errors import DataError
from labelgrove.ranking.solver import ChunkedWeights

_TYPES = {
    "chunk_rows": ("int64",),
    "chunk_entries": ("int64",),
    "features": ("int32",),
    "row_start": ("uint32",),
    "children": ("uint8", "uint16"),
    "values": ("float32", "float16", "int8"),
    "bias": ("float32",),
    "dense": ("float16",),
    "scales": ("float32",),
}


def check_chunks(
    weights: ChunkedWeights, children: Int64, *, features: int, width: int, where: str
) -> None:
    """Refuses arrays that do not fit each other: a damaged file must not crash the kernel.

    >>> wrong = ChunkedWeights(*(np.zeros(0) for _ in range(7)))
    >>> check_chunks(wrong, np.array([0, 2]), features=1, width=0, where="level 0")
    Traceback (most recent call last):
    ...
    labelgrove.errors.DataError: level 0: chunk_rows must be a list of int64, got float64 ...
    """
    for name, array in weights.arrays().items():
        if array.ndim != 1 or array.dtype.name not in _TYPES[name]:
            raise DataError(
                f"{where}: {name} must be a list of {' or '.join(_TYPES[name])}, "
                f"got {array.dtype} of shape {array.shape}"
            )
    parents = len(children) - 1
    rows, entries = len(weights.features), len(weights.values)
    sound = (
        len(weights.chunk_rows) == len(weights.chunk_entries) == parents + 1
        and weights.chunk_rows[0] == 0
        and weights.chunk_entries[0] == 0
        and weights.chunk_rows[-1] == rows
        and weights.chunk_entries[-1] == entries == len(weights.children)
        and len(weights.row_start) == rows + parents
        and len(weights.bias) == children[-1]
        and len(weights.dense) == children[-1] * width
        and len(weights.scales) == (children[-1] if weights.values.dtype == np.int8 else 0)
        and bool((np.diff(weights.chunk_rows) >= 0).all())
        and bool((np.diff(weights.chunk_entries) >= 0).all())
    )
    if not sound:
        raise DataError(f"{where}: the sizes of its arrays do not fit each other")
    if rows and not 0 <= weights.features.min() <= weights.features.max() < features:
        raise DataError(f"{where}: a feature lies outside 0..{features - 1}")
    first = weights.chunk_rows[:-1] + np.arange(parents)
    last = weights.chunk_rows[1:] + np.arange(parents)
    rising = weights.row_start[1:] > weights.row_start[:-1]
    rising[last[:-1]] = True  # from one chunk to the next
    ends = weights.row_start[last]
    if weights.row_start[first].any() or not rising.all():
        raise DataError(f"{where}: row_start must rise from 0 in every chunk")
    if not np.array_equal(ends, np.diff(weights.chunk_entries)):
        raise DataError(f"{where}: row_start does not fit chunk_entries")
    filled = np.flatnonzero(ends)
    highest = np.maximum.reduceat(weights.children, weights.chunk_entries[:-1][filled])
    if (highest >= np.diff(children)[filled]).any():
        raise DataError(f"{where}: a weight belongs to a child that its parent does not have")
