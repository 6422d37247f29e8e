"""Two ways to shortlisted logits give the same numbers and touch the same rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.layers import (  # noqa: E402
    LabelTable,
    Rows,
    full_logits,
    shortlist_logits,
    top_labels,
    used_rows,
)
from labelgrove.nn.heads.rows import RowTable  # noqa: E402

LISTED = st.sampled_from([7, 30])  # of 30 rows: the long lists read the whole table


def row_table(rows, width):
    """A table that takes gradients on copies of the rows it hands out."""
    table = RowTable(rows, width, bias=True, std=1.0)
    table.bias.normal_()
    return table


def problem(seed, *, rows=30, width=5, documents=4, listed=7):
    rng = np.random.default_rng(seed)
    ids = torch.tensor(np.stack([rng.permutation(rows)[:listed] for _ in range(documents)]))
    mask = torch.tensor(rng.random((documents, listed)) < 0.7)
    hidden = torch.tensor(
        rng.normal(size=(documents, width)), dtype=torch.float32, requires_grad=True
    )
    factors = torch.tensor(rng.normal(size=(documents, listed)), dtype=torch.float32)
    return ids, mask, hidden, factors


def weighed(logits, mask, factors):
    return (logits * factors).masked_fill(~mask, 0.0).sum()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), LISTED, st.booleans())
def test_logits_and_gradients_are_the_dot_products(seed, listed, bias):
    torch.manual_seed(seed % 1000)
    ids, mask, hidden, factors = problem(seed, listed=listed)
    table = LabelTable(30, 5, bias=bias)
    if bias:
        torch.nn.init.normal_(table.bias)
    given_logits = shortlist_logits(hidden, table, ids, mask)
    expected = torch.stack(
        [
            torch.stack(
                [table.weight[i] @ hidden[d] + (table.bias[i] if bias else 0.0) for i in ids[d]]
            )
            for d in range(len(ids))
        ]
    )
    assert torch.allclose(given_logits[mask], expected[mask], atol=1e-5)
    inputs = [hidden, *table.parameters()]
    ours = torch.autograd.grad(weighed(given_logits, mask, factors), inputs)
    theirs = torch.autograd.grad(weighed(expected, mask, factors), inputs)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_tables_that_hand_out_rows_are_read_only_where_needed():
    torch.manual_seed(0)
    ids, mask, hidden, factors = problem(2)
    table = row_table(30, 5)
    assert isinstance(table, Rows)
    logits = shortlist_logits(hidden, table, ids, mask)
    plain = LabelTable(30, 5)
    with torch.no_grad():
        plain.weight.copy_(table.weight)
        plain.bias.copy_(table.bias)
    expected = shortlist_logits(hidden, plain, ids, mask)
    assert torch.allclose(logits[mask], expected[mask], atol=1e-5)
    weighed(logits, mask, factors).backward()
    weighed(expected, mask, factors).backward()
    assert {name for name, _, _ in table._read} == {"weight", "bias"}
    for name, rows, copy in table._read:
        assert rows.tolist() == sorted(set(ids[mask].tolist()))
        gradient = getattr(plain, name).grad[rows]
        assert torch.allclose(copy.grad, gradient, atol=1e-4)


def test_full_logits_of_a_table_that_hands_out_rows_learn():
    table = row_table(6, 3)
    logits = full_logits(torch.ones(2, 3), table)
    logits.sum().backward()
    assert all(copy.grad is not None and copy.grad.all() for _, _, copy in table._read)
    with torch.no_grad():
        table._read.clear()
        assert torch.allclose(full_logits(torch.ones(2, 3), table), logits)
    assert not table._read  # prediction makes no copy of the table


def test_auto_takes_the_whole_table_when_lists_are_long(monkeypatch):
    """The rows that a form reads tell which form it is."""
    read = []
    monkeypatch.setattr(
        LabelTable, "rows", lambda self, ids: read.append(ids) or self.weight.index_select(0, ids)
    )
    for listed, whole in ((7, False), (30, True)):
        ids, mask, hidden, _ = problem(4, documents=4, listed=listed)
        read.clear()
        shortlist_logits(hidden, LabelTable(30, 5), ids, mask)
        assert (not read) is whole


def test_top_labels_and_lists_that_are_all_padding():
    scores = torch.tensor([[0.5, 0.9, 0.7], [0.1, 0.2, 0.3]])
    columns = torch.tensor([[10, 11, 12], [13, 14, 15]])
    mask = torch.tensor([[True, False, True], [True, True, True]])
    top = top_labels(scores, columns, mask, 5)
    assert top.columns.tolist() == [[12, 10, -1], [15, 14, 13]]
    assert top.scores[0].tolist() == pytest.approx([0.7, 0.5, 0.0])
    assert top_labels(scores, None, None, 1).columns.tolist() == [[1], [2]]
    ids, mask = torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.bool)
    for rows in (1, 5):
        logits = shortlist_logits(torch.ones(2, 4), LabelTable(rows, 4), ids, mask)
        assert logits.shape == (2, 3)
    assert len(used_rows(ids, mask, 5)[0]) == 1


@pytest.mark.parametrize("listed", [7, 30])
def test_logits_are_float32_under_autocast_and_close(listed):
    torch.manual_seed(0)
    ids, mask, hidden, factors = problem(3, listed=listed)
    table = LabelTable(30, 5)
    exact = shortlist_logits(hidden, table, ids, mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = shortlist_logits(hidden, table, ids, mask)
        assert full_logits(hidden.bfloat16(), table).dtype == torch.float32
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact)[mask].abs().max() < 0.05
    weighed(rough, mask, factors).backward()
    assert table.weight.grad.dtype == torch.float32
