"""Progress: the events that training sends, and the callbacks that show or record them.

A callback is any function of one :class:`Event`. An error raised in a callback reaches the caller
of ``fit``: that is how to stop a run. A :class:`Reporter` sends the events and measures time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from labelgrove.core import jsonio
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import peak_rss
from labelgrove.core.processes import is_first_process
from labelgrove.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

Kind = Literal["stage_start", "progress", "stage_end", "metrics", "message"]


@dataclass(frozen=True)
class Event:
    """Something happened in ``stage``, of which ``done`` of ``total`` steps are finished.

    ``values`` holds metrics, a message's ``text``, and at ``stage_end`` the seconds spent and, if
    the stage failed, the name of the ``error``. ``time`` is seconds since 1970.
    """

    kind: Kind
    stage: str = ""
    done: float = 0
    total: float | None = None
    values: JsonObject = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def record(self) -> JsonObject:
        """The event as one JSON-able record."""
        names = ("time", "kind", "stage", "done", "total")
        values = {str(name): _recordable(value) for name, value in self.values.items()}
        return {name: getattr(self, name) for name in names} | {"values": values}


Callback = Callable[[Event], None]


@dataclass
class StageTiming:
    """Seconds spent in a stage over all its runs: wall time, and CPU time of all our threads.

    ``peak_memory`` is the most bytes the process had ever held when the stage last ended. A stage
    is ``reused`` if its stored result was read instead of computed.
    """

    wall: float = 0.0
    cpu: float = 0.0
    runs: int = 0
    peak_memory: int | None = None
    reused: bool = False


class Reporter:
    """Sends events to callbacks, progress every ``interval`` seconds, and measures stages."""

    def __init__(self, callbacks: Iterable[Callback] = (), *, interval: float = 0.1) -> None:
        self.callbacks = list(callbacks)
        self.interval = interval
        self.timings: dict[str, StageTiming] = {}

    def send(self, event: Event) -> None:
        """Gives every callback the event, then raises the first error that one of them raised."""
        failure: BaseException | None = None
        for callback in self.callbacks:
            try:
                callback(event)
            except BaseException as error:  # a progress bar must still get the event
                failure = failure or error
        if failure is not None:
            raise failure

    def message(self, text: str, *, stage: str = "") -> None:
        """Sends a sentence for people."""
        self.send(Event("message", stage, values={"text": text}))

    def metrics(self, values: JsonObject, *, stage: str = "") -> None:
        """Sends measured values."""
        self.send(Event("metrics", stage, values=values))

    @contextlib.contextmanager
    def stage(self, name: str, *, total: float | None = None) -> Iterator[Stage]:
        """A timed stage; its end is sent however the block is left."""
        stage = Stage(self, name, total)
        wall, cpu = time.perf_counter(), time.process_time()
        values: JsonObject = {}
        try:
            self.send(Event("stage_start", name, total=total))
            yield stage
        except BaseException as error:
            values["error"] = type(error).__name__
            raise
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            timing = self.timings.setdefault(name, StageTiming())
            timing.wall += wall
            timing.cpu += cpu
            timing.runs += 1
            timing.peak_memory = peak_rss()
            timing.reused = stage.reused
            values |= {"wall_seconds": wall, "cpu_seconds": cpu}
            # The caller must see the first error, not what a callback raises about its end.
            with contextlib.suppress(Exception) if "error" in values else contextlib.nullcontext():
                self.send(Event("stage_end", name, stage.done, total, values))


class Stage:
    """The object of a ``with reporter.stage(...)`` block: counts steps and sends metrics."""

    def __init__(self, reporter: Reporter, name: str, total: float | None) -> None:
        self.name = name
        self.total = total
        self.done: float = 0
        self.reused = False
        self._reporter = reporter
        self._sent = time.monotonic()

    def advance(self, steps: float = 1) -> None:
        """Counts ``steps`` more as done."""
        self.done += steps
        now = time.monotonic()
        if now - self._sent >= self._reporter.interval or self.done == self.total:
            self._sent = now
            self._reporter.send(Event("progress", self.name, self.done, self.total))

    def update(self, done: float, total: float) -> None:
        """Reports ``done`` of ``total`` steps, where the total was not known before."""
        self.total = total
        self.advance(done - self.done)

    def metrics(self, **values: object) -> None:
        """Sends measured values of this stage, with the step they belong to."""
        self._reporter.send(Event("metrics", self.name, self.done, self.total, values))


class JsonlLog:
    """Appends events to a file, one JSON record per line; progress at most every few seconds."""

    def __init__(self, path: str | Path, *, interval: float = 5.0) -> None:
        self.path = Path(path)
        self.interval = interval
        self._logged: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if event.kind == "progress" and event.done != event.total:
            if event.time - self._logged.get(event.stage, -self.interval) < self.interval:
                return
            self._logged[event.stage] = event.time
        jsonio.append_line(self.path, event.record())


class RichProgress:
    """Progress bars on a terminal (stderr), plain lines in a log; only in the first process.

    The bars exist while a stage is open, so the terminal is restored when the last stage ends, also
    after an error or Ctrl-C. A log gets messages, evaluations, and one measurement per minute.
    """

    PAUSE = 60.0  # seconds between two measurements in a log

    def __init__(self, *, console: Console | None = None) -> None:
        self._prints = is_first_process()
        if console is None and sys.stderr.isatty() and self._prints:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
        self._measured = 0.0  # when a measurement was last written to a log
        self._progress: Progress | None = None
        self._tasks: dict[str, list[TaskID]] = {}

    def __call__(self, event: Event) -> None:
        if self._console is None:
            self._log(event)
        elif event.kind == "stage_start":
            bar = self._display().add_task(event.stage, total=event.total)
            self._tasks.setdefault(event.stage, []).append(bar)
        elif event.kind == "progress" and self._tasks.get(event.stage):
            bar = self._tasks[event.stage][-1]
            self._display().update(bar, completed=event.done, total=event.total)
        elif event.kind == "stage_end" and self._tasks.get(event.stage):
            self._end(event)
        elif event.kind in ("message", "metrics"):
            self._console.print(_line(event), markup=False, highlight=event.kind == "message")

    def close(self) -> None:
        """Removes the bars and restores the terminal."""
        self._tasks.clear()
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _display(self) -> Progress:
        if self._progress is None:
            from rich import progress as bars

            self._progress = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                bars.BarColumn(),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TextColumn("left"),
                bars.TimeRemainingColumn(),
                console=self._console,
                # Text printed meanwhile goes above the bars, unless stdout is a pipe or file.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._progress.start()
        return self._progress

    def _log(self, event: Event) -> None:
        if not self._prints or event.kind not in ("message", "metrics"):
            return
        if event.kind == "metrics" and "score" not in event.values:
            if event.time - self._measured < self.PAUSE:
                return
            self._measured = event.time
        print(_line(event), file=sys.stderr, flush=True)

    def _end(self, event: Event) -> None:
        try:
            bar = self._tasks[event.stage].pop()
            if event.total is None and "error" not in event.values:
                self._display().update(bar, total=max(event.done, 1), completed=max(event.done, 1))
            self._display().stop_task(bar)
        finally:
            if not any(self._tasks.values()):
                self.close()


def _recordable(value: object) -> object:
    try:
        return jsonio.plain(value)
    except ConfigError:
        return str(value)  # an odd value in a log must not stop a day's training


def _line(event: Event) -> str:
    if event.kind == "message":
        return str(event.values.get("text", ""))
    known = {name: value for name, value in event.values.items() if value is not None}
    pairs = (f"{n} {v:.4g}" if isinstance(v, float) else f"{n} {v}" for n, v in known.items())
    return f"{event.stage} {'  '.join(pairs)}".strip()
