"""The rows of label tables and of full heads change by one GPU kernel, if Triton is installed.

With torch, looking up rows and moments, changing them and writing them back takes seven copies of
the rows, and rounding them to bfloat16 at random moves ten times as many bytes. The kernel reads
each number once and writes it once.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any

import torch
from torch import Tensor

from labelgrove.nn.heads.row_step import RowStep

triton: Any
tl: Any
try:  # by name, because type checkers find it only on some machines
    triton, tl = importlib.import_module("triton"), importlib.import_module("triton.language")
except ImportError:
    triton = tl = None

_LOGGER = logging.getLogger(__name__)


def change_rows(
    weight: Tensor,
    gradient: Tensor,
    step: RowStep,
    *,
    second: Tensor,
    first: Tensor | None = None,
    ids: Tensor | None = None,
) -> bool:
    """Changes the distinct rows ``ids`` of ``weight``, or all of them, and moments, in place.

    With a ``first`` moment this is AdamW, and ``second`` has the shape of ``weight``. Without, it
    is ``FullDescent.change``, and ``second`` has one number per row. Rows in bfloat16 are rounded
    at random. Returns False and changes nothing if there is no kernel for these tensors.
    """
    global _kernel
    tensors = [t for t in (weight, gradient, second, first, ids) if t is not None]
    fit = (
        weight.ndim == 2
        and weight.dtype == gradient.dtype
        and weight.dtype in (torch.float32, torch.bfloat16)
        and second.dtype == torch.float32
        and all(t.is_contiguous() for t in tensors)
    )
    if _kernel is None or not fit or not _reachable(tensors):
        return False
    width, adam = weight.shape[1], first is not None
    kept_first = step.beta1 if adam else 0.0
    try:
        # Triton starts kernels on the current GPU.
        with torch.cuda.device(weight.device) if weight.is_cuda else contextlib.nullcontext():
            _kernel[(len(gradient),)](
                weight,
                gradient,
                first,
                second,
                ids,
                step.lr * step.share / (1 - kept_first**step.update),
                1 - step.lr * step.weight_decay,
                1 - kept_first,
                step.beta2,
                step.share**2 * (1 - step.beta2) / (1 if adam else width),
                step.correction,
                step.eps,
                step.seed,
                ADAM=adam,
                INDEXED=ids is not None,
                ROUNDED=weight.dtype == torch.bfloat16,
                WIDTH=width,
                BLOCK=triton.next_power_of_2(width),
            )
    except Exception as error:  # Triton needs a C compiler and a GPU that it knows
        _LOGGER.warning("Triton failed, so rows change by several torch kernels: %s", error)
        _kernel = None
        return False
    return True


def _reachable(tensors: list[Tensor]) -> bool:
    if all(t.is_cuda for t in tensors):
        return True
    # Tests run the kernel on the CPU with Triton's interpreter or a stand-in for it.
    return type(_kernel).__name__ == "InterpretedFunction" and all(t.is_cpu for t in tensors)


def _change_row(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    weight,
    gradient,
    first,
    second,
    ids,
    rate,
    kept_weight,
    new_first,
    kept_second,
    new_second,
    correction,
    eps,
    seed,
    ADAM: tl.constexpr,
    INDEXED: tl.constexpr,
    ROUNDED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # large tables have more than 2^31 numbers
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    g = tl.load(gradient + row * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    if INDEXED:
        row = tl.load(ids + row).to(tl.int64)
    places = row * WIDTH + columns
    w = tl.load(weight + places, mask=inside, other=0.0).to(tl.float32)
    if ADAM:
        m = tl.load(first + places, mask=inside, other=0.0)
        v = tl.load(second + places, mask=inside, other=0.0)
        m = m + (g - m) * new_first
        v = v * kept_second + g * g * new_second
        tl.store(first + places, m, mask=inside)
        tl.store(second + places, v, mask=inside)
        change = rate * (m / (tl.sqrt(v) * correction + eps))
    else:
        square = tl.load(second + row) * kept_second + tl.sum(g * g, 0) * new_second
        tl.store(second + row, square)
        change = g * (rate / (tl.sqrt(square) * correction + eps))
    w = w * kept_weight - change
    if ROUNDED:
        # Random bits below those that bfloat16 keeps carry over as often as what is cut off is
        # large.
        noise = tl.randint(seed, places.to(tl.int32)).to(tl.int32, bitcast=True) & 0xFFFF
        bits = ((w.to(tl.int32, bitcast=True) + noise) >> 16) << 16
        tl.store(weight + places, bits.to(tl.float32, bitcast=True).to(tl.bfloat16), mask=inside)
    else:
        tl.store(weight + places, w, mask=inside)


_kernel: Any = None if triton is None else triton.jit(_change_row)
