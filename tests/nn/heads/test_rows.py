"""Row-sparse updates against literal references, torch's own optimisers and their promises."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.lazy_adam import LazyAdam

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from labelgrove.nn.heads.row_step import RowStep  # noqa: E402
from labelgrove.nn.heads.rows import (  # noqa: E402
    RowOptimizer,
    RowTable,
    row_tables,
    sum_by_row,
)

ROWS, WIDTH = 6, 3


gradients = st.lists(
    st.dictionaries(
        st.integers(0, ROWS - 1),
        st.lists(
            st.floats(-3, 3, width=32).filter(lambda g: abs(g) > 1e-3), min_size=3, max_size=3
        ),
        min_size=1,
    ),
    min_size=1,
    max_size=6,
)


def give(table, gradient):
    """Leaves exactly these gradients on the table."""
    rows = table.rows(torch.tensor(list(gradient)))
    rows.backward(torch.tensor(list(gradient.values())))


def table_with(weights):
    table = RowTable(len(weights), len(weights[0]))
    table.weight.copy_(torch.tensor(weights))
    return table


START = [[0.1 * (i + 1) * (-1) ** j + j for j in range(WIDTH)] for i in range(ROWS)]


@settings(max_examples=40)
@given(gradients)
def test_adam_is_the_literal_lazy_adam(updates):
    table = table_with(START)
    reference = LazyAdam(START, decay=0.1)
    optimizer = RowOptimizer({"t": table})
    for gradient in updates:
        give(table, gradient)
        optimizer.collect()
        optimizer.step(RowStep(lr=0.05, weight_decay=0.1, beta1=0.8))
        reference.update(gradient, 0.05, beta1=0.8)
        assert torch.allclose(table.weight, torch.tensor(reference.weights), atol=2e-5)
    untouched = sorted(set(range(ROWS)) - {row for gradient in updates for row in gradient})
    start = torch.tensor(START)
    assert torch.equal(table.weight[untouched], start[untouched])
    assert not any(state[untouched].any() for state in optimizer.state().values())


def test_biases_do_not_decay():
    table = RowTable(4, 2, bias=True)
    table.bias.fill_(1.0)
    optimizer = RowOptimizer({"t": table})
    ids = torch.tensor([1, 3])
    (table.rows(ids).sum() * 0 + 2 * table.biases(ids).sum()).backward()
    optimizer.collect()
    optimizer.step(RowStep(lr=0.1, weight_decay=0.5))
    assert table.bias.tolist() == pytest.approx([1.0, 0.9, 1.0, 0.9])


def test_tables_are_saved_and_states_have_the_promised_sizes():
    model = torch.nn.Module()
    model.labels = RowTable(3, 2, bias=True)
    assert RowTable(3, 2).bias is None
    assert list(model.parameters()) == []
    assert sorted(model.state_dict()) == ["labels.bias", "labels.weight"]
    assert row_tables(model) == {"labels": model.labels}

    state = RowOptimizer({"t": RowTable(10, 4, bias=True)}).state()
    assert state["t.weight.second"].shape == (10, 4) and state["t.bias.first"].shape == (10,)


def test_gradients_of_several_readings_add_up():
    table = RowTable(9, 2, std=0)
    table.rows(torch.tensor([5, 1])).sum().backward()
    table.rows(torch.tensor([8, 5])).sum().mul(3).backward()
    table.rows(torch.tensor([0]))  # read, but no loss depends on it
    ids, gradient = table.pending()
    assert ids.tolist() == [1, 5, 8]
    assert gradient.tolist() == [[1.0, 1.0], [4.0, 4.0], [3.0, 3.0]]
    table.clear()
    assert len(table.pending()[0]) == 0

    table = RowTable(5, 2)
    with torch.no_grad():
        rows = table.rows(torch.tensor([1, 2]))
    assert not rows.requires_grad
    assert torch.equal(rows, table.weight[1:3])
    assert len(table.pending()[0]) == 0

    table = table_with(START)
    optimizer = RowOptimizer({"t": table})
    optimizer.collect()
    assert optimizer.gradients() == []
    optimizer.step(RowStep(lr=1.0, weight_decay=1.0))
    assert torch.equal(table.weight, torch.tensor(START))

    ids = torch.tensor([4, 4, 0, 4])
    unique, total = sum_by_row(ids, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert unique.tolist() == [0, 4]
    assert total.tolist() == [3.0, 7.0]


def test_no_operation_of_a_step_has_the_size_of_the_table():
    class LargeResults(TorchDispatchMode):
        names: ClassVar[set[str]] = set()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            results = result if isinstance(result, (list, tuple)) else [result]
            if any(isinstance(r, torch.Tensor) and r.numel() >= 1000 for r in results):
                self.names.add(func.__name__.partition(".")[0])
            return result

    table = RowTable(1000, 4, std=0)
    optimizer = RowOptimizer({"t": table})
    with LargeResults() as large:
        table.rows(torch.tensor([7, 512])).sum().backward()
        optimizer.collect()
        optimizer.step(RowStep(lr=0.1, weight_decay=0.1))
    assert large.names <= {"index_copy_"}  # writes only the rows in use
    assert table.weight.any(1).nonzero().flatten().tolist() == [7, 512]
