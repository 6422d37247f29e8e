"""The GPU kernel for row updates against AdamW; on a CPU, a small stand-in for Triton runs it."""

import pytest

torch = pytest.importorskip("torch")

from support.triton_stand_in import interpreted  # noqa: E402

OPTIONS = {"lr": 0.02, "beta1": 0.8, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.3}


@pytest.fixture
def kernels(monkeypatch):
    return interpreted(monkeypatch, "labelgrove.nn.heads.row_kernels", "_adam_row")


def test_a_few_rows_change_as_adamw_changes_them(kernels):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(9, 5, generator=generator)
    ids = torch.tensor([7, 0, 3])
    table = start.clone().to(device)
    first, second = torch.zeros_like(table), torch.zeros_like(table)
    dense = torch.nn.Parameter(start[ids])
    theirs = torch.optim.AdamW(
        [dense],
        lr=OPTIONS["lr"],
        betas=(OPTIONS["beta1"], OPTIONS["beta2"]),
        eps=OPTIONS["eps"],
        weight_decay=OPTIONS["weight_decay"],
    )
    for update in range(1, 5):
        dense.grad = torch.randn(3, 5, generator=generator)
        gradient, rows = dense.grad.to(device), ids.to(device)
        assert kernels.adam_rows(table, first, second, rows, gradient, updates=update, **OPTIONS)
        theirs.step()
        assert torch.allclose(table.cpu()[ids], dense, atol=1e-5)
    others = [row for row in range(9) if row not in ids.tolist()]
    assert torch.equal(table.cpu()[others], start[others])
    assert not first.cpu()[others].any() and not second.cpu()[others].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and much of its memory")
def test_rows_beyond_two_to_the_31_numbers(kernels):
    last = 2**31 // 768 + 5
    table = torch.zeros(last + 1, 768, device="cuda")
    first, second = torch.zeros_like(table), torch.zeros_like(table)
    ids, gradient = torch.tensor([last], device="cuda"), torch.ones(1, 768, device="cuda")
    assert kernels.adam_rows(table, first, second, ids, gradient, updates=1, **OPTIONS)
    assert torch.allclose(table[last], torch.full((768,), -OPTIONS["lr"], device="cuda"))
    assert not table[:last].any()


def test_other_tensors_are_left_alone(kernels):
    table = torch.ones(4, 3)
    ids, gradient = torch.tensor([2]), torch.ones(1, 3)
    half = torch.zeros(4, 3, dtype=torch.bfloat16)
    assert not kernels.adam_rows(table, half, half, ids, gradient, updates=1, **OPTIONS)
    bias, moments = torch.ones(4), torch.zeros(4)
    assert not kernels.adam_rows(bias, moments, moments, ids, gradient[0, :1], updates=1, **OPTIONS)
    assert table.eq(1).all() and bias.eq(1).all()


def test_a_kernel_that_cannot_be_built_is_given_up_with_a_warning(kernels, monkeypatch, caplog):
    class Broken:
        def __getitem__(self, grid):
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(kernels, "_kernel", Broken())
    monkeypatch.setattr(kernels, "_reachable", lambda tensors: True)
    tensors = [torch.ones(4, 3) for _ in range(3)]
    ids, gradient = torch.tensor([2]), torch.ones(1, 3)
    assert not kernels.adam_rows(*tensors, ids, gradient, updates=1, **OPTIONS)
    assert "no C compiler" in caplog.text
    assert kernels._kernel is None
