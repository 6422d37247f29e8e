"""The GPU kernel of a full head against torch; on a CPU, a small stand-in for Triton runs it."""

import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.full import FullHead  # noqa: E402
from labelgrove.nn.heads.full_descent import FullDescent  # noqa: E402
from support.triton_stand_in import interpreted  # noqa: E402

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROWS, WIDTH = 30, 40
OPTIONS = {"lr": 0.05, "share": 0.5, "beta2": 0.9, "correction": 1.0, "eps": 1e-8}


@pytest.fixture
def kernels(monkeypatch):
    return interpreted(monkeypatch, "labelgrove.nn.heads.full_kernels", "_change_row")


def test_rows_change_as_in_float32_up_to_rounding(kernels):
    torch.manual_seed(0)
    head = FullHead(WIDTH, ROWS)  # float32, on the CPU
    inputs = FullDescent(head, beta2=0.9)
    weight = head.weight.bfloat16().to(DEVICE)
    head.weight.copy_(weight)
    squares = torch.zeros(ROWS, device=DEVICE)
    for step in range(3):
        gradient = torch.randn(ROWS, WIDTH).bfloat16()
        before = weight.float().cpu()
        head.weight.copy_(before)  # rounding does not add up
        correction = (1 - 0.9 ** (step + 1)) ** -0.5
        options = OPTIONS | {"kept": 0.99, "correction": correction, "seed": 2**40 + step}
        assert kernels.change_rows(weight, squares, gradient.to(DEVICE), **options)
        inputs.change(
            slice(0, ROWS),
            gradient.float(),
            torch.zeros(ROWS),
            lr=0.05,
            update=step + 1,
            share=0.5,
            weight_decay=0.2,
        )
        assert torch.allclose(squares.cpu(), inputs.state()["weight"], rtol=1e-4)
        off = (weight.float().cpu() - head.weight).abs()
        assert (off <= head.weight.abs() * 2**-7 + 1e-30).all()
        assert (off > 0).any() and not torch.equal(weight.float().cpu(), before)


def test_rounding_keeps_the_mean(kernels):
    weight = torch.ones(200, WIDTH, dtype=torch.bfloat16, device=DEVICE)
    gradient = torch.full_like(weight, -1.0)
    squares = torch.zeros(200, device=DEVICE)
    step = 0.3 / 128  # a third of the distance to the next number
    options = {"lr": step, "share": 1.0, "kept": 1.0, "beta2": 0.0, "correction": 1.0}
    options |= {"eps": 0.0, "seed": 7}
    assert kernels.change_rows(weight, squares, gradient, **options)
    assert sorted(weight.float().unique().tolist()) == [1.0, 1 + 1 / 128]
    assert float((weight.float() - 1).mean() * 128) == pytest.approx(0.3, abs=0.03)
    other = torch.ones_like(weight)
    assert kernels.change_rows(other, torch.zeros_like(squares), gradient, **options)
    assert torch.equal(weight, other)
    assert kernels.change_rows(other.fill_(1), squares.zero_(), gradient, **options | {"seed": 8})
    assert not torch.equal(weight, other)


def test_other_tensors_are_left_alone(kernels):
    weight, squares = torch.ones(4, 3, device=DEVICE), torch.zeros(4, device=DEVICE)
    options = OPTIONS | {"kept": 1.0, "seed": 0}
    assert not kernels.change_rows(weight, squares, weight.clone(), **options)
    half = weight.bfloat16()
    assert not kernels.change_rows(half, squares, half.T.contiguous().T, **options)
    assert weight.eq(1).all() and half.eq(1).all() and not squares.any()


def test_a_kernel_that_cannot_be_built_is_given_up_with_a_warning(kernels, monkeypatch, caplog):
    class Broken:
        def __getitem__(self, grid):
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(kernels, "_kernel", Broken())
    monkeypatch.setattr(kernels, "_reachable", lambda weight: True)
    half = torch.ones(4, 3, dtype=torch.bfloat16)
    options = OPTIONS | {"kept": 1.0, "seed": 0}
    assert not kernels.change_rows(half, torch.zeros(4), half.clone(), **options)
    assert "no C compiler" in caplog.text
    assert kernels._kernel is None
