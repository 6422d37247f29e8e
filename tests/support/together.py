"""Processes that train one model, as a launcher would start them.

They are forks of one process that has imported torch, which takes longer than most trainings.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path
from typing import NamedTuple

HANG = 280  # seconds; only ends a hang
# What the ranks would import; the first update imports torch's compiler.
IMPORTED = ("torch._dynamo", "transformers.models.bert.modeling_bert", "labelgrove.cli.train")
IMPORTED += ("labelgrove.methods.cascadexml.method", "labelgrove.methods.lightxml.method")


class Ended(NamedTuple):
    code: int
    out: str
    errors: str


def run_together(*arguments: object, count: int = 2) -> list[Ended]:
    """Runs Python with these arguments ``count`` times at once, as ranks 0, 1, ..., on CPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": str(count)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    launcher = _launcher()
    assert launcher.stdin is not None and launcher.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        request = [folder, str(Path.cwd()), list(map(str, arguments)), shared]
        launcher.stdin.write(json.dumps(request) + "\n")
        launcher.stdin.flush()
        codes = json.loads(launcher.stdout.readline())
        files = [[Path(folder) / f"{name}{rank}" for name in "oe"] for rank in range(count)]
        return [
            Ended(code, *(file.read_text() for file in own))
            for code, own in zip(codes, files, strict=True)
        ]


@cache
def _launcher() -> subprocess.Popen[str]:
    """The process that forks; it ends with this one."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *sys.path]))
    launcher = subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(launcher.communicate)
    return launcher


def serve() -> None:
    """Forks all ranks of each request until there are no more; answers with their exit codes."""
    for module in IMPORTED:
        importlib.import_module(module)
    for line in sys.stdin:
        folder, here, arguments, environment = json.loads(line)
        children = []
        for rank in range(int(environment["WORLD_SIZE"])):
            children.append(os.fork())
            if children[-1] == 0:
                os.chdir(here)
                os.environ.clear()
                os.environ.update(environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
                _live(Path(folder), rank, arguments)
        late = threading.Timer(HANG, lambda ids=children: [os.kill(pid, 9) for pid in ids])
        late.start()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        late.cancel()
        print(json.dumps(codes), flush=True)


def _live(folder: Path, rank: int, arguments: list[str]) -> None:
    """One rank: never returns."""
    for descriptor, name in ((1, "o"), (2, "e")):
        os.dup2(os.open(folder / f"{name}{rank}", os.O_WRONLY | os.O_CREAT), descriptor)
    code = 0
    try:
        is_module = arguments[0] == "-m"
        sys.argv = arguments[is_module:]
        run = runpy.run_module if is_module else runpy.run_path
        run(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
