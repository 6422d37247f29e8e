"""The GPU kernel of rows against plain torch; on a CPU, a stand-in for Triton runs it."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.heads import row_kernel  # noqa: E402
from labelgrove.nn.heads.full import FullDescent, FullHead  # noqa: E402
from labelgrove.nn.heads.row_step import RowStep  # noqa: E402
from labelgrove.nn.heads.rows import RowOptimizer, RowTable  # noqa: E402
from support.triton import interpret  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ROWS = 9
STEP = RowStep(lr=0.02, weight_decay=0.3, beta1=0.8, beta2=0.99, seed=2**40)


@pytest.fixture
def kernel(monkeypatch):
    """The module of the kernel; without a GPU, Python runs it."""
    if not torch.cuda.is_available():
        interpret(monkeypatch, row_kernel, _kernel="_change_row")
    return row_kernel


def changed(weight, gradient, step, second, first=None):
    """The same rows and moments after a step, in double precision."""
    w, g, v = weight.double(), step.share * gradient.double(), second.double()
    beta1, beta2 = step.beta1, step.beta2
    if first is None:
        v = beta2 * v + (1 - beta2) * g.square().mean(1)
        mean, spread = g, v[:, None]
    else:
        v = beta2 * v + (1 - beta2) * g.square()
        first = beta1 * first.double() + (1 - beta1) * g
        mean, spread = first / (1 - beta1**step.update), v
    root = (spread / (1 - beta2**step.update)).sqrt() + step.eps
    return w * (1 - step.lr * step.weight_decay) - step.lr * mean / root, v, first


@pytest.mark.parametrize("width", [1, 40, 257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("adam", [True, False], ids=["adam", "one moment per row"])
@pytest.mark.parametrize("ids", [None, [7, 0, 3], [8], []], ids=["all", "some", "last", "none"])
def test_rows_change_as_they_do_in_torch(kernel, ids, adam, dtype, width):
    torch.manual_seed(0)
    weight = torch.randn(ROWS, width).to(DEVICE, dtype)
    second = torch.zeros(weight.shape if adam else ROWS, device=DEVICE)
    moments = {"second": second} | ({"first": torch.zeros_like(second)} if adam else {})
    index = torch.arange(ROWS) if ids is None else torch.tensor(ids, dtype=torch.int64)
    others = [row for row in range(ROWS) if row not in index]
    index = index.to(DEVICE)
    rows = None if ids is None else index
    start = weight.clone()
    for update in range(1, 4):
        step = replace(STEP, update=update, share=1.0 if adam else 0.5, seed=STEP.seed + update)
        gradient = torch.randn(len(index), width).to(DEVICE, dtype)
        before = {name: tensor[index] for name, tensor in moments.items()}
        expected = changed(weight[index], gradient, step, **before)
        assert kernel.change_rows(weight, gradient, step, ids=rows, **moments)
        for after, name in zip(expected[1:], ("second", "first"), strict=True):
            if after is not None:
                now = moments[name][index].double()
                assert torch.allclose(now, after, rtol=1e-5, atol=1e-7)
        off = (weight[index].double() - expected[0]).abs()
        spacing = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-18
        assert (off <= expected[0].abs() * spacing + 1e-6).all()
    assert torch.equal(weight[others], start[others])
    assert not any(tensor[others].any() for tensor in moments.values())


def test_rounding_keeps_the_mean(kernel):
    gradient = torch.full((60, 100), -1.0, dtype=torch.bfloat16, device=DEVICE)
    # A third of the distance to the next number.
    step = RowStep(lr=0.3 / 128, beta2=0.0, eps=0.0, seed=7)

    def rounded(seed):
        weight = torch.ones_like(gradient)
        squares = torch.zeros(60, device=DEVICE)
        assert kernel.change_rows(weight, gradient, replace(step, seed=seed), second=squares)
        return weight.float()

    weight = rounded(7)
    assert sorted(weight.unique().tolist()) == [1.0, 1 + 1 / 128]
    assert float((weight - 1).mean() * 128) == pytest.approx(0.3, abs=0.03)
    assert torch.equal(weight, rounded(7))
    assert not torch.equal(weight, rounded(8))


@needs_gpu
@pytest.mark.parametrize("whole", [True, False], ids=["full head", "table"])
def test_tables_and_full_heads_learn_alike_with_and_without_it(kernel, monkeypatch, whole):
    def learnt():
        torch.manual_seed(0)
        if whole:
            head = FullHead(33, 50, device=DEVICE)
            descent = FullDescent(head)
        else:
            head = RowTable(50, 33, device=DEVICE)
            optimizer = RowOptimizer({"t": head})
        generator = torch.Generator(DEVICE).manual_seed(0)
        for update in range(1, 6):
            step = replace(STEP, update=update, weight_decay=0.1)
            gradient = torch.randn(20, 33, device=DEVICE, generator=generator)
            if whole:
                part = slice(10, 30)
                descent.change(part, gradient.to(head.weight.dtype), gradient[:, 0], step=step)
            else:
                head.rows(torch.arange(0, 40, 2, device=DEVICE)).backward(gradient)
                optimizer.collect()
                optimizer.step(step)
        return head.weight.float()

    ours = learnt()
    assert kernel._kernel is not None  # it did not fail
    monkeypatch.setattr(kernel, "_kernel", None)
    off = (ours - learnt()).abs()
    # Each way rounds to bfloat16 with random numbers of its own.
    assert off.max() < (0.02 if whole else 1e-5) and off.mean() < (0.002 if whole else 1e-6)


@needs_gpu
def test_rows_beyond_two_to_the_31_numbers(kernel):
    last = 2**31 // 768 + 5
    table = torch.zeros(last + 1, 768, device="cuda")
    moments = {"first": torch.zeros_like(table), "second": torch.zeros_like(table)}
    ids, gradient = torch.tensor([last], device="cuda"), torch.ones(1, 768, device="cuda")
    assert kernel.change_rows(table, gradient, STEP, ids=ids, **moments)
    assert torch.allclose(table[last], torch.full((768,), -STEP.lr, device="cuda"))
    assert not table[:last].any()


def test_other_tensors_are_left_alone(kernel):
    table, bias = torch.ones(4, 3, device=DEVICE), torch.ones(4, device=DEVICE)
    half = torch.ones(4, 3, dtype=torch.bfloat16, device=DEVICE)
    for weight, gradient, second in (
        (table, table.clone(), half),  # moments in bfloat16
        (half, table, table),  # gradients of another type
        (bias, bias.clone(), bias),  # no rows
        (half, half.T.contiguous().T, bias),  # another order in memory
        (table.double(), table.double(), bias),
    ):
        assert not kernel.change_rows(weight, gradient, STEP, second=second)
        assert weight.eq(1).all() and second.eq(1).all()


def test_a_kernel_that_cannot_be_built_is_given_up_with_a_warning(kernel, monkeypatch, caplog):
    class Broken:
        def __getitem__(self, grid):
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(kernel, "_kernel", Broken())
    monkeypatch.setattr(kernel, "_reachable", lambda tensors: True)
    rows = torch.ones(4, 3)
    assert not kernel.change_rows(rows, rows.clone(), STEP, second=torch.zeros(4))
    assert "no C compiler" in caplog.text
    assert kernel._kernel is None
