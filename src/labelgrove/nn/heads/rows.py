"""Label tables with millions of rows, of which an update reads and changes only a few.

A :class:`RowTable` hands out copies of the rows that a batch needs. The backward pass leaves
gradients on the copies, and a :class:`RowOptimizer` changes only these rows and their moments.
Nothing in an update has the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from labelgrove.nn.heads.row_step import RowStep

Combine = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of row ids and gradients


class RowTable(nn.Module):
    """A ``rows x width`` weight, optionally with a bias per row, trained row by row.

    The tensors are buffers: they are saved and moved with the model, but the optimiser of the dense
    parameters does not see them. A GPU draws millions of rows on ``device`` in a moment.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        rows: int,
        width: int,
        *,
        bias: bool = False,
        std: float = 0.02,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        weight = torch.empty(rows, width, device=device)
        if std > 0:
            weight.normal_(std=std, generator=generator)
        else:
            weight.zero_()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", torch.zeros(rows, device=device) if bias else None)
        self._read: list[tuple[str, Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.weight)

    def rows(self, ids: Tensor) -> Tensor:
        """The distinct rows ``ids``; the optimiser gets their gradients, added up over calls."""
        return self._gathered("weight", ids)

    def biases(self, ids: Tensor) -> Tensor:
        """The biases of the rows ``ids``, under the same rule."""
        return self._gathered("bias", ids)

    def pending(self, name: str = "weight") -> tuple[Tensor, Tensor]:
        """Ids and gradients since the last :meth:`clear`, each id once; may be empty."""
        copies = [(ids, copy.grad) for part, ids, copy in self._read if part == name]
        parts = [(ids, grad) for ids, grad in copies if grad is not None]
        if not parts:
            values = self.get_buffer(name)
            return torch.empty(0, dtype=torch.int64, device=values.device), values[:0]
        if len(parts) == 1:
            return parts[0]
        return sum_by_row(torch.cat([i for i, _ in parts]), torch.cat([g for _, g in parts]))

    def clear(self) -> None:
        """Forgets which rows were read."""
        self._read.clear()

    def _gathered(self, name: str, ids: Tensor) -> Tensor:
        copy = self.get_buffer(name).index_select(0, ids)
        if torch.is_grad_enabled():
            copy.requires_grad_()
            self._read.append((name, ids, copy))
        return copy


def sum_by_row(ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Each id once, in order, with the sum of its rows."""
    unique, places = torch.unique(ids, return_inverse=True)
    total = values.new_zeros((len(unique), *values.shape[1:]))
    return unique, total.index_add_(0, places, values)


def row_tables(model: nn.Module) -> dict[str, RowTable]:
    """The tables inside a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, RowTable)}


class RowOptimizer:
    """Adam on the rows that have gradients."""

    def __init__(self, tables: Mapping[str, RowTable]) -> None:
        self.updates = 0
        self._values: dict[str, Tensor] = {}
        self._state: dict[str, dict[str, Tensor]] = {}
        self._tables = dict(tables)
        self._gradients: dict[str, tuple[Tensor, Tensor]] = {}
        for name, table in self._tables.items():
            for part in ("weight", "bias") if table.bias is not None else ("weight",):
                values = table.get_buffer(part)
                self._values[f"{name}.{part}"] = values
                moments = {key: torch.zeros_like(values) for key in ("first", "second")}
                self._state[f"{name}.{part}"] = moments

    def collect(self, combine: Combine | None = None) -> None:
        """Takes over gradients; ``combine`` joins those of all processes."""
        for name, table in self._tables.items():
            for part in ("weight", "bias") if table.bias is not None else ("weight",):
                rows = table.pending(part)
                if combine is not None:
                    rows = combine(*rows)
                self._gradients[f"{name}.{part}"] = rows
            table.clear()

    def gradients(self) -> list[Tensor]:
        """The collected gradients, to be measured or scaled."""
        return [gradient for _, gradient in self._gradients.values() if len(gradient)]

    def step(self, step: RowStep) -> None:
        """Changes the collected rows; the optimiser itself counts its updates."""
        self.updates += 1
        step = replace(step, update=self.updates)
        without_decay = replace(step, weight_decay=0.0)
        with torch.no_grad():
            for name, (ids, gradient) in self._gradients.items():
                if len(ids):
                    own = without_decay if name.endswith(".bias") else step
                    self._change(self._values[name], self._state[name], ids, gradient, own)
        self._gradients.clear()

    def clear(self) -> None:
        """Drops the collected gradients."""
        self._gradients.clear()

    def state(self) -> dict[str, Tensor]:
        """Moments and counts by name; together with ``updates``, all there is to restore."""
        return {f"{n}.{key}": value for n, s in self._state.items() for key, value in s.items()}

    def _change(
        self, values: Tensor, state: dict[str, Tensor], ids: Tensor, gradient: Tensor, step: RowStep
    ) -> None:
        """AdamW, by one kernel."""
        if values.is_cuda:
            from labelgrove.nn.heads.row_kernel import change_rows  # brings a compiler along

            if change_rows(values, gradient, step, ids=ids, **state):
                return
        # The rows of a batch may be a gigabyte. This kernel reads and writes them once; separate
        # operations would do so a dozen times.
        tables = values, state["first"], state["second"]
        rows, first, second = (table.index_select(0, ids) for table in tables)
        torch._fused_adamw_(
            [rows],
            [gradient],
            [first],
            [second],
            [],
            [torch.full((), float(step.update), device=rows.device)],
            lr=step.lr,
            beta1=step.beta1,
            beta2=step.beta2,
            weight_decay=step.weight_decay,
            eps=step.eps,
            amsgrad=False,
            maximize=False,
        )
        for table, changed in zip(tables, (rows, first, second), strict=True):
            table.index_copy_(0, ids, changed)
