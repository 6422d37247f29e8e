"""Logits in two ways that touch the same rows, and losses per document against scalars."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from labelgrove.nn.heads.layers import (  # noqa: E402
    LabelTable,
    Rows,
    full_logits,
    shortlist_logits,
    top_labels,
    used_rows,
)
from labelgrove.nn.heads.losses import document_losses, full_losses, relevance_weights  # noqa: E402
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


KINDS = ("bce", "squared_hinge")


REDUCTIONS = ("mean", "sum")


def scalar_loss(logit, target, kind):
    margin = float(logit) if target else -float(logit)
    return np.log1p(np.exp(-margin)) if kind == "bce" else max(0.0, 1 - margin) ** 2


def entries(seed, rows=5, columns=11):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(rows, columns)) * 2, dtype=torch.float32)
    targets = torch.tensor(rng.random((rows, columns)) < 0.3)
    mask = torch.tensor(rng.random((rows, columns)) < 0.7)
    weights = torch.tensor(rng.random((rows, columns)) * 3, dtype=torch.float32)
    return logits, targets, mask, weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_document_losses_are_the_scalars_summed(kind, reduction, weighted):
    logits, targets, mask, weights = entries(0)
    given = document_losses(
        logits,
        targets,
        mask=mask,
        weights=weights if weighted else None,
        kind=kind,
        reduction=reduction,
    )
    for row, value in enumerate(given):
        parts = [
            scalar_loss(logits[row, j], targets[row, j], kind)
            * (float(weights[row, j]) ** weighted)
            for j in range(logits.shape[1])
            if mask[row, j]
        ]
        expected = sum(parts) / (len(parts) if reduction == "mean" else 1)
        assert float(value) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_changes_neither_loss_nor_gradient(kind, reduction):
    logits, targets, mask, weights = entries(1)
    logits.requires_grad_()
    plain = document_losses(
        logits, targets, mask=mask, weights=weights, kind=kind, reduction=reduction
    )
    gradient = torch.autograd.grad(plain.sum(), logits)[0]
    # Padding may hold anything, even infinities that would make 0 * inf.
    padding = torch.full((5, 4), torch.inf, requires_grad=True)
    wide = torch.cat([logits, padding], 1)
    padded = document_losses(
        wide,
        torch.cat([targets, torch.zeros(5, 4, dtype=torch.bool)], 1),
        mask=torch.cat([mask, torch.zeros(5, 4, dtype=torch.bool)], 1),
        weights=torch.cat([weights, torch.full((5, 4), 9.0)], 1),
        kind=kind,
        reduction=reduction,
    )
    assert torch.allclose(padded, plain, rtol=1e-6)
    again, of_padding = torch.autograd.grad(padded.sum(), [logits, padding])
    assert torch.allclose(again, gradient, rtol=1e-6)
    assert of_padding.tolist() == [[0.0] * 4] * 5
    assert not gradient[~mask].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_candidates_costs_nothing(kind):
    logits = torch.ones(1, 3, requires_grad=True)
    off = torch.zeros(1, 3, dtype=torch.bool)
    loss = document_losses(logits, off, mask=off, kind=kind)
    assert loss.tolist() == [0.0]
    assert torch.autograd.grad(loss.sum(), logits)[0].tolist() == [[0.0] * 3]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_full_losses_are_document_losses_with_all_targets(kind, reduction):
    rng = np.random.default_rng(2)
    logits = torch.tensor(rng.normal(size=(4, 9)) * 3, dtype=torch.float32, requires_grad=True)
    rows = [[1, 4, 4, 8], [], [0], [2, 3]]  # a node may occur twice; it counts once
    truth = RaggedLabels.from_rows(rows).padded().sort(dim=1).values
    targets = torch.tensor([[column in row for column in range(9)] for row in rows])
    for positive_weights, weights in (
        (None, None),
        (torch.full(truth.shape, 2.5), torch.where(targets, 2.5, 0.5)),
    ):
        extra = {} if weights is None else {"negative_weight": 0.5}
        given = full_losses(
            logits,
            truth,
            positive_weights=positive_weights,
            kind=kind,
            reduction=reduction,
            **extra,
        )
        expected = document_losses(logits, targets, weights=weights, kind=kind, reduction=reduction)
        assert torch.allclose(given, expected, atol=1e-5)
        ours, theirs = (torch.autograd.grad(x.sum(), logits)[0] for x in (given, expected))
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_losses_are_float32_and_relevance_has_weights():
    logits, targets, mask, _ = entries(3)
    assert document_losses(logits.bfloat16(), targets, mask=mask).dtype == torch.float32
    truth = torch.tensor([[1]] * 5)
    assert full_losses(logits.bfloat16(), truth).dtype == torch.float32
    counts = torch.tensor([[3, 0, 1], [0, 0, 0]])
    assert relevance_weights(counts).tolist() == [[3.0, 1.0, 1.0], [1.0] * 3]
    shares = relevance_weights(counts, norm="l1", negative_weight=0.5)
    assert shares.tolist() == [[0.75, 0.5, 0.25], [0.5] * 3]
