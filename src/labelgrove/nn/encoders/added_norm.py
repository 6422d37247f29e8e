"""What follows a product in BERT's layers: its bias, dropout, a sum and a norm, as one GPU kernel.

With torch these are eight kernels, each of which reads and writes all states: the gradients of the
norms' weights alone took an eighth of an update. Only training uses ours, if Triton is installed;
predictions have the bits of plain torch.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import torch
from torch import Tensor, nn

from labelgrove.nn.heads.row_kernel import tl, triton

_LOGGER = logging.getLogger(__name__)
PROGRAMS = 1024  # that add up gradients of weights; each adds those of every so many-th token


def fits(states: Tensor) -> bool:
    """Whether these kernels work on states; a first call tries them."""
    if triton is None or not states.is_cuda or states.dtype == torch.float32:
        return False
    return torch.is_grad_enabled() and _works(states.shape[1], states.dtype, states.device)


@functools.cache
def _works(width: int, dtype: torch.dtype, device: torch.device) -> bool:
    try:
        with torch.random.fork_rng([device]):
            states = torch.zeros(128, width, dtype=dtype, device=device, requires_grad=True)
            norm = nn.LayerNorm(width, device=device)
            bias = torch.zeros(width, device=device, requires_grad=True)
            torch.autograd.grad(added_norm(states, bias, states, norm, 0.5).sum(), [states, bias])
    except Exception as error:  # Triton needs a C compiler and a GPU that it knows
        _LOGGER.warning("Triton failed, so layers take more kernels of torch: %s", error)
        return False
    return True


def added_norm(
    changed: Tensor, bias: Tensor, before: Tensor, norm: nn.LayerNorm, rate: float
) -> Tensor:
    """``norm(before + dropout(changed + bias))``; weights may be in float32."""
    arguments = changed, bias, before, norm.weight, norm.bias, rate, norm.eps
    result: Tensor = _AddedNorm.apply(*arguments)  # type: ignore[no-untyped-call]
    return result


class _AddedNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        changed: Tensor,
        bias: Tensor,
        before: Tensor,
        weight: Tensor,
        shift: Tensor,
        rate: float,
        eps: float,
    ) -> Tensor:
        rows, width = changed.shape
        changed, before = changed.contiguous(), before.contiguous()
        total, result = torch.empty_like(changed), torch.empty_like(changed)
        # A kernel of torch, so that every replay of a recording draws another seed.
        seed = torch.empty(1, dtype=torch.int32, device=changed.device).random_()
        moments = torch.empty(rows, 2, dtype=torch.float32, device=changed.device)
        _forward_kernel[(rows,)](
            *(changed, bias, before, weight, shift, total, result, moments, seed),
            *(rate, eps),
            **_row_shape(width, rate),
        )
        ctx.save_for_backward(total, weight, moments, seed)
        ctx.rate = rate
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total, weight, moments, seed = ctx.saved_tensors
        rows, width = total.shape
        gradient = gradient.contiguous()
        of_before, of_changed = torch.empty_like(total), torch.empty_like(total)
        programs = min(PROGRAMS, rows)
        parts = torch.empty(programs, 3, width, dtype=torch.float32, device=total.device)
        _backward_kernel[(programs,)](
            *(gradient, total, weight, moments, seed, of_before, of_changed, parts),
            *(rows, ctx.rate),
            **_row_shape(width, ctx.rate),
        )
        of_bias, of_weight, of_shift = parts.sum(0)
        return of_changed, of_bias, of_before, of_weight, of_shift, None, None


def _row_shape(width: int, rate: float) -> dict[str, Any]:
    block = triton.next_power_of_2(width)
    warps = max(1, min(8, block // 256))
    return {"DROPPED": rate > 0, "WIDTH": width, "BLOCK": block, "num_warps": warps}


def _kept(seed, row, rate, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / (1 - rate) where dropout keeps a column of a row, else 0; four columns per draw."""
    draws = row * (BLOCK // 4) + tl.arange(0, BLOCK // 4)
    a, b, c, d = tl.rand4x(tl.load(seed), draws)
    random = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [BLOCK])
    return tl.where(random < rate, 0.0, 1.0 / (1.0 - rate))


def _added_norm(  # type: ignore[no-untyped-def]  # Triton reads annotations as code
    changed,
    bias,
    before,
    weight,
    shift,
    total,
    result,
    moments,
    seed,
    rate,
    eps,
    DROPPED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    places = row * WIDTH + columns
    x = tl.load(changed + places, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    if DROPPED:
        x *= kept(seed, row, rate, WIDTH, BLOCK)
    x += tl.load(before + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(total + places, x, mask=inside)
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / WIDTH + eps)
    tl.store(moments + 2 * row, mean)
    tl.store(moments + 2 * row + 1, scale)
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(shift + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + places, centred * scale * w + b, mask=inside)


def _added_norm_gradients(  # type: ignore[no-untyped-def]
    gradient,
    total,
    weight,
    moments,
    seed,
    of_before,
    of_changed,
    parts,
    rows,
    rate,
    DROPPED: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first, programs = tl.program_id(0), tl.num_programs(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    w = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    of_bias = tl.zeros([BLOCK], tl.float32)
    of_weight = tl.zeros([BLOCK], tl.float32)
    of_shift = tl.zeros([BLOCK], tl.float32)
    for row in range(first, rows, programs):
        places = row * WIDTH + columns
        g = tl.load(gradient + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(total + places, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(moments + 2 * row + 1)
        normed = tl.where(inside, (x - tl.load(moments + 2 * row)) * scale, 0.0)
        of_weight += g * normed
        of_shift += g
        g *= w
        along = tl.sum(g * normed, 0) / WIDTH
        change = (g - tl.sum(g, 0) / WIDTH - normed * along) * scale
        tl.store(of_before + places, change, mask=inside)
        if DROPPED:
            change *= kept(seed, row, rate, WIDTH, BLOCK)
        tl.store(of_changed + places, change, mask=inside)
        of_bias += tl.where(inside, change, 0.0)
    own = parts + first * 3 * WIDTH + columns
    tl.store(own, of_bias, mask=inside)
    tl.store(own + WIDTH, of_weight, mask=inside)
    tl.store(own + 2 * WIDTH, of_shift, mask=inside)


if triton is not None:
    kept = triton.jit(_kept)
    _forward_kernel = triton.jit(_added_norm)
    _backward_kernel = triton.jit(_added_norm_gradients)
