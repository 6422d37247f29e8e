"""Changes the rows of a full head by one GPU kernel, if Triton is installed.

With torch, changing bfloat16 rows and rounding them at random moves ten times as many bytes, and
rows are changed in every update. The kernel reads each number once and writes it once.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any

import torch
from torch import Tensor

triton: Any
tl: Any
try:  # by name, because type checkers find it only on some machines
    triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
except ImportError:
    triton = tl = None

_LOGGER = logging.getLogger(__name__)


def change_rows(
    weight: Tensor,
    squares: Tensor,
    gradient: Tensor,
    *,
    lr: float,
    share: float,
    kept: float,
    beta2: float,
    correction: float,
    eps: float,
    seed: int,
) -> bool:
    """Changes bfloat16 rows and their mean squares in place, as ``FullDescent.change`` does.

    ``kept`` is what decay leaves of the weights. Returns False and changes nothing if there is no
    kernel for these tensors.
    """
    global _kernel
    rows = weight, gradient
    fit = all(t.dtype == torch.bfloat16 and t.is_contiguous() for t in rows)
    if _kernel is None or not fit or not _reachable(weight):
        return False
    width = weight.shape[1]
    try:
        # Triton starts kernels on the current GPU.
        with torch.cuda.device(weight.device) if weight.is_cuda else contextlib.nullcontext():
            _kernel[(len(weight),)](
                weight,
                squares,
                gradient,
                lr * share,
                kept,
                beta2,
                share * share * (1 - beta2) / width,
                correction,
                eps,
                seed,
                WIDTH=width,
                BLOCK=triton.next_power_of_2(width),
            )
    except Exception as error:  # Triton needs a C compiler and a GPU that it knows
        _LOGGER.warning("Triton failed, so a full head uses several torch kernels: %s", error)
        _kernel = None
        return False
    return True


def _reachable(weight: Tensor) -> bool:
    # Tests run the kernel on the CPU with a stand-in for Triton.
    return weight.is_cuda or type(_kernel).__name__ == "InterpretedFunction"


def _change_row(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    weight,
    squares,
    gradient,
    rate,
    kept_weight,
    kept_square,
    new_square,
    correction,
    eps,
    seed,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    places = row.to(tl.int64) * WIDTH + columns
    g = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    square = tl.load(squares + row) * kept_square + tl.sum(g * g, 0) * new_square
    tl.store(squares + row, square)
    w = w * kept_weight - g * (rate / (tl.sqrt(square) * correction + eps))
    # Random bits below those that bfloat16 keeps carry over as often as what is cut off is large.
    noise = tl.randint(seed, row * WIDTH + columns).to(tl.int32, bitcast=True) & 0xFFFF
    bits = ((w.to(tl.int32, bitcast=True) + noise) >> 16) << 16
    tl.store(weight + places, bits.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=inside)


_kernel: Any = None if triton is None else triton.jit(_change_row)
