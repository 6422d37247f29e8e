"""Label tables and logits: over all rows, or over each document's shortlist of rows.

A table is anything with ``weight`` (rows x width), ``bias`` (or None), and ``rows(ids)`` and
``biases(ids)``, which return those of distinct rows as tensors that take gradients.
:class:`LabelTable` is the plain one, whose gradient is as large as the table. In a ``RowTable``
(``rows.py``) an update touches only the rows in use.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import Float32
from labelgrove.errors import ConfigError

Number = TypeVar("Number", int, float)

# If all lists together are this many times as long as the table, they use most of its rows. Then
# finding and copying the rows in use costs more than multiplying with all of them.
LISTS_PER_TABLE = 4


@runtime_checkable
class Rows(Protocol):
    """What a head needs of a label table."""

    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...

    def rows(self, ids: Tensor, /) -> Tensor: ...

    def biases(self, ids: Tensor, /) -> Tensor: ...


class LabelTable(nn.Module):
    """One weight vector per row, and a bias; gradients are as large as the table."""

    bias: nn.Parameter | None

    def __init__(self, rows: int, width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, width))
        nn.init.xavier_uniform_(self.weight)
        if bias:
            self.bias = nn.Parameter(torch.zeros(rows))
        else:
            self.register_parameter("bias", None)

    def rows(self, ids: Tensor) -> Tensor:
        """The weights of some rows."""
        return self.weight.index_select(0, ids)

    def biases(self, ids: Tensor) -> Tensor:
        """The biases of some rows; 0 if the table has none."""
        return (
            self.weight.new_zeros(len(ids)) if self.bias is None else self.bias.index_select(0, ids)
        )


def log_odds(counts: npt.ArrayLike, documents: npt.ArrayLike) -> Tensor:
    """Logits of smoothed frequencies, which are finite even for a count of 0 or of all.

    A head whose biases start here does not have to learn first that nearly all labels are absent.
    Adam moves a bias by its learning rate per update, so that would take thousands of updates.

    >>> log_odds(np.array([0, 50]), 99)
    tensor([-5.3033,  0.0000])
    """
    share = (np.asarray(counts, np.float64) + 0.5) / (np.asarray(documents) + 2.0)
    return torch.as_tensor(np.log(share / (1 - share)), dtype=torch.float32)


def as_numpy(values: Tensor) -> Float32:
    """A float32 array of a weight, without its gradient."""
    array: Float32 = values.detach().float().cpu().numpy()
    return array


class TopLabels(NamedTuple):
    """The best label columns per document and their scores, best first; -1 is no label."""

    columns: Tensor
    scores: Tensor


def top_labels(scores: Tensor, columns: Tensor | None, mask: Tensor | None, k: int) -> TopLabels:
    """The ``k`` best scores per row with their label columns; equal scores in any order.

    ``columns`` has the label of each score (None: score j is of label j). A row with too few
    candidates ends with column -1 and score 0; the result may be narrower than ``k``.
    """
    scores = scores.float()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    values, places = scores.topk(min(k, scores.shape[1]), dim=1)
    real = values > -torch.inf
    labels = places if columns is None else columns.gather(1, places)
    return TopLabels(labels.masked_fill(~real, -1), values.masked_fill(~real, 0.0))


def full_logits(hidden: Tensor, table: Rows) -> Tensor:
    """Logits of every row of the table: documents x rows, in float32."""
    weight, bias = table.weight, table.bias
    if torch.is_grad_enabled() and not isinstance(table, LabelTable):
        # Such a table takes gradients only on the rows it hands out, even if these are all rows.
        everything = torch.arange(len(weight), device=weight.device)
        weight = table.rows(everything)
        bias = None if bias is None else table.biases(everything)
    return functional.linear(hidden, weight.to(hidden.dtype), bias).float()


def shortlist_logits(hidden: Tensor, table: Rows, ids: Tensor, mask: Tensor) -> Tensor:
    """Logits of the rows ``ids`` (documents x candidates) in float32; meaningless off the mask.

    A plain table of which the batch needs a large part is multiplied as a whole. Of others, only
    the rows that the batch needs are read, which waits for the device to learn how many these are.
    Both give the same logits; rows on no list get no gradient (of the whole table, zeros).
    """
    if isinstance(table, LabelTable) and ids.numel() >= LISTS_PER_TABLE * len(table.weight):
        return full_logits(hidden, table).gather(1, ids)
    used, places = used_rows(ids, mask, len(table.weight))
    weights = table.rows(used)
    bias = None if table.bias is None else table.biases(used)
    return functional.linear(hidden, weights, bias).gather(1, places).float()


def used_rows(ids: Tensor, mask: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The distinct ``ids`` under the mask, ascending, and where each of ``ids`` is among them."""
    # Marking rows is faster than sorting the lists, which repeat each row many times.
    present = torch.zeros(rows + 1, dtype=torch.bool, device=ids.device)
    present[ids.masked_fill(~mask, rows)] = True
    present[rows] = False
    numbers = present.cumsum(0, dtype=torch.int32).sub_(1)
    places = numbers[ids].long().masked_fill(~mask, 0)
    used = present.nonzero().squeeze(1)
    return (used if len(used) else used.new_zeros(1)), places


def per_level(value: Number | list[Number], levels: int, name: str) -> list[Number]:
    """A list of one value per level; a single value serves all levels."""
    values = list(value) if isinstance(value, list) else [value] * levels
    if len(values) != levels:
        raise ConfigError(
            f"heads.{name}: must have {levels} values, one per level, got {len(values)}"
        )
    return values
