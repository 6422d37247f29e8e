"""Adam on some rows of a large table as one GPU kernel, if Triton is installed.

With torch, looking up rows and moments, changing them and writing them back takes seven copies of
the rows. The kernel changes each row in place.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
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


def adam_rows(
    weight: Tensor,
    first: Tensor,
    second: Tensor,
    ids: Tensor,
    gradient: Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    updates: int,
) -> bool:
    """AdamW's update number ``updates`` on the distinct rows ``ids``, in place.

    Returns False and changes nothing if there is no kernel for these tensors.
    """
    global _kernel
    tensors = (weight, first, second, gradient)
    fit = all(t.ndim == 2 and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)
    if _kernel is None or not fit or not _reachable(tensors):
        return False
    width = weight.shape[1]
    try:
        # Triton starts kernels on the current GPU.
        with torch.cuda.device(weight.device) if weight.is_cuda else contextlib.nullcontext():
            _kernel[(len(ids),)](
                weight,
                first,
                second,
                ids,
                gradient,
                lr / (1 - beta1**updates),
                1 - lr * weight_decay,
                1 - beta1,
                beta2,
                1 - beta2,
                1 / math.sqrt(1 - beta2**updates),
                eps,
                WIDTH=width,
                BLOCK=triton.next_power_of_2(width),
            )
    except Exception as error:  # Triton needs a C compiler and a GPU that it knows
        _LOGGER.warning("Triton failed, so row updates use several torch kernels: %s", error)
        _kernel = None
        return False
    return True


def _reachable(tensors: tuple[Tensor, ...]) -> bool:
    if all(t.device.type == "cuda" for t in tensors):
        return True
    # Tests run the kernel on the CPU with Triton's interpreter.
    return type(_kernel).__name__ == "InterpretedFunction" and all(t.is_cpu for t in tensors)


def _adam_row(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    weight,
    first,
    second,
    ids,
    gradient,
    rate,
    kept_weight,
    new_first,
    kept_second,
    new_second,
    correction,
    eps,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    # Large tables have more than 2^31 numbers.
    places = tl.load(ids + row).to(tl.int64) * WIDTH + columns
    g = tl.load(gradient + row * WIDTH + columns, mask=inside, other=0.0)
    m = tl.load(first + places, mask=inside, other=0.0)
    v = tl.load(second + places, mask=inside, other=0.0)
    w = tl.load(weight + places, mask=inside, other=0.0)
    m = m + (g - m) * new_first
    v = v * kept_second + g * g * new_second
    w = w * kept_weight - rate * (m / (tl.sqrt(v) * correction + eps))
    tl.store(first + places, m, mask=inside)
    tl.store(second + places, v, mask=inside)
    tl.store(weight + places, w, mask=inside)


_kernel: Any = None if triton is None else triton.jit(_adam_row)
