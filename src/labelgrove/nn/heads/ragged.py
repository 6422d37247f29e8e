"""The labels of a batch of documents: lists of different lengths as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

NO_NODE = 2**62  # fills rows of true nodes; larger than any node, so that sorted rows end with it
WIDTH_MULTIPLE = 8  # lists are as wide as a multiple of this, so that shapes recur


@dataclass(frozen=True)
class RaggedLabels:
    """The label columns of a batch of documents, row after row.

    ``width`` is at least the longest row. It is known where the batch is put together, so that the
    device need not be asked for it.

    >>> RaggedLabels.from_rows([[4, 2], [], [7]]).indptr.tolist()
    [0, 2, 2, 3]
    """

    indptr: Tensor
    indices: Tensor
    width: int

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedLabels:
        """From one list of columns per document.

        >>> RaggedLabels.from_rows([[4, 2], [7]]).indices.tolist()
        [4, 2, 7]
        """
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        flat = [column for row in rows for column in row]
        return cls.from_arrays(indptr, np.array(flat, np.int64))

    @classmethod
    def from_csr(cls, matrix: Any) -> RaggedLabels:
        """From some rows of a CSR matrix; its values are not looked at.

        >>> from scipy import sparse
        >>> RaggedLabels.from_csr(sparse.csr_array([[0, 1], [1, 0]])).indices.tolist()
        [1, 0]
        """
        return cls.from_arrays(matrix.indptr, matrix.indices)

    @classmethod
    def from_arrays(cls, indptr: Any, indices: Any) -> RaggedLabels:
        """From the arrays of a CSR matrix.

        >>> RaggedLabels.from_arrays(np.array([0, 1]), np.array([3])).width
        8
        """
        pointers = np.asarray(indptr, np.int64)
        longest = int(np.diff(pointers).max(initial=1))
        return cls(
            torch.from_numpy(pointers),
            torch.from_numpy(np.asarray(indices, np.int64)),
            round_up(longest),
        )

    @property
    def batch(self) -> int:
        """Number of documents.

        >>> RaggedLabels.from_rows([[4], []]).batch
        2
        """
        return len(self.indptr) - 1

    def to(self, device: torch.device | str) -> RaggedLabels:
        """The same labels on another device.

        >>> RaggedLabels.from_rows([[4]]).to("cpu").indices.tolist()
        [4]
        """
        return RaggedLabels(
            self.indptr.to(device, non_blocking=True),
            self.indices.to(device, non_blocking=True),
            self.width,
        )

    def pin(self) -> RaggedLabels:
        """The same labels in memory that a GPU can read by itself."""
        return RaggedLabels(self.indptr.pin_memory(), self.indices.pin_memory(), self.width)

    def padded(self) -> Tensor:
        """Documents x width, each row as it is, then ``NO_NODE``.

        >>> (RaggedLabels.from_rows([[4, 2], [7]]).padded()[:, :3] < NO_NODE).tolist()
        [[True, True, False], [True, False, False]]
        """
        starts = self.indptr[:-1]
        rows = torch.repeat_interleave(
            torch.arange(self.batch, device=starts.device),
            self.indptr[1:] - starts,
            output_size=len(self.indices),
        )
        places = torch.arange(len(self.indices), device=starts.device) - starts[rows]
        out = starts.new_full((self.batch, self.width), NO_NODE)
        out[rows, places] = self.indices
        return out


def round_up(width: int) -> int:
    """The next multiple of ``WIDTH_MULTIPLE``, at least one of them.

    >>> round_up(9)
    16
    """
    return max(1, -(-width // WIDTH_MULTIPLE)) * WIDTH_MULTIPLE
