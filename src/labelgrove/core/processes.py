"""Several processes that train one model, started by torchrun, ``accelerate launch`` or Ray Train.

All of them do the same work on the same documents and share out the batches of networks. Only the
first one writes to folders and prints.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from labelgrove.errors import MissingExtraError

MAX_THREADS = 1024  # every thread has memory of its own; more than this is a slip of the pen
TIMEOUT = timedelta(hours=6)  # the other processes wait while the first one evaluates


def process_count() -> int:
    """How many processes train together; 1 unless a launcher set the variables for it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first_process() -> bool:
    """Whether this process writes and prints; a process on its own does."""
    return process_count() == 1 or os.environ["RANK"] == "0"


def join(*, cpu: bool) -> Any:
    """Joins the processes that a launcher started; returns accelerate's ``Accelerator``."""
    try:
        import accelerate
    except ImportError as error:
        raise MissingExtraError("torch", "training in several processes") from error
    return accelerate.Accelerator(
        cpu=cpu,
        mixed_precision="no",  # the training loop casts by itself
        kwargs_handlers=[
            accelerate.InitProcessGroupKwargs(timeout=TIMEOUT),
            accelerate.DistributedDataParallelKwargs(
                broadcast_buffers=False,  # label tables are buffers; we send them once
                gradient_as_bucket_view=True,
            ),
        ],
    )


def wait_for_all(device: str | None = None) -> None:
    """Waits until every process has called this; returns at once in a process on its own."""
    if process_count() > 1:
        import torch

        auto = device in (None, "auto")
        join(cpu=device == "cpu" or (auto and not torch.cuda.is_available())).wait_for_everyone()
