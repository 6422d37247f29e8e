"""The head over all labels in chunks gives the numbers of the head that holds all logits."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.full import full_head_best, full_head_loss  # noqa: E402
from labelgrove.nn.heads.layers import LabelTable, full_logits  # noqa: E402
from labelgrove.nn.heads.losses import full_losses  # noqa: E402
from labelgrove.nn.heads.ragged import RaggedLabels  # noqa: E402

ROWS = [[3, 20, 20], [], [0, 4, 9, 22], [8]]


def problem(*, bias=True):
    torch.manual_seed(0)
    table = LabelTable(23, 6, bias=bias)
    for parameter in table.parameters():
        torch.nn.init.normal_(parameter)
    hidden = torch.randn(4, 6, requires_grad=True)
    truth = RaggedLabels.from_rows(ROWS).padded().sort(dim=1).values
    return table, hidden, truth


@pytest.mark.parametrize("kind", ["bce", "squared_hinge"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [1, 5, 23, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients(kind, reduction, chunk, bias):
    table, hidden, truth = problem(bias=bias)
    loss = full_head_loss(hidden, table, truth, chunk=chunk, kind=kind, reduction=reduction)
    whole = full_losses(full_logits(hidden, table), truth, kind=kind, reduction=reduction).mean()
    assert loss.item() == pytest.approx(whole.item(), rel=1e-5)
    inputs = [hidden, *table.parameters()]
    ours = torch.autograd.grad(2.5 * loss, inputs)
    theirs = torch.autograd.grad(2.5 * whole, inputs)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_gradients_of_two_batches_add_up():
    table, hidden, truth = problem()
    for _ in range(2):
        full_head_loss(hidden, table, truth, chunk=5).backward()
    twice = table.weight.grad.clone()
    table.weight.grad = None
    full_head_loss(hidden, table, truth, chunk=5).backward()
    assert torch.allclose(twice, 2 * table.weight.grad)


def test_no_gradient_is_made_where_none_is_wanted():
    table, hidden, truth = problem()
    with torch.no_grad():
        quiet = full_head_loss(hidden, table, truth, chunk=5)
    assert not quiet.requires_grad
    assert quiet.item() == pytest.approx(
        full_head_loss(hidden, table, truth, chunk=5).item(), rel=1e-6
    )


def test_half_precision():
    table, hidden, truth = problem()
    exact = full_head_loss(hidden, table, truth, chunk=5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = full_head_loss(hidden.bfloat16(), table, truth, chunk=5)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.02)
    rough.backward()
    assert table.weight.grad.dtype == torch.float32


def test_small_gradients_survive_float16_under_a_loss_scale():
    table, hidden = LabelTable(20_000, 8), torch.randn(4, 8)
    torch.nn.init.constant_(table.bias, -8.0)  # most labels are known to be absent
    truth = RaggedLabels.from_rows([[n] for n in range(4)]).padded()

    def gradient(precision):
        table.zero_grad()
        with torch.autocast("cpu", dtype=precision, enabled=precision != torch.float32):
            loss = full_head_loss(hidden, table, truth, chunk=5000, reduction="mean")
        (2.0**16 * loss).backward()
        return table.weight.grad.clone()

    exact = gradient(torch.float32)
    assert (gradient(torch.float16) - exact).norm() < 1e-3 * exact.norm()


@pytest.mark.parametrize("k", [1, 4, 50])
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_best_labels(k, chunk):
    table, hidden, _ = problem()
    top = full_head_best(hidden, table, k, chunk=chunk)
    values, columns = full_logits(hidden, table).topk(min(k, 23), dim=1)
    assert top.columns.tolist() == columns.tolist()
    assert np.allclose(top.scores.tolist(), values.tolist(), atol=1e-5)


@pytest.mark.parametrize("chunk", [2, 100])
def test_best_labels_are_allowed_ones(chunk):
    table, hidden, _ = problem()
    allowed = torch.zeros(23, dtype=torch.bool)
    allowed[[3, 9, 20]] = True
    top = full_head_best(hidden, table, 5, chunk=chunk, allowed=allowed)
    logits = full_logits(hidden, table).detach()[:, allowed]
    order = torch.tensor([3, 9, 20])[logits.argsort(1, descending=True)]
    assert top.columns[:, :3].tolist() == order.tolist()
    assert (top.columns[:, 3:] == -1).all()
