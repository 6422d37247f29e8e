"""Where and how training runs: device, precision, seeds, interrupts, several processes."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.processes import join, process_count
from labelgrove.core.resources import current
from labelgrove.errors import ConfigError

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str | torch.device | None = None) -> torch.device:
    """The named device, or the caller's; for "auto" the first GPU, or the CPU without one."""
    name = current().device if name is None else name
    if name is None or name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: {name!r} is not a device; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} needs a GPU, but torch finds none; use auto or cpu")
    return device


def device_of(model: nn.Module) -> torch.device:
    """Where the first tensor of a model is."""
    return next(chain(model.parameters(), model.buffers())).device


def choose_precision(name: str, device: torch.device, *, reads: bool = False) -> str:
    """fp32, bf16 or fp16; for "auto" the one that suits the device, to learn or only to read."""
    if name != "auto":
        return name
    if device.type != "cuda":
        # Intel's matrix units read three times as many texts; older versions of torch do not tell.
        has_units = getattr(torch.cpu, "_is_amx_tile_supported", bool)
        return "bf16" if reads and device.type == "cpu" and has_units() else "fp32"
    # Older GPUs emulate bf16, which is slower than fp16 with a scaled loss.
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """A context in which matrix products run in ``precision``."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, _TYPES[precision])


@contextlib.contextmanager
def own_settings(device: torch.device, *, tf32: bool = True) -> Iterator[None]:
    """Turns TF32 products on or off; restores the caller's random state and settings at the end."""
    gpus = [device] if device.type == "cuda" else []
    products = torch.get_float32_matmul_precision()
    with torch.random.fork_rng(gpus):
        try:
            if not tf32:
                torch.set_float32_matmul_precision("highest")
            elif gpus:
                torch.set_float32_matmul_precision("high")
            yield
        finally:
            torch.set_float32_matmul_precision(products)


def derived_seed(*numbers: int) -> int:
    """A seed that depends on all the numbers and on nothing else."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_torch(seed: int, device: torch.device) -> None:
    """Seeds the random numbers of the CPU and of one device, which is faster than seeding all."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def memory_in_use(device: torch.device) -> int | None:
    """Peak memory of tensors on a GPU so far, in bytes; None on the CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


@contextlib.contextmanager
def interrupts_held_back(active: bool = True) -> Iterator[Callable[[], bool]]:
    """Delays a first Ctrl-C in the main thread to the end; the yielded function reports it."""
    usual = signal.default_int_handler
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            usual(number, frame)
        pressed = True

    on_main = threading.current_thread() is threading.main_thread()
    if not (active and on_main and signal.getsignal(signal.SIGINT) is usual):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Workers:
    """This process among those that train together; the methods do nothing if it is alone."""

    device: torch.device
    rank: int = 0
    count: int = 1
    accelerator: Any = None

    @classmethod
    def start(cls, device: torch.device) -> Workers:
        """Joins the processes that ``torchrun`` or ``accelerate launch`` started, if any."""
        if process_count() == 1:
            return cls(device)
        on_cpu = device.type == "cpu"
        accelerator = join(cpu=on_cpu)
        # accelerate names it cpu:0; every tensor would be copied there again.
        place = torch.device("cpu") if on_cpu else accelerator.device
        return cls(place, accelerator.process_index, accelerator.num_processes, accelerator)

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose backward pass leaves all processes' mean gradients."""
        if self.count == 1:
            return module
        for buffer in module.buffers():
            torch.distributed.broadcast(buffer, src=0)
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return module  # no gradients are shared
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has a newer name
            wrapped: nn.Module = self.accelerator.prepare_model(module, device_placement=False)
        return wrapped

    def apart(self, module: nn.Module) -> contextlib.AbstractContextManager[object]:
        """A context in which gradients stay in this process."""
        if self.count == 1:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[object] = self.accelerator.no_sync(module)
        return context

    def agree(self, number: float) -> float:
        """The first process's number, in all processes."""
        if self.count == 1:
            return number
        shared = torch.tensor([number], dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(shared, src=0)
        return float(shared.item())

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over all processes."""
        if self.count == 1:
            return value
        total = value.clone()
        torch.distributed.all_reduce(total)
        return total / self.count

    def gather_rows(self, ids: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The ids and rows of all processes, in the order of the processes."""
        if self.count == 1:
            return ids, values
        padded = self.accelerator.pad_across_processes
        ids, values = self.accelerator.gather((padded(ids, pad_index=-1), padded(values)))
        real = ids >= 0
        return ids[real], values[real]
