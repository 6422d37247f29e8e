"""The engine of many machines: Ray schedules, moves data, and repeats what lost workers had done.

Only this module and ``ray_train.py`` import ray. Everything is left to Ray: tasks whose worker or
machine was lost start again (three times), and lost results are made again from the calls that made
them.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelgrove.core.callbacks import Callback
from labelgrove.core.resources import using
from labelgrove.engines.engine import Engine, Item, Ref, Result
from labelgrove.errors import (
    ConfigError,
    LabelgroveError,
    MissingExtraError,
    ResourceError,
    StorageError,
)

try:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # report nothing to anyone
    import ray
    from ray import exceptions
except ImportError as error:
    raise MissingExtraError("ray", "the engine ray") from error

HOW_TO_GO_ON = (
    "the machines may have too little memory or disk, or too many of them went away; look at "
    "`ray status` and the logs of Ray, then start the command again"
)


class RayEngine(Engine):
    """Runs functions as tasks, a core each, on a running Ray cluster or on one of its own."""

    threads = 1

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"workers: must be at least 1, got {workers}")
        self._owns = not ray.is_initialized()
        if self._owns:
            _connect(address, workers)
        elif address is not None:
            raise ConfigError("address: this process is connected to a Ray cluster already")
        resources = ray.cluster_resources()
        cores = int(resources.get("CPU", 1))
        self._gpus = int(resources.get("GPU", 0))
        self.workers = min(workers or cores, cores)
        self._asked = workers
        self._tasks: dict[Callable[..., object], Ref] = {}

    def put(self, value: object) -> Ref:
        return ray.put(value)

    def call(self, function: Callable[..., object], *arguments: object, gpu: bool = False) -> Ref:
        options = {"num_gpus": 1} if gpu and self._gpus else {}
        return self._task(function).options(**options).remote(*arguments)

    def split(self, function: Callable[..., object], *arguments: object, parts: int) -> list[Ref]:
        refs = self._task(function).options(num_returns=parts).remote(*arguments)
        return refs if parts > 1 else [self.call(_first, refs)]

    def results(self, refs: Sequence[Ref]) -> Iterator[Any]:
        for ref in refs:
            with _plain_errors():
                value = ray.get(ref)
            yield value

    def stream(
        self,
        make: Callable[[], Callable[[Item], Result]],
        items: Iterable[Item],
        *,
        gpu: bool = False,
    ) -> Iterator[Result]:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # it describes its plans at length
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        # As bytes, because Arrow would make other objects of tuples and arrays.
        rows = [{"item": pickle.dumps(item)} for item in items]
        if not rows:
            return
        gpus = self._gpus if gpu else 0
        size = min(self.workers, gpus) if gpus else self.workers
        with _plain_errors():
            data = ray.data.from_items(rows, override_num_blocks=len(rows))
            results = data.map_batches(
                _Worker,
                fn_constructor_args=(make,),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(min_size=1, max_size=size),
                num_cpus=1,
                num_gpus=1 if gpus else None,
            )
            for row in results.iter_rows():
                result = pickle.loads(row["result"])
                if isinstance(result, LabelgroveError):
                    raise result
                yield result

    def together(
        self,
        work: Callable[[Callback], Result],
        *,
        folder: Path,
        device: str,
        threads: int,
        callback: Callback,
    ) -> Result:
        from labelgrove.engines.ray_train import train_together

        return train_together(
            work,
            workers=self._asked,
            cores=threads,
            device=device,
            folder=folder,
            callback=callback,
        )

    def cancel(self, refs: Sequence[Ref]) -> None:
        for ref in refs:
            ray.cancel(ref, force=True)

    def close(self) -> None:
        """Leaves the cluster, if this engine joined it; one of its own ends."""
        if self._owns:
            ray.shutdown()

    def _task(self, function: Callable[..., object]) -> Ref:
        if function not in self._tasks:
            self._tasks[function] = ray.remote(num_cpus=1)(_on_one_core(function))
        return self._tasks[function]


class _Worker:
    """An actor of Ray Data: made once, then given items, one in each batch."""

    def __init__(self, make: Callable[[], Callable[[object], object]]) -> None:
        self.error: LabelgroveError | None = None
        try:
            self.work = make()
        except LabelgroveError as error:  # Ray would take the worker for lost
            self.error = error

    def __call__(self, batch: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        return {"result": [self._answer(item) for item in batch["item"]]}

    def _answer(self, item: bytes) -> bytes:
        try:
            if self.error is not None:
                raise self.error
            return pickle.dumps(self.work(pickle.loads(item)))
        except LabelgroveError as error:  # Ray Data would bury it in its own
            return pickle.dumps(_with_machine(error))


def _on_one_core(function: Callable[..., object]) -> Callable[..., object]:
    """The function as a task; errors of the disk say on which machine they happened."""

    @functools.wraps(function)
    def run(*arguments: object) -> object:
        try:
            with using(threads=RayEngine.threads):
                return function(*arguments)
        except StorageError as error:
            raise _with_machine(error) from error

    return run


def _with_machine(error: LabelgroveError) -> LabelgroveError:
    """An error of the disk with this machine: its path may be on all of them."""
    if not isinstance(error, StorageError):
        return error
    return StorageError(f"{error} (on {ray.util.get_node_ip_address()})")


def _first(values: Sequence[object]) -> object:
    return values[0]


def _connect(address: str | None, workers: int | None) -> None:
    """Joins a cluster, or starts one on this machine."""
    options: dict[str, object] = {"log_to_driver": False, "logging_level": "warning"}
    if address is None:
        # An address in the environment would be taken; a cluster must be asked for by name.
        options |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = "a Ray cluster on this machine" if address is None else address
        raise ConfigError(f"address: cannot join {where}: {error}") from error
    except Exception as error:  # all that Ray raises if it starts too slowly
        if type(error) is not Exception:
            raise
        raise ResourceError(
            f"Ray did not start ({error}); the machine may be too busy: start the command again"
        ) from error


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of functions as these raised them, and a sentence for workers that were lost."""
    try:
        yield
    except exceptions.RayTaskError as error:
        cause: BaseException = error
        while isinstance(cause, exceptions.RayTaskError):
            cause = cause.cause
        if isinstance(cause, LabelgroveError):
            raise cause from None
        if isinstance(cause, exceptions.RayError):
            raise _lost(cause) from error
        raise
    except exceptions.RayError as error:
        raise _lost(error) from error


def _lost(error: Exception) -> LabelgroveError:
    """What to do when Ray could not go on."""
    if isinstance(error, exceptions.OutOfDiskError):
        return StorageError(
            "a machine has no room for more data, neither in Ray's memory nor on the disk that Ray "
            "uses when its memory is full (see `df` on the machines); make room on this disk, or "
            "add machines, then start again"
        )
    return ResourceError(f"Ray lost a worker for good ({error}); {HOW_TO_GO_ON}")
