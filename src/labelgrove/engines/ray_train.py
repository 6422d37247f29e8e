"""One training in several Ray workers, which Ray Train starts as torchrun would.

Everything is left to Ray Train: it places the workers, sets torch's variables and its process
group, and starts all of them again when one was lost. They continue from checkpoints of their own.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import ray
from ray.util.queue import Empty, Queue
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from labelgrove.core.callbacks import Callback, Event
from labelgrove.core.processes import TIMEOUT
from labelgrove.engines.engine import Result
from labelgrove.errors import ConfigError, LabelgroveError, MissingExtraError, ResourceError

try:
    from ray.train import (
        ControllerError,
        FailureConfig,
        RunConfig,
        ScalingConfig,
        TrainingFailedError,
        WorkerGroupError,
        get_context,
    )
    from ray.train.torch import TorchConfig, TorchTrainer
except ImportError as error:
    extra = "ray" if "ray" in str(error) else "torch"
    raise MissingExtraError(extra, "training a network with the engine ray") from error

RESTARTS = 3  # after workers were lost; the same number as for tasks
WAITS = 4  # further times that Ray waits, a minute each, for cores that it needs
PAUSE = 0.5  # seconds between two looks at whether training has ended
NAME = "ray"  # the folder for Ray Train's own files
HOW_TO_GO_ON = (
    "look at `ray status` and the logs of Ray, then start the command again with --resume; it "
    "continues from the last checkpoint"
)


def train_together(
    work: Callable[[Callback], Result],
    *,
    workers: int | None,
    cores: int,
    device: str,
    folder: Path,
    callback: Callback,
) -> Result:
    """What :meth:`labelgrove.engines.Engine.together` describes."""
    count, gpus = _room(workers, cores, device)
    # They must live as long as this process, so not on a machine that may go away before it.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"num_cpus": 0, "scheduling_strategy": here}
    events, refusals = Queue(actor_options=options), Queue(actor_options=options)
    trainer = TorchTrainer(
        _train,
        train_loop_config={
            "work": work,
            "events": events,
            "refusals": refusals,
            "folder": str(Path.cwd()),
        },
        torch_config=TorchConfig(timeout_s=int(TIMEOUT.total_seconds())),
        scaling_config=ScalingConfig(
            num_workers=count,
            use_gpu=gpus,
            resources_per_worker={"CPU": cores} | ({"GPU": 1} if gpus else {}),
        ),
        run_config=RunConfig(
            name=NAME,
            storage_path=str(folder.resolve()),
            failure_config=FailureConfig(max_failures=RESTARTS, controller_failure_limit=WAITS),
        ),
    )
    shutil.rmtree(folder / NAME, ignore_errors=True)  # of a command that was killed
    try:
        with _sentences(count):
            outcome = _started(trainer)
            _forward(events, callback, outcome)
            if not refusals.empty():
                raise refusals.get()
            result: Result = outcome.result().return_value
            return result
    finally:
        for queue in (events, refusals):
            with suppress(ray.exceptions.RayError):
                queue.shutdown(force=True)
        shutil.rmtree(folder / NAME, ignore_errors=True)


def _room(workers: int | None, cores: int, device: str) -> tuple[int, bool]:
    """How many workers to start, and whether each gets a GPU."""
    resources = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(resources.get("GPU", 0))
    if not gpus and device not in ("auto", "cpu"):
        raise ConfigError(f"device: {device} needs GPUs, but the cluster has none; use auto or cpu")
    room = int(resources.get("CPU", 0)) // cores
    what = f"{cores} cores each" if cores > 1 else "a core each"
    if gpus:
        room, what = min(room, gpus), f"a GPU and {what}"
    if not 1 <= (workers or room) <= room:
        raise ConfigError(
            f"workers: the cluster has room for {room} workers with {what}, not for "
            f"{workers or 1}; ask for fewer workers or threads, or add machines"
        )
    return workers or room, gpus > 0


def _train(config: dict[str, Any]) -> Any:
    """Runs in every worker."""
    work, events, refusals = config["work"], config["events"], config["refusals"]
    with suppress(OSError):  # relative paths mean what they mean to the command, if they can
        os.chdir(config["folder"])
    if not refusals.empty():
        return None  # another try would end in the same way
    if get_context().get_world_rank() == 0:
        events.put(None)
    try:
        return work(events.put)
    except LabelgroveError as error:
        refusals.put(error)
        raise  # so that Ray ends the others, which may wait for this one


def _started(trainer: Any) -> Future[Any]:
    """Trains in a thread: in the main one, Ray Train would take over Ctrl-C and end the process."""
    outcome: Future[Any] = Future()

    def fit() -> None:
        try:
            outcome.set_result(trainer.fit())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=fit, daemon=True).start()
    return outcome


def _forward(events: Queue, callback: Callback, outcome: Future[Any]) -> None:
    """Gives the first worker's events to ``callback`` until training has ended."""
    starts = 0
    stages: list[str] = []  # that have begun and not ended
    while True:
        over = outcome.done()  # before the look into the queue, so that no event is left there
        try:
            event = events.get(timeout=PAUSE)
        except Empty:
            if over:
                return
            continue
        if event is not None:
            if event.kind == "stage_start":
                stages.append(event.stage)
            elif event.kind == "stage_end" and event.stage in stages:
                stages.remove(event.stage)
            callback(event)
            continue
        starts += 1
        if starts > 1:
            for stage in stages:
                callback(Event("stage_end", stage, values={"error": "a worker was lost"}))
            stages.clear()
            text = "a worker was lost; all start again and continue from the last checkpoint"
            callback(Event("message", values={"text": text}))


@contextmanager
def _sentences(count: int) -> Iterator[None]:
    """Says in one sentence why Ray gave up."""
    try:
        yield
    except ControllerError as error:
        cause = _first_line(error.controller_failure)
        raise ResourceError(
            f"Ray could not start {count} workers ({cause}); machines went away, or other programs "
            f"use their cores; {HOW_TO_GO_ON}"
        ) from error
    except WorkerGroupError as error:
        causes = list(error.worker_failures.values())
        # A lost worker breaks the connections of the others, so their errors say less.
        lost = [cause for cause in causes if isinstance(cause, ray.exceptions.RayError)]
        cause = _first_line((lost or causes)[0])
        raise ResourceError(
            f"the workers failed again and again, the last time with: {cause}; {HOW_TO_GO_ON}"
        ) from error
    except (TrainingFailedError, ray.exceptions.RayError) as error:
        raise ResourceError(f"Ray gave up ({_first_line(error)}); {HOW_TO_GO_ON}") from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
