"""A stand-in for Triton, in which Python runs the GPU kernels of a module on the CPU."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
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
    """The part of ``triton.language`` that our kernels use, for one program at a time."""

    int32, int64 = torch.int32, torch.int64
    float32, bfloat16 = torch.float32, torch.bfloat16
    sqrt, sum = staticmethod(torch.sqrt), staticmethod(torch.sum)
    where = staticmethod(torch.where)
    program, programs = 0, 1

    def program_id(self, axis: int) -> torch.Tensor:
        assert axis == 0
        return torch.tensor(self.program, dtype=torch.int32).as_subclass(Values)

    def num_programs(self, axis: int) -> int:
        return self.programs

    def zeros(self, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype)

    def join(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.stack([one, other], -1)

    def reshape(self, values: torch.Tensor, shape: list[int]) -> torch.Tensor:
        return values.reshape(shape)

    def rand4x(self, seed: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(int(seed) + int(offset[0]))
        return torch.rand(4, len(offset), generator=generator)

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
            constants.pop("num_warps", None)
            pointers = [Pointer(a) if isinstance(a, torch.Tensor) else a for a in arguments]
            self.language.programs = grid[0]
            for self.language.program in range(grid[0]):
                self.kernel(*pointers, **constants)

        return launch


def interpret(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **kernels: str) -> None:
    """Lets Python run the functions of a module in place of the kernels of these names."""
    language = Language()
    rounding = SimpleNamespace(next_power_of_2=lambda n: 1 << (n - 1).bit_length())
    monkeypatch.setattr(module, "tl", language)
    monkeypatch.setattr(module, "triton", rounding)
    for name, function in kernels.items():
        kernel = InterpretedFunction(language, getattr(module, function))
        monkeypatch.setattr(module, name, kernel, raising=False)
