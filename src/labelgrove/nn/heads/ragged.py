"""The labels of a batch of documents: lists of different lengths as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.arrays import Int32, Int64, offsets
from labelgrove.nn.batches.padded import Movable

NO_NODE = 2**62  # pads rows of true nodes; larger than any node, so that it sorts to the end
WIDTH_MULTIPLE = 8  # widths of lists are multiples of this, so that shapes repeat


@dataclass(frozen=True)
class RaggedLabels(Movable):
    """The label columns of a batch of documents, row after row; no row is longer than ``width``.

    The width is computed where the batch is made, so that nobody has to ask the device for it.
    """

    indptr: Tensor
    indices: Tensor
    width: int

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> RaggedLabels:
        """From one list of columns per document."""
        flat = [column for row in rows for column in row]
        return cls.from_arrays(offsets([len(row) for row in rows]), np.array(flat, np.int64))

    @classmethod
    def from_arrays(cls, indptr: Int64, indices: Int32 | Int64) -> RaggedLabels:
        """From the arrays of a CSR matrix."""
        pointers = np.asarray(indptr, np.int64)
        longest = int(np.diff(pointers).max(initial=1))
        columns = torch.from_numpy(np.asarray(indices, np.int64))
        return cls(torch.from_numpy(pointers), columns, round_up(longest))

    def padded(self) -> Tensor:
        """Documents x width: the columns in the order of their row, then ``NO_NODE``."""
        starts, documents = self.indptr[:-1], len(self.indptr) - 1
        rows = torch.repeat_interleave(
            torch.arange(documents, device=starts.device),
            self.indptr[1:] - starts,
            output_size=len(self.indices),
        )
        places = torch.arange(len(self.indices), device=starts.device) - starts[rows]
        out = self.indices.new_full((documents, self.width), NO_NODE)
        out[rows, places] = self.indices
        return out


def round_up(width: int) -> int:
    """The next multiple of ``WIDTH_MULTIPLE``, at least one of them."""
    return max(1, -(-width // WIDTH_MULTIPLE)) * WIDTH_MULTIPLE
