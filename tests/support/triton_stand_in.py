"""A small stand-in for Triton, with which tests run kernels on a CPU."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class Pointer:
    """Some numbers of a tensor, as Triton's pointers address them."""

    def __init__(self, values: torch.Tensor, offset: Any = 0) -> None:
        self.values, self.offset = values, offset

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.values, self.offset + more)


class Values(torch.Tensor):
    """A block of numbers, whose bits can be read as those of another type."""

    def to(self, dtype: Any, *, bitcast: bool = False) -> Any:
        return self.view(dtype) if bitcast else super().to(dtype)


class Language:
    """The part of ``triton.language`` that our kernels use, for one row at a time."""

    int32, int64 = torch.int32, torch.int64
    float32, bfloat16 = torch.float32, torch.bfloat16
    sqrt, sum = staticmethod(torch.sqrt), staticmethod(torch.sum)
    row = 0

    def program_id(self, axis: int) -> torch.Tensor:
        assert axis == 0
        return torch.tensor(self.row, dtype=torch.int32).as_subclass(Values)

    def arange(self, start: int, end: int) -> torch.Tensor:
        assert end & (end - 1) == 0  # as Triton demands
        return torch.arange(start, end)

    def load(self, pointer: Pointer, mask: Any = None, other: float = 0.0) -> torch.Tensor:
        flat, offset = pointer.values.view(-1), torch.as_tensor(pointer.offset)
        if mask is None:
            return flat[offset].as_subclass(Values)
        loaded = torch.where(mask, flat[offset.masked_fill(~mask, 0)], other)
        return loaded.to(flat.dtype).as_subclass(Values)

    def store(self, pointer: Pointer, values: torch.Tensor, mask: Any = None) -> None:
        chosen = slice(None) if mask is None else mask
        places = torch.as_tensor(pointer.offset)
        pointer.values.view(-1)[places[chosen] if places.ndim else places] = (
            values[chosen] if places.ndim else values
        )

    def randint(self, seed: int, offset: torch.Tensor) -> torch.Tensor:
        """Any numbers that seed and offset decide."""
        generator = torch.Generator().manual_seed(seed + int(offset[0]))
        drawn = torch.randint(-(2**31), 2**31, offset.shape, generator=generator)
        return drawn.to(torch.int32).as_subclass(Values)


class InterpretedFunction:
    """A kernel that Python runs; modules ask for this name."""

    def __init__(self, language: Language, kernel: Any) -> None:
        self.language, self.kernel = language, kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            pointers = [Pointer(a) if isinstance(a, torch.Tensor) else a for a in arguments]
            for self.language.row in range(grid[0]):
                self.kernel(*pointers, **constants)

        return launch


def interpreted(monkeypatch: pytest.MonkeyPatch, module: str, kernel: str) -> Any:
    """A module of kernels; without a GPU, Python runs its kernel."""
    kernels = importlib.import_module(module)
    if not torch.cuda.is_available():
        language = Language()
        rounding = SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length())
        monkeypatch.setattr(kernels, "tl", language)
        monkeypatch.setattr(kernels, "triton", rounding)
        function = InterpretedFunction(language, getattr(kernels, kernel))
        monkeypatch.setattr(kernels, "_kernel", function)
    return kernels
