"""A process that has imported everything and forks a child per attack.

A child that starts in milliseconds can be killed, starved or fed with hostile files a few hundred
times a minute. The process gets a request per line on standard input and writes an answer per line.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
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
    from support import harm, tasks

    signal.alarm(HANG)  # the default action of the signal ends even a loop in C++
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.chdir(how.get("folder", place))
    write = os.write
    status = 0
    try:
        harm.limit(**how.get("limits", {}))
        with harm.inflicted(report, **how.get("harm", {})):
            facts = getattr(tasks, task)(*arguments)
    except SystemExit as end:
        status, facts = end.code if isinstance(end.code, int) else 1, {"error": tasks.last_error}
    except BaseException:
        traceback.print_exc()
        status, facts = 1, {}
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    write(report, json.dumps((facts or {}) | {"peak": peak}).encode() + b"\n")
    os._exit(status)
