"""Processes that train one model, as a launcher would start them.

They are forks of one process that has imported torch, which takes longer than most trainings.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HANG = 280  # seconds; only ends a hang
FORKS = multiprocessing.get_context("forkserver")
# What the ranks would import; the first update imports torch's compiler.
FORKS.set_forkserver_preload(
    [
        "torch._dynamo",
        "transformers.models.bert.modeling_bert",
        "labelgrove.cli.train",
        "labelgrove.methods.cascadexml.method",
        "labelgrove.methods.lightxml.method",
    ]
)


class Ended(NamedTuple):
    code: int | None
    out: str
    errors: str


def run_together(*arguments: object, count: int = 2) -> list[Ended]:
    """Runs Python with these arguments ``count`` times at once, as ranks 0, 1, ..., on CPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with TemporaryDirectory() as folder:
        files = [[Path(folder) / f"{name}{rank}" for name in "oe"] for rank in range(count)]
        ranks = []
        for rank, own in enumerate(files):
            variables = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append(FORKS.Process(target=_run, args=(own, variables, *map(str, arguments))))
            ranks[-1].start()
        for process in ranks:
            process.join(HANG)
            process.kill()  # if it hangs
            process.join()
        return [
            Ended(process.exitcode, *(file.read_text() for file in own))
            for process, own in zip(ranks, files, strict=True)
        ]


def _run(files: list[Path], variables: dict[str, str], *arguments: str) -> None:
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    os.environ.update(variables)
    is_module = arguments[0] == "-m"
    sys.argv = [*arguments[is_module:]]
    run = runpy.run_module if is_module else runpy.run_path
    run(sys.argv[0], run_name="__main__")
