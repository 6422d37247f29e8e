"""Where training runs and in what arithmetic: device, precision, seeds, and several processes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

from labelgrove.core.processes import process_count
from labelgrove.errors import ConfigError, MissingExtraError

try:
    import torch
    from torch import Tensor, nn
except ImportError as missing:
    raise MissingExtraError("torch", "training a neural model") from missing

_COLLECTIVE_TIMEOUT = timedelta(hours=6)  # one process evaluates while the others wait
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str | torch.device | None = None) -> torch.device:
    """The device asked for, or the first GPU, or the CPU.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name is None or name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: {name!r} is not a device; say auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {name} was asked for, but torch finds no GPU; say auto or cpu")
    return device


def choose_precision(name: str, device: torch.device) -> str:
    """fp32, bf16 or fp16: what was asked for, or what suits the device.

    >>> choose_precision("auto", torch.device("cpu"))
    'fp32'
    """
    if name != "auto":
        return name
    if device.type != "cuda":
        return "fp32"
    # Older GPUs emulate bf16, which is slower than fp16 with a scaled loss.
    return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """A context in which matrix products run in ``precision``.

    >>> with autocast("bf16", torch.device("cpu")):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.bfloat16
    """
    if precision == "fp32":
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[Any] = torch.autocast(device.type, _TYPES[precision])
    return context


@contextlib.contextmanager
def own_settings(device: torch.device) -> Iterator[None]:
    """TF32 products on, and the caller's random state and settings untouched afterwards.

    >>> with own_settings(torch.device("cpu")):
    ...     _ = torch.manual_seed(0)
    """
    gpus = [device] if device.type == "cuda" else []
    products = torch.get_float32_matmul_precision()
    with torch.random.fork_rng(gpus):
        try:
            if gpus:
                torch.set_float32_matmul_precision("high")
            yield
        finally:
            torch.set_float32_matmul_precision(products)


def derived_seed(*numbers: int) -> int:
    """A seed that depends on all the numbers, and on nothing else.

    Every update seeds torch with (seed, update, process). So no random state needs to be stored,
    and nothing that happens between two updates can change the next one.

    >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(1, 0)
    (True, False)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_torch(seed: int, device: torch.device) -> None:
    """Seeds the CPU's and the device's random numbers; quicker than seeding every device.

    >>> seed_torch(3, torch.device("cpu"))
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def memory_in_use(device: torch.device) -> int | None:
    """The most memory that tensors held on a GPU so far, in bytes; None on the CPU.

    >>> memory_in_use(torch.device("cpu")) is None
    True
    """
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


@dataclass(frozen=True)
class Workers:
    """This process among those that train together; alone, all its methods do nothing.

    >>> workers = Workers.start("cpu")
    >>> workers.rank, workers.count, workers.agree(3.0)
    (0, 1, 3.0)
    """

    device: torch.device
    rank: int = 0
    count: int = 1
    accelerator: Any = None

    @classmethod
    def start(cls, device: str | torch.device | None = None) -> Workers:
        """Joins the processes that ``torchrun`` or ``accelerate launch`` started, if any did."""
        if process_count() == 1:
            return cls(choose_device(device))
        try:
            import accelerate
        except ImportError as error:
            raise MissingExtraError("torch", "training in several processes") from error
        on_cpu = choose_device(device).type == "cpu"
        accelerator = accelerate.Accelerator(
            cpu=on_cpu,
            mixed_precision="no",  # the loop casts by itself
            kwargs_handlers=[
                accelerate.InitProcessGroupKwargs(timeout=_COLLECTIVE_TIMEOUT),
                accelerate.DistributedDataParallelKwargs(
                    # Label tables are buffers: we send them once at the start.
                    broadcast_buffers=False,
                    gradient_as_bucket_view=True,
                ),
            ],
        )
        # accelerate says cpu:0, to which tensors would be copied again and again.
        place = torch.device("cpu") if on_cpu else accelerator.device
        return cls(place, accelerator.process_index, accelerator.num_processes, accelerator)

    def wrap(self, module: nn.Module) -> nn.Module:
        """A module whose backward pass leaves the mean of all processes' gradients."""
        if self.count == 1:
            return module
        for buffer in module.buffers():
            torch.distributed.broadcast(buffer, src=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has a newer name
            wrapped: nn.Module = self.accelerator.prepare_model(module, device_placement=False)
        return wrapped

    def apart(self, module: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """A context in which gradients stay with this process."""
        if self.count == 1:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[Any] = self.accelerator.no_sync(module)
        return context

    def agree(self, number: float) -> float:
        """The first process's number, in all of them."""
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
        """Every process's ids and rows, one process after the other."""
        if self.count == 1:
            return ids, values
        mine = torch.tensor([len(ids)], device=ids.device)
        lengths = [torch.zeros_like(mine) for _ in range(self.count)]
        torch.distributed.all_gather(lengths, mine)
        sizes = [int(length.item()) for length in lengths]
        return self._gathered(ids, sizes), self._gathered(values, sizes)

    def _gathered(self, rows: Tensor, sizes: list[int]) -> Tensor:
        padded = rows.new_zeros((max(sizes), *rows.shape[1:]))
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in sizes]
        torch.distributed.all_gather(gathered, padded)
        return torch.cat([part[:size] for part, size in zip(gathered, sizes, strict=True)])
