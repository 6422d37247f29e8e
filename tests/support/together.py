"""Processes that train one model, as a launcher would start them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    out: str
    errors: str


def run_together(*arguments: object, count: int = 2) -> list[Ended]:
    """Runs Python with these arguments ``count`` times at once, as ranks 0, 1, ..., on CPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            env={**shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in map(str, range(count))
    ]
    try:
        outputs = [process.communicate(timeout=280) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [Ended(p.returncode, *texts) for p, texts in zip(processes, outputs, strict=True)]
