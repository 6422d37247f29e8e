"""The stages of one training run: each is announced, timed, and reused when a run folder has it.

A stage is a function call. Its key is the hash of the call's arguments and of a version number,
so there is no list of inputs to keep by hand: what the function is given is what it depends on.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from labelgrove.core.callbacks import Callback, Event, Reporter
from labelgrove.core.params import Params
from labelgrove.core.part import Part
from labelgrove.disk.run_folder import RunFolder, stage_key
from labelgrove.errors import ConfigError

T = TypeVar("T")

# Arguments that say how a stage runs and never what comes out of it.
SILENT = frozenset({"threads", "device", "progress", "checkpoints", "scratch", "stops"})


class Session(NamedTuple):
    """Who hears how a long stage goes, and the folder of its checkpoints, if there is one."""

    reporter: Reporter
    checkpoints: Path | None = None


class CachedResult(Generic[T]):
    """A value with the key that stands for it among the arguments of later stages.

    The value is made when it is first used, so a stage that is reused costs its inputs nothing.
    """

    def __init__(self, make: Callable[[], T], key: str) -> None:
        self._make = make
        self.key = key

    @cached_property
    def value(self) -> T:
        return self._make()


class Stages:
    """Runs functions as named stages, through a reporter and, if there is one, a run folder."""

    def __init__(self, reporter: Reporter, run: RunFolder | None = None) -> None:
        if isinstance(run, (str, Path)):
            raise ConfigError(
                f"run: must be a run folder: labelgrove.disk.run_folder.RunFolder({str(run)!r})"
            )
        self.reporter = reporter
        self.run = run
        self.stops: list[Callback] = []  # callbacks that end work in the background
        self._threads: list[threading.Thread] = []
        self._closed = threading.Event()

    def __call__(
        self, name: str, function: Callable[..., T], /, *, version: int = 1, **arguments: object
    ) -> CachedResult[T]:
        """What ``function(**arguments)`` gives, now or in an earlier run with equal arguments.

        A CachedResult argument reaches the function as its value. Raise ``version`` when the
        function comes to compute something else from the same arguments. Functions that ask for
        ``progress``, ``checkpoints`` (a folder, or None) or a ``session`` get them.
        """
        with self.reporter.stage(name) as progress:

            def compute() -> T:
                progress.reused = False
                given = {
                    k: v.value if isinstance(v, CachedResult) else v for k, v in arguments.items()
                }
                asked = inspect.signature(function).parameters
                if "progress" in asked:
                    given["progress"] = progress.update
                if "checkpoints" in asked:
                    given["checkpoints"] = self._checkpoint_folder(name)
                if "session" in asked:
                    # Another reporter: this stage counts the seconds already.
                    reporter = Reporter(self.reporter.callbacks)
                    given["session"] = Session(reporter, self._checkpoint_folder(name))
                return function(**given)

            if self.run is None:
                value = compute()
                return CachedResult(lambda: value, "")
            progress.reused = True
            key = self._key(name, arguments | {"version": version})
            part = self.run.stage(name, {"key": key}, lambda: _part(compute()))
            restored = _restored(function, part)
            return CachedResult(lambda: restored, key)

    def derive(self, make: Callable[[], T], /, **arguments: object) -> CachedResult[T]:
        """A value that is cheap to make, or made only if needed, known by ``arguments``."""
        return CachedResult(make, self._key("derived", arguments))

    def background(self, work: Callable[[Stages], T]) -> Callable[[], T]:
        """Starts ``work`` in a thread; the function that comes back waits for the result.

        Work that should end with :meth:`close` calls back the ``stops`` of its silent stages.
        """
        own, future = Stages(Reporter(), self.run), Future[T]()
        own.stops = [self._stop_if_closed]

        def run() -> None:
            try:
                future.set_result(work(own))
            except BaseException as error:
                future.set_exception(error)

        def result() -> T:
            value = future.result()
            for name, timing in own.reporter.timings.items():
                # Its CPU time is part of the stages that ran in the meantime.
                self.reporter.timings[name] = replace(timing, cpu=0.0)
            return value

        # A thread starts without the caller's resources; with a copy of the context it has them.
        thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return result

    def close(self) -> None:
        """Ends all work in the background, finished or not."""
        self._closed.set()
        for thread in self._threads:
            thread.join()

    def _stop_if_closed(self, _: Event) -> None:
        if self._closed.is_set():
            raise InterruptedError("the training has ended")

    def _key(self, name: str, arguments: Mapping[str, object]) -> str:
        """Without a run folder nothing is hashed at all."""
        if self.run is None:
            return ""
        inputs = {key: _input(value) for key, value in arguments.items() if key not in SILENT}
        return stage_key(name, inputs)

    def _checkpoint_folder(self, name: str) -> Path | None:
        if self.run is None:
            return None
        own = self.run.checkpoint(name)
        if not own.steps() and own.others():
            self.reporter.message(
                f"{name}: starts from the beginning; the checkpoints in {self.run.path} belong to "
                "other settings"
            )
        return own.folder


def _input(argument: object) -> object:
    """What an argument is known by."""
    if isinstance(argument, CachedResult):
        return argument.key
    return argument.identity() if isinstance(argument, Params) else argument


def _part(result: Any) -> Part:
    return result if isinstance(result, Part) else result.state()


def _restored(function: Callable[..., T], part: Part) -> T:
    """The part as the class that the function is annotated to return."""
    kind: Any = function.__annotations__["return"]
    if isinstance(kind, str):
        kind = eval(kind, inspect.unwrap(getattr(function, "__func__", function)).__globals__)
    return part if kind is Part else kind.from_state(part)  # type: ignore[return-value]
