"""Adam on some rows of a large table as one GPU kernel, where Triton is installed.

Looking up rows and moments, changing them and writing them back are seven copies of the rows with
torch. The kernel reads and writes each row where it lies: nothing is copied.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
from typing import Any

from labelgrove.errors import MissingExtraError

try:
    import torch
    from torch import Tensor
except ImportError as missing:
    raise MissingExtraError("torch", "training a neural model") from missing

triton: Any
tl: Any
try:  # by name, because type checkers find it on some machines only
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
    """AdamW's update number ``updates`` on the rows ``ids``, each named once, in place.

    False where there is no kernel for these tensors; then nothing has changed.

    >>> import torch
    >>> table, row = torch.zeros(3, 2), torch.tensor([1])
    >>> options = dict(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0, updates=1)
    >>> adam_rows(table, table, table, row, torch.ones(1, 2, device="meta"), **options)
    False
    """
    global _kernel
    tensors = (weight, first, second, gradient)
    fit = all(t.ndim == 2 and t.dtype == torch.float32 and t.is_contiguous() for t in tensors)
    if _kernel is None or not fit or not _reachable(tensors):
        return False
    width = weight.shape[1]
    try:
        # Triton would start it on whatever GPU is the current one.
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
    except Exception as error:  # Triton needs a C compiler, and a GPU that it knows
        _LOGGER.warning("row updates take several kernels, because Triton failed: %s", error)
        _kernel = None
        return False
    return True


def _reachable(tensors: tuple[Tensor, ...]) -> bool:
    if all(t.device.type == "cuda" for t in tensors):
        return True
    # Triton's interpreter, with which tests run the kernel, works on the CPU.
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
