"""Functions that the workers of tests import by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.errors import ConfigError, DataError, StorageError


def halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def joined(first: str, second: str) -> str:
    return first + second


def listed(item: str) -> list[str]:
    return [item]


def power(base: int, exponent: int) -> int:
    return base**exponent


def negative(array: Any) -> Any:
    return -array


def ones(count: int) -> Any:
    return np.ones(count, np.uint8)


def refuse(number: int) -> int:
    raise DataError("is not a number", file="a.jsonl", line=number)


def overflow(path: str) -> None:
    raise StorageError(f"{path}: cannot be written: the disk is full")


def divide(number: int) -> float:
    return 1 / number


def die_once(folder: str) -> str:
    """Kills its own process on the first call."""
    marker = Path(folder, "died")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def process_of(item: int) -> tuple[int, int]:
    time.sleep(0.05)
    return item, os.getpid()


def meet(name: str, folder: str) -> bool:
    """Whether another call came here within a minute: only if both run at the same time."""
    Path(folder, name).touch()
    deadline = time.monotonic() + 60
    while len([*Path(folder).iterdir()]) < 2:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def make_counter() -> Callable[[int], tuple[int, int, int]]:
    """A worker that says how often it was made, in which process, and what it got."""
    made = time.monotonic_ns()

    def work(item: int) -> tuple[int, int, int]:
        return item, os.getpid(), made

    return work


def make_refusing() -> Callable[[int], int]:
    return refuse


def make_nothing() -> Callable[[int], int]:
    raise ConfigError("device: there is none")


def name_gpus(_: int) -> str:
    """The numbers of the GPUs that Ray lets this process see."""
    import ray  # these functions are also used where it is not installed

    return ",".join(map(str, ray.get_gpu_ids()))


def make_naming_gpus() -> Callable[[int], str]:
    return name_gpus
