"""Progress: events that training sends out, and the listeners that show or record them.

A callback is any function of one :class:`Event`. What a callback raises reaches the caller of
``fit``: that is how to stop a run. A :class:`Reporter` sends the events and keeps the time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from labelgrove.core import jsonio
from labelgrove.core.memory import peak_rss
from labelgrove.core.processes import is_first_process
from labelgrove.errors import ConfigError

Kind = Literal["stage_start", "progress", "stage_end", "metrics", "message"]


@dataclass(frozen=True)
class Event:
    """Something happened in ``stage``; ``done`` of ``total`` steps are behind it.

    ``values`` holds metrics, a message's ``text``, and at ``stage_end`` the seconds spent and, when
    the stage failed, the name of the ``error``. ``time`` is seconds since 1970.

    >>> Event("progress", "tf-idf", done=3, total=9).done
    3
    """

    kind: Kind
    stage: str = ""
    done: float = 0
    total: float | None = None
    values: dict[str, Any] = field(default_factory=dict)
    time: float = field(default_factory=time.time)

    def record(self) -> dict[str, Any]:
        """The event as one JSON-able record.

        >>> sorted(Event("message", time=0.0).record())
        ['done', 'kind', 'stage', 'time', 'total', 'values']
        """
        names = ("time", "kind", "stage", "done", "total")
        values = {str(name): _recordable(value) for name, value in self.values.items()}
        return {name: getattr(self, name) for name in names} | {"values": values}


Callback = Callable[[Event], None]


@dataclass
class Timing:
    """Seconds spent in a stage, over all its runs: by the clock, and by all our threads.

    ``peak_memory`` is the most bytes that the process had held when the stage last ended. A stage
    was ``reused`` if its result was found and only read.
    """

    wall: float = 0.0
    cpu: float = 0.0
    runs: int = 0
    peak_memory: int | None = None
    reused: bool = False


class Reporter:
    """Sends events to callbacks and measures stages; ``timings`` says where the time went.

    Progress goes out at most every ``interval`` seconds, so that ``advance`` can be called often.

    >>> events = []
    >>> reporter = Reporter([events.append], interval=0)
    >>> with reporter.stage("tf-idf", total=2) as stage:
    ...     stage.advance(2)
    >>> [event.kind for event in events], list(reporter.timings)
    (['stage_start', 'progress', 'stage_end'], ['tf-idf'])
    """

    def __init__(self, callbacks: Iterable[Callback] = (), *, interval: float = 0.1) -> None:
        self.callbacks = list(callbacks)
        self.interval = interval
        self.timings: dict[str, Timing] = {}

    def send(self, event: Event) -> None:
        """Gives every callback the event, then raises the first error one of them raised.

        >>> Reporter([print]).send(Event("message", values={"text": "hi"}, time=0.0))
        Event(kind='message', stage='', done=0, total=None, values={'text': 'hi'}, time=0.0)
        """
        failure: BaseException | None = None
        for callback in self.callbacks:
            try:
                callback(event)
            except BaseException as error:  # a progress bar must hear of the end even then
                failure = failure or error
        if failure is not None:
            raise failure

    def message(self, text: str, *, stage: str = "") -> None:
        """Sends a sentence for people.

        >>> Reporter().message("3 labels have no documents")
        """
        self.send(Event("message", stage, values={"text": text}))

    def metrics(self, values: dict[str, Any], *, stage: str = "") -> None:
        """Sends measured values.

        >>> Reporter().metrics({"P@1": 0.8})
        """
        self.send(Event("metrics", stage, values=values))

    @contextlib.contextmanager
    def stage(self, name: str, *, total: float | None = None) -> Iterator[Stage]:
        """A timed stage; its end is sent however the block is left.

        >>> with Reporter().stage("tree"):
        ...     pass
        """
        stage = Stage(self, name, total)
        wall, cpu = time.perf_counter(), time.process_time()
        values: dict[str, Any] = {}
        try:
            self.send(Event("stage_start", name, total=total))
            yield stage
        except BaseException as error:
            values["error"] = type(error).__name__
            raise
        finally:
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            timing = self.timings.setdefault(name, Timing())
            timing.wall += wall
            timing.cpu += cpu
            timing.runs += 1
            timing.peak_memory = peak_rss()
            timing.reused = stage.reused
            values |= {"wall_seconds": wall, "cpu_seconds": cpu}
            # What went wrong first is what the caller must see, not a listener's second complaint.
            with contextlib.suppress(Exception) if "error" in values else contextlib.nullcontext():
                self.send(Event("stage_end", name, stage.done, total, values))


class Stage:
    """What a ``with reporter.stage(...)`` block gets: counts steps and sends metrics."""

    def __init__(self, reporter: Reporter, name: str, total: float | None) -> None:
        self.name = name
        self.total = total
        self.done: float = 0
        self.reused = False
        self._reporter = reporter
        self._sent = time.monotonic()

    def advance(self, steps: float = 1) -> None:
        """Counts ``steps`` more as done.

        >>> with Reporter().stage("tree") as stage:
        ...     stage.advance(); stage.done
        1
        """
        self.done += steps
        now = time.monotonic()
        if now - self._sent >= self._reporter.interval or self.done == self.total:
            self._sent = now
            self._reporter.send(Event("progress", self.name, self.done, self.total))

    def update(self, done: float, total: float) -> None:
        """Says that ``done`` of ``total`` steps are behind, where the total was not known before.

        >>> with Reporter().stage("tree") as stage:
        ...     stage.update(3, 9); stage.done
        3
        """
        self.total = total
        self.advance(done - self.done)

    def metrics(self, **values: Any) -> None:
        """Sends measured values of this stage, with the step they belong to.

        >>> with Reporter().stage("train") as stage:
        ...     stage.metrics(loss=0.7)
        """
        self._reporter.send(Event("metrics", self.name, self.done, self.total, values))


class JsonlLog:
    """Appends events to a file, one JSON record a line; progress at most every few seconds.

    >>> import tempfile; file = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> JsonlLog(file)(Event("message", values={"text": "hi"}))
    >>> '"hi"' in file.read_text()
    True
    """

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
    """Progress bars on the terminal (stderr), plain lines in a log; in the first process alone.

    A log gets what is said and every evaluation, and of other measurements one a minute. The
    display lives while a stage is open, so that the terminal is whole again when the last one
    ends, also by an error or Ctrl-C. As a context manager it makes doubly sure.

    >>> with RichProgress() as progress:  # here stderr is no terminal: no bar is shown
    ...     progress(Event("stage_start", "tf-idf", total=3))
    """

    PAUSE = 60.0  # seconds between two lines of measurements in a log

    def __init__(self, *, console: Any = None) -> None:
        self._speaks = is_first_process()
        if console is None and sys.stderr.isatty() and self._speaks:
            from rich.console import Console

            console = Console(stderr=True)
        self._console = console
        self._measured = 0.0  # when a measurement was last written to a log
        self._progress: Any = None
        self._tasks: dict[str, list[Any]] = {}

    def __call__(self, event: Event) -> None:
        if self._console is None:
            self._log(event)
        elif event.kind == "stage_start":
            bar = self._display().add_task(event.stage, total=event.total)
            self._tasks.setdefault(event.stage, []).append(bar)
        elif event.kind == "progress" and self._tasks.get(event.stage):
            bar = self._tasks[event.stage][-1]
            self._progress.update(bar, completed=event.done, total=event.total)
        elif event.kind == "stage_end" and self._tasks.get(event.stage):
            self._end(event)
        elif event.kind in ("message", "metrics"):
            self._console.print(_line(event), markup=False, highlight=event.kind == "message")

    def close(self) -> None:
        """Takes the bars down and gives the terminal back.

        >>> RichProgress().close()
        """
        self._tasks.clear()
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _display(self) -> Any:
        if self._progress is None:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._console,
                # What is printed meanwhile goes above the bars, but never out of a pipe or file.
                redirect_stdout=sys.stdout.isatty(),
            )
            self._progress.start()
        return self._progress

    def _log(self, event: Event) -> None:
        if not self._speaks or event.kind not in ("message", "metrics"):
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
                self._progress.update(bar, total=max(event.done, 1), completed=max(event.done, 1))
            self._progress.stop_task(bar)
        finally:
            if not any(self._tasks.values()):
                self.close()


def _recordable(value: Any) -> Any:
    try:
        return jsonio.plain(value)
    except ConfigError:
        return str(value)  # an odd value in a log is no reason to stop a day's training


def _line(event: Event) -> str:
    if event.kind == "message":
        return str(event.values.get("text", ""))
    known = {name: value for name, value in event.values.items() if value is not None}
    shown = "  ".join(f"{name} {_short(value)}" for name, value in known.items())
    return f"{event.stage} {shown}".strip()


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
