"""Label tables and logits: over all rows, or over each document's shortlist of rows.

A table is anything with ``weight`` (rows x width), ``bias`` (or None), and ``rows(ids)`` and
``biases(ids)``, which give those of distinct rows as tensors that take gradients.
:class:`LabelTable` is the plain one, with a gradient of its own size; a table whose optimiser
touches only the rows in use has the same names.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.errors import ConfigError

Number = TypeVar("Number", int, float)
LogitForm: TypeAlias = Literal["auto", "union", "gather", "full"]

# Lists that are together so many times as long as the table use most of it: then marking, copying
# and picking out the rows in use costs more than multiplying with them all.
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
    """One weight vector per row, and a bias; gradients are as large as the table.

    >>> LabelTable(5, 3).rows(torch.tensor([1, 4])).shape
    torch.Size([2, 3])
    """

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
        """The weights of some rows.

        >>> LabelTable(5, 3, bias=False).rows(torch.tensor([2])).shape
        torch.Size([1, 3])
        """
        return self.weight.index_select(0, ids)

    def biases(self, ids: Tensor) -> Tensor:
        """The biases of some rows, 0 where the table has none.

        >>> LabelTable(5, 3).biases(torch.tensor([2])).tolist()
        [0.0]
        """
        return (
            self.weight.new_zeros(len(ids)) if self.bias is None else self.bias.index_select(0, ids)
        )


def log_odds(counts: Any, documents: Any) -> Tensor:
    """Logits of how often something occurs, a little towards rare: 0 and all are finite, too.

    A head whose biases begin here does not have to learn first that nearly all labels are absent.
    Adam moves a bias by its learning rate per update, so that took thousands of them.

    >>> log_odds(np.array([0, 50]), 99)
    tensor([-5.3033,  0.0000])
    """
    share = (np.asarray(counts, np.float64) + 0.5) / (documents + 2.0)
    return torch.as_tensor(np.log(share / (1 - share)), dtype=torch.float32)


class TopLabels(NamedTuple):
    """The best label columns per document and their scores, best first; column -1 is no label."""

    columns: Tensor
    scores: Tensor


class NodeLogit(NamedTuple):
    """A node on the way to a label: its number, the documents' logits and these logits' bias.

    ``level`` counts from 1; ``counts`` says whether the node's probability enters the score.
    """

    level: int
    node: int
    nodes: int
    logit: Tensor
    bias: float
    counts: bool


def top_labels(scores: Tensor, columns: Tensor | None, mask: Tensor | None, k: int) -> TopLabels:
    """The ``k`` best scores per row with their label columns; equal scores in any order.

    ``columns`` names the labels of the scores (None: as they are numbered). A row with fewer than
    ``k`` candidates ends with column -1 and score 0; the result may be narrower than ``k``.

    >>> top_labels(torch.tensor([[0.2, 0.7]]), torch.tensor([[5, 3]]), None, 1).columns.tolist()
    [[3]]
    """
    scores = scores.float()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    values, places = scores.topk(min(k, scores.shape[1]), dim=1)
    real = values > -torch.inf
    labels = places if columns is None else columns.gather(1, places)
    return TopLabels(labels.masked_fill(~real, -1), values.masked_fill(~real, 0.0))


def full_logits(hidden: Tensor, table: Rows) -> Tensor:
    """Logits of every row of the table: documents x rows, in float32.

    >>> full_logits(torch.ones(2, 3), LabelTable(5, 3)).shape
    torch.Size([2, 5])
    """
    weight, bias = weight_and_bias(table)
    return functional.linear(hidden, weight.to(hidden.dtype), bias).float()


def weight_and_bias(table: Rows | nn.Linear) -> tuple[Tensor, Tensor | None]:
    """The whole table as tensors that take gradients where gradients are wanted.

    >>> weight_and_bias(LabelTable(5, 3))[0].requires_grad
    True
    """
    weight, bias = table.weight, table.bias
    if torch.is_grad_enabled() and not isinstance(table, (LabelTable, nn.Linear)):
        # A table that hands out rows takes gradients on these only, be they all of its rows.
        everything = torch.arange(len(weight), device=weight.device)
        weight = table.rows(everything)
        bias = None if bias is None else table.biases(everything)
    return weight, bias


def shortlist_logits(
    hidden: Tensor, table: Rows, ids: Tensor, mask: Tensor, *, form: LogitForm = "auto"
) -> Tensor:
    """Logits of the rows ``ids`` (documents x candidates) in float32; meaningless off the mask.

    ``union`` multiplies once with all rows that anyone in the batch needs and picks; it waits for
    the device once, to learn how many these are. ``gather`` looks up each document's own rows, with
    memory for documents x candidates x width. ``full`` multiplies with the whole table and picks:
    it never waits, and suits tables of which a batch needs a good part. ``auto`` takes ``full`` for
    these and ``union`` for others. All give the same logits, and no row that is not on a list gets
    a gradient (``full`` gives it zeros).

    >>> hidden, ids = torch.ones(1, 3), torch.tensor([[4, 0]])
    >>> shortlist_logits(hidden, LabelTable(5, 3), ids, torch.ones(1, 2, dtype=torch.bool)).shape
    torch.Size([1, 2])
    """
    if form == "auto":
        plain = isinstance(table, LabelTable)
        form = "full" if plain and ids.numel() >= LISTS_PER_TABLE * len(table.weight) else "union"
    if form == "full":
        return full_logits(hidden, table).gather(1, ids)
    if form == "gather" and isinstance(table, LabelTable):
        return _own_rows(hidden, table.weight, table.bias, ids)
    used, places = used_rows(ids, mask, len(table.weight))
    weights = table.rows(used)
    bias = None if table.bias is None else table.biases(used)
    if form == "gather":
        return _own_rows(hidden, weights, bias, places)
    return functional.linear(hidden, weights, bias).gather(1, places).float()


def used_rows(ids: Tensor, mask: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The distinct ``ids`` under the mask, ascending, and where each of ``ids`` is among them.

    >>> ids, mask = torch.tensor([[7, 2], [2, 0]]), torch.tensor([[True, True], [True, False]])
    >>> [part.tolist() for part in used_rows(ids, mask, 9)]
    [[2, 7], [[1, 0], [0, 0]]]
    """
    # Marking rows costs less than sorting the lists, which repeat each row many times.
    present = torch.zeros(rows + 1, dtype=torch.bool, device=ids.device)
    present[ids.masked_fill(~mask, rows)] = True
    present[rows] = False
    numbers = present.cumsum(0, dtype=torch.int32).sub_(1)
    places = numbers[ids].long().masked_fill(~mask, 0)
    used = present.nonzero().squeeze(1)
    return (used if len(used) else used.new_zeros(1)), places


def _own_rows(hidden: Tensor, weights: Tensor, bias: Tensor | None, ids: Tensor) -> Tensor:
    logits = torch.bmm(functional.embedding(ids, weights), hidden[:, :, None]).squeeze(-1).float()
    return logits if bias is None else logits + bias[ids]


def per_level(value: Number | list[Number], levels: int, name: str) -> list[Number]:
    """One value for each level.

    >>> per_level(5, 2, "kept")
    [5, 5]
    """
    values = list(value) if isinstance(value, list) else [value] * levels
    if len(values) != levels:
        raise ConfigError(f"heads.{name}: {levels} values wanted, one per level, got {len(values)}")
    return values
