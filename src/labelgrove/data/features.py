"""Features in two separate blocks: sparse terms and a dense vector, for documents or labels.

[tf-idf ; embedding] as one sparse matrix would store a column number with every number of the
embedding and lose the speed of dense products. Kernels read both blocks and add the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import (
    CSR,
    Array,
    CsrParts,
    MatrixLike,
    as_csr,
    checked_table,
    csr_arrays,
    csr_from_arrays,
    csr_parts,
    with_values,
)
from labelgrove.core.late import sparse
from labelgrove.errors import DataError

BLOCK_NUMBERS = 1 << 22  # numbers of a dense block that are processed at once

Rows: TypeAlias = npt.ArrayLike | slice  # numbers, a mask or a slice
DenseBlock = Array  # float32 or float16, contiguous rows; may be memory-mapped


class FeatureParts(NamedTuple):
    """Both blocks as kernels read them; a missing block has no columns."""

    sparse: CsrParts
    dense: DenseBlock

    @property
    def rows(self) -> int:
        return len(self.sparse.indptr) - 1


@dataclass(frozen=True)
class Features:
    """One row per document (or label) in a sparse block, a dense block, or both.

    >>> both = Features(sparse=[[1, 0], [0, 2]], dense=[[0.5], [0.25]])
    >>> both
    Features(2 rows, 2 sparse + 1 dense)
    >>> both.take([1]).to_csr().toarray()
    array([[0.  , 2.  , 0.25]], dtype=float32)
    """

    sparse: CSR | None = None
    dense: DenseBlock | None = None

    def __post_init__(self) -> None:
        if self.sparse is None and self.dense is None:
            raise DataError("features need a sparse or a dense block")
        if self.sparse is not None:
            object.__setattr__(self, "sparse", as_csr(self.sparse, name="features"))
        if self.dense is not None:
            object.__setattr__(self, "dense", as_dense(self.dense))
        if self.sparse is not None and self.dense is not None and self.sparse.shape[0] != len(self):
            raise DataError(
                f"the sparse block has {self.sparse.shape[0]} rows, the dense block {len(self)}"
            )

    def __len__(self) -> int:
        return int((self.sparse if self.dense is None else self.dense).shape[0])  # type: ignore[union-attr]

    def __repr__(self) -> str:
        return f"Features({len(self)} rows, {self.terms} sparse + {self.width} dense)"

    @property
    def terms(self) -> int:
        """Columns of the sparse block."""
        return 0 if self.sparse is None else int(self.sparse.shape[1])

    @property
    def width(self) -> int:
        """Columns of the dense block."""
        return 0 if self.dense is None else int(self.dense.shape[1])

    def take(self, rows: Rows) -> Features:
        """Some rows, in the order given: numbers, a slice or a mask."""
        return Features(
            None if self.sparse is None else self.sparse[rows],
            None if self.dense is None else self.dense[rows],  # type: ignore[index]
        )

    def normalised(self) -> Features:
        """Both blocks with rows of unit length, each by itself; zero rows stay zero."""
        terms, dense = self.sparse, self.dense
        if terms is not None:
            terms = with_values(terms, unit_values(terms.indptr, terms.data))
        if dense is not None:
            dense = np.asarray(dense, np.float32)
            lengths, scale = np.linalg.norm(dense, axis=1), np.zeros(len(dense), np.float32)
            np.divide(1.0, lengths, out=scale, where=lengths > 0, casting="same_kind")
            dense = dense * scale[:, None]
        return Features(terms, dense)

    def to_csr(self) -> CSR:
        """Both blocks side by side as one sparse matrix; large, for comparisons and exports."""
        blocks = [] if self.sparse is None else [self.sparse]
        if self.dense is not None:
            blocks.append(as_csr(np.asarray(self.dense, np.float32)))
        return as_csr(sparse.hstack(blocks, format="csr"))

    def parts(self, *, name: str = "features") -> FeatureParts:
        """Both blocks, checked, as kernels read them."""
        terms = as_csr(np.zeros((len(self), 0))) if self.sparse is None else self.sparse
        dense = np.zeros((len(self), 0), np.float32) if self.dense is None else self.dense
        if not all(np.isfinite(dense[block]).all() for block in row_blocks(dense)):
            raise DataError(f"{name}: the dense block contains NaN or infinity")
        return FeatureParts(csr_parts(terms, name=name), dense)

    def arrays(self, prefix: str) -> dict[str, Array]:
        """Named arrays of a Part; :meth:`from_arrays` reads them."""
        arrays = {} if self.sparse is None else csr_arrays(self.sparse, prefix)
        return arrays if self.dense is None else arrays | {f"{prefix}.dense": self.dense}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], prefix: str) -> Features:
        terms = csr_from_arrays(arrays, prefix) if f"{prefix}.indptr" in arrays else None
        return cls(terms, arrays.get(f"{prefix}.dense"))


def as_features(matrix: Features | MatrixLike, *, name: str = "features") -> Features:
    """A SciPy matrix as the sparse block, any other 2-d array as the dense one."""
    if isinstance(matrix, Features):
        return matrix
    if sparse.issparse(matrix):
        return Features(sparse=as_csr(matrix, name=name))
    return Features(dense=as_dense(matrix, name=name))


def with_dense(features: Features | None, dense: MatrixLike) -> Features:
    """Features with a dense block besides what they have."""
    if features is not None and features.dense is not None:
        raise DataError("there is a dense block already; leave out dense=")
    return Features(None if features is None else features.sparse, as_dense(dense, name="dense"))


def part_of(features: Features, rows: slice) -> Features:
    """Consecutive rows; the same object if these are all."""
    first, last, _ = rows.indices(len(features))
    return features if last - first == len(features) else features.take(slice(first, last))


def row_blocks(dense: DenseBlock) -> Iterator[slice]:
    """Slices of a few rows each, for work that needs memory besides the block itself."""
    step = max(1, BLOCK_NUMBERS // max(1, dense.shape[1]))
    return (slice(first, first + step) for first in range(0, len(dense), step))


def scaled_rows(dense: DenseBlock, scale: npt.NDArray[np.float64]) -> DenseBlock:
    """Rows times their scales, in the same precision."""
    scaled = np.empty_like(dense, subok=False)
    for block in row_blocks(dense):
        scaled[block] = dense[block] * scale[block, None]
    return scaled


def unit_values(indptr: Array, data: Array) -> npt.NDArray[np.float32]:
    """The values of a CSR matrix whose rows are scaled to unit length; zero rows stay zero."""
    unit = np.zeros(len(data), np.float32)
    for ends, values in _entry_blocks(indptr, data):
        lengths = _lengths(ends, values)
        lengths[lengths == 0] = 1
        unit[ends[0] : ends[-1]] = values / lengths.repeat(ends[1:] - ends[:-1])
    return unit


def row_lengths(indptr: Array, data: Array) -> npt.NDArray[np.float64]:
    blocks = _entry_blocks(indptr, data)
    return np.concatenate([np.zeros(0), *(_lengths(ends, values) for ends, values in blocks)])


def _lengths(ends: Array, values: Array) -> npt.NDArray[np.float64]:
    """Of rows in double precision, where squares do not overflow; the same bits in any block."""
    counts = ends[1:] - ends[:-1]
    squares = np.square(values, dtype=np.float64)
    rows = np.arange(len(counts)).repeat(counts)
    return np.sqrt(np.bincount(rows, squares, len(counts)))


def _entry_blocks(indptr: Array, data: Array) -> Iterator[tuple[Array, Array]]:
    """The ends of some rows of a CSR matrix at a time, and their values."""
    step = max(1, BLOCK_NUMBERS * len(indptr) // max(1, len(data)))
    for first in range(0, len(indptr) - 1, step):
        ends = indptr[first : first + step + 1]
        yield ends, data[ends[0] : ends[-1]]


def as_dense(matrix: MatrixLike, *, name: str = "features") -> DenseBlock:
    """A 2-d array as float32, or float16 if it is that already, with contiguous rows."""
    array = checked_table(matrix, name=name)
    return np.ascontiguousarray(array, np.float16 if array.dtype == np.float16 else np.float32)
