"""Functions and small trainings of networks that the workers of tests import by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove import Corpus
from labelgrove.core.callbacks import Callback, Event
from labelgrove.core.processes import is_first_process, wait_for_all
from labelgrove.errors import ConfigError, DataError, StorageError
from labelgrove.methods import create
from labelgrove.methods.base import Model
from support.small_models import planted

METHODS = ("cascadexml", "lightxml", "xrtransformer", "xtransformer")
# Without dropout: processes draw different random numbers. Rates are those of every number of
# processes, and every update is reported.
TRAINING: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 8,
    "lr": 1e-3,
    "head_lr": 1e-2,
    "log_every": 1,
}


def settings(method: str, encoder: Path, **training: Any) -> dict[str, Any]:
    """A method's settings, with some of their own for the training."""
    heads: dict[str, Any] = {"dropout": 0.0}  # its random numbers differ between processes
    if method == "cascadexml":
        heads["mix_dropout"] = 0.0
    return {
        "encoder": {"encoder": str(encoder), "max_tokens": 12},
        "training": TRAINING | training,
        "heads": heads,
        "held_out": 0.0,
        "device": "cpu",
    }


def flags(settings: dict[str, Any]) -> list[str]:
    """Settings for the command line."""
    pairs: list[str] = []
    for name, value in settings.items():
        table = value if isinstance(value, dict) else {"": value}
        pairs += [f"{name}.{key}".rstrip(".") + f"={inner}" for key, inner in table.items()]
    return [flag for pair in pairs for flag in ("--set", pair)]


@dataclass(frozen=True)
class Curves:
    """Trains a model of each method; returns the loss of every update.

    An update sees so many ``batches`` in each process.
    """

    encoder: Path
    batches: int = 1

    def __call__(self, tell: Callback) -> dict[str, list[float]]:
        curves: dict[str, list[float]] = {}
        for method in METHODS:
            losses = curves[method] = []

            def note(event: Event, losses: list[float] = losses) -> None:
                if "loss" in event.values:
                    losses.append(event.values["loss"])

            model: Any = create(method, settings(method, self.encoder, accumulate=self.batches))
            model.fit(Corpus.from_lists(*planted(60)), callbacks=[note])
        return curves


@dataclass(frozen=True)
class AtUpdate:
    """Does something in the first process when ``work`` has made so many updates."""

    work: Callable[[Callback], Any]
    update: int
    act: Callable[[], None]

    def __call__(self, tell: Callback) -> Any:
        def note(event: Event) -> None:
            tell(event)
            if event.values.get("step") == self.update:
                self.act()

        return self.work(note)


def die_once(folder: Path) -> str:
    """Kills its own process on the first call."""
    marker = folder / "died"
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def wait_for(marker: Path) -> None:
    """Waits until there is such a file, or this process is killed."""
    while not marker.exists():
        time.sleep(0.05)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_training(tell: Callback) -> None:
    die()


def fail(tell: Callback) -> None:
    raise ZeroDivisionError("a mistake in the code")


def refuse_in_the_first(tell: Callback) -> None:
    """The first process has an error while the others wait for it."""
    if is_first_process():
        raise StorageError("out: no space left on device")
    wait_for_all("cpu")


def variables(tell: Callback) -> tuple[str, str]:
    return os.environ["WORLD_SIZE"], os.environ["OMP_NUM_THREADS"]


def arrays(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    """Everything that a model has learnt."""
    parts = model.parts().items()
    return {f"{name} {key}": a for name, part in parts for key, a in part.arrays.items()}


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
