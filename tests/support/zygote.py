"""A process that has imported everything and forks a child per attack.

A child that starts in milliseconds can be killed, starved or fed with hostile files a few hundred
times a minute. The process gets a request per line on standard input and writes an answer per line.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

TESTS = Path(__file__).parent.parent
START = "import sys; from support import zygote; zygote.serve(sys.argv[1])"
HANG = 60  # seconds; only ends a hang


@dataclass(frozen=True)
class Outcome:
    """How a child ended; ``status`` is its exit code, or minus the signal that ended it."""

    status: int
    calls: list[list[str]]
    facts: dict[str, Any]
    stdout: str
    stderr: str


class Zygote:
    """The parent's side. ``task`` names a function of support.tasks."""

    def __init__(self, flavour: str = "linear") -> None:
        # pytest finds the tests by itself; the new process must be told.
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, flavour],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        )
        assert self._read() == "ready"

    def __call__(self, task: str, *arguments: Any, **how: Any) -> Outcome:
        """Runs the task in a new child; ``how`` has ``folder``, ``harm`` and ``limits``."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([task, arguments, how]) + "\n")
        self._process.stdin.flush()
        return Outcome(**self._read())

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(HANG)
        self._process.stdout.close()


def serve(flavour: str) -> None:
    """The loop of the process: forks for each line until there are no more."""
    from support import tasks

    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        tasks.import_everything(flavour)
        answers.write('"ready"\n')
        answers.flush()
        for line in sys.stdin:
            task, arguments, how = json.loads(line)
            answers.write(json.dumps(_forked(Path(folder), task, arguments, how)) + "\n")
            answers.flush()


def _forked(place: Path, task: str, arguments: list[Any], how: Mapping[str, Any]) -> dict[str, Any]:
    reports, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reports)
        _live(place, report, task, arguments, how)
    os.close(report)
    with os.fdopen(reports) as lines:
        # The last line may be cut off: the child may die at any moment.
        records = [json.loads(line) for line in lines if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "calls": [record for record in records if isinstance(record, list)],
        "facts": next((record for record in records if isinstance(record, dict)), {}),
        "stdout": (place / "stdout").read_text(errors="replace"),
        "stderr": (place / "stderr").read_text(errors="replace"),
    }


def _live(
    place: Path, report: int, task: str, arguments: list[Any], how: Mapping[str, Any]
) -> None:
    """The child: never returns."""
    from labelgrove.errors import LabelgroveError
    from support import tasks

    signal.alarm(HANG)  # the default action of the signal ends even a loop in C++
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(how.get("folder", place))
    write = os.write
    status = 0
    try:
        limit(**how.get("limits", {}))
        with inflicted(report, **how.get("harm", {})):
            facts = getattr(tasks, task)(*arguments)
    except SystemExit as end:
        status, facts = end.code if isinstance(end.code, int) else 1, {"error": tasks.last_error}
    except LabelgroveError as error:
        facts = {"refused": type(error).__name__}
    except BaseException:
        traceback.print_exc()
        status, facts = 1, {}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    write(report, json.dumps((facts or {}) | {"peak": peak}).encode() + b"\n")
    os._exit(status)


_NAMES = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "remove", "symlink", "link")
_FREES = ("rmdir", "unlink", "remove")  # what works on a full disk
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Those that some test inflicts; "none" only counts.
KINDS = ("none", "kill", "full", "no space once", "broken", "broken sync", "short")


class _Counter:
    """Counts the calls of this process and strikes at the n-th."""

    def __init__(self, report: int, kind: str, at: int) -> None:
        assert kind in KINDS
        self.report, self.kind, self.at = report, kind, at
        self.number = 0
        self.write = os.write

    def meet(self, name: str, about: Any) -> bool:
        """Called before each call; True if a write is to be cut short."""
        if self.kind == "broken sync" and name != "fsync":
            return False
        if self.kind == "short" and name != "write":
            return False
        if self.kind in ("full", "no space once") and name in _FREES:
            return False
        self.number += 1
        self.write(self.report, json.dumps([name, str(about)]).encode() + b"\n")
        if self.kind == "full" and self.number >= self.at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_file(name, about))
        if self.number != self.at:
            return False
        if self.kind in ("kill", "short"):
            if self.kind == "kill" and name != "write":
                os.kill(os.getpid(), signal.SIGKILL)
            return True
        if self.kind == "no space once":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *_file(name, about))
        if self.kind in ("broken", "broken sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), *_file(name, about))
        return False

    def wrap(self, name: str, real: Any) -> Any:
        def call(first: Any, *rest: Any, **named: Any) -> Any:
            self.meet(name, first)
            return real(first, *rest, **named)

        return call

    def part(self, data: Any) -> memoryview:
        """The bytes that a write gets down to the disk."""
        content = memoryview(data).cast("B")
        return content[: max(1, len(content) // 2)] if self.meet("write", len(content)) else content

    def wrote(self) -> None:
        if self.kind == "kill" and self.number == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def _file(name: str, about: Any) -> list[str]:
    """A system call on a path names it in its error, one on a descriptor does not."""
    return [] if name in ("write", "fsync", "ftruncate") else [str(about)]


@contextlib.contextmanager
def inflicted(report: int, *, kind: str | None = None, at: int = 0) -> Iterator[None]:
    """Patches what changes the disk, for good: the process ends afterwards."""
    if kind is None:
        yield
        return
    counter = _Counter(report, kind, at)

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            count = super().write(counter.part(data))
            counter.wrote()
            return count

    real_open, real_os_open, real_write = io.open, os.open, os.write

    def file_open(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **named: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+"):
            return real_open(file, mode, buffering, *rest, **named)
        counter.meet("open", file)
        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        binary: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, *rest, **named)

    def os_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & _WRITING:
            counter.meet("open", path)
        return real_os_open(path, flags, *rest, **named)

    def os_write(descriptor: int, data: Any) -> int:
        count = real_write(descriptor, counter.part(data))
        counter.wrote()
        return count

    from labelgrove.disk import atomic

    for name in _NAMES:
        setattr(os, name, counter.wrap(name, getattr(os, name)))
    os.ftruncate = counter.wrap("ftruncate", os.ftruncate)
    os.open, os.write = os_open, os_write
    io.open = builtins.open = file_open
    atomic._exchange = counter.wrap("exchange", atomic._exchange)
    yield


def limit(*, memory: int | None = None, threads: bool = True) -> None:
    """Allows ``memory`` more bytes of address space, and no new thread without ``threads``."""
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if not threads:
        # A limit on processes does not bind root. Nobody has room for a stack of this size.
        library = ctypes.CDLL(None)
        attributes = ctypes.create_string_buffer(256)
        library.pthread_attr_init(attributes)
        assert library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 60)) == 0
        assert library.pthread_setattr_default_np(attributes) == 0
