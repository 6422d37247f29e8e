"""The GPU kernel for row updates against AdamW; on a CPU, a small stand-in for Triton runs it."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

OPTIONS = {"lr": 0.02, "beta1": 0.8, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.3}


class Pointer:
    """Some numbers of a tensor, as Triton's pointers address them."""

    def __init__(self, values: torch.Tensor, offset: Any = 0) -> None:
        self.values, self.offset = values, offset

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.values, self.offset + more)


class Language:
    """The part of ``triton.language`` that the kernel uses, for one row at a time."""

    int64, sqrt = torch.int64, staticmethod(torch.sqrt)
    row = 0

    def program_id(self, axis: int) -> torch.Tensor:
        assert axis == 0
        return torch.tensor(self.row, dtype=torch.int32)

    def arange(self, start: int, end: int) -> torch.Tensor:
        assert end & (end - 1) == 0  # as Triton demands
        return torch.arange(start, end)

    def load(self, pointer: Pointer, mask: Any = None, other: float = 0.0) -> torch.Tensor:
        flat, offset = pointer.values.view(-1), torch.as_tensor(pointer.offset)
        if mask is None:
            return flat[offset]
        return torch.where(mask, flat[offset.masked_fill(~mask, 0)], other)

    def store(self, pointer: Pointer, values: torch.Tensor, mask: torch.Tensor) -> None:
        pointer.values.view(-1)[pointer.offset[mask]] = values[mask]


class InterpretedFunction:
    """A kernel that Python runs; the module asks for this name."""

    def __init__(self, language: Language, kernel: Any) -> None:
        self.language, self.kernel = language, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            pointers = [Pointer(a) if isinstance(a, torch.Tensor) else a for a in arguments]
            for self.language.row in range(grid[0]):
                self.kernel(*pointers, **constants)

        return launch


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = importlib.import_module("labelgrove.nn.heads.row_kernels")
    if not torch.cuda.is_available():
        language = Language()
        rounding = SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length())
        monkeypatch.setattr(module, "tl", language)
        monkeypatch.setattr(module, "triton", rounding)
        monkeypatch.setattr(module, "_kernel", InterpretedFunction(language, module._adam_row))
    return module


def test_a_few_rows_change_as_adamw_changes_them(kernels: Any) -> None:
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
def test_rows_beyond_two_to_the_31_numbers(kernels: Any) -> None:
    last = 2**31 // 768 + 5
    table = torch.zeros(last + 1, 768, device="cuda")
    first, second = torch.zeros_like(table), torch.zeros_like(table)
    ids, gradient = torch.tensor([last], device="cuda"), torch.ones(1, 768, device="cuda")
    assert kernels.adam_rows(table, first, second, ids, gradient, updates=1, **OPTIONS)
    assert torch.allclose(table[last], torch.full((768,), -OPTIONS["lr"], device="cuda"))
    assert not table[:last].any()


def test_other_tensors_are_left_alone(kernels: Any) -> None:
    table = torch.ones(4, 3)
    ids, gradient = torch.tensor([2]), torch.ones(1, 3)
    half = torch.zeros(4, 3, dtype=torch.bfloat16)
    assert not kernels.adam_rows(table, half, half, ids, gradient, updates=1, **OPTIONS)
    bias, moments = torch.ones(4), torch.zeros(4)
    assert not kernels.adam_rows(bias, moments, moments, ids, gradient[0, :1], updates=1, **OPTIONS)
    assert table.eq(1).all() and bias.eq(1).all()


def test_a_kernel_that_cannot_be_built_is_given_up_with_a_warning(
    kernels: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def __getitem__(self, grid: Any) -> Any:
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(kernels, "_kernel", Broken())
    monkeypatch.setattr(kernels, "_reachable", lambda tensors: True)
    tensors = [torch.ones(4, 3) for _ in range(3)]
    ids, gradient = torch.tensor([2]), torch.ones(1, 3)
    assert not kernels.adam_rows(*tensors, ids, gradient, updates=1, **OPTIONS)
    assert "no C compiler" in caplog.text
    assert kernels._kernel is None
