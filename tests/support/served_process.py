"""``labelgrove serve`` in its own process, with what tests ask about it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

HANG = 240.0  # seconds; only ends a hang


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    log: Path
    port: int
    client: Any

    def connect(self, data: bytes = b"", *, buffer: int = 0) -> socket.socket:
        connection = socket.socket()
        if buffer:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        connection.settimeout(HANG)
        connection.connect(("127.0.0.1", self.port))
        connection.sendall(data)
        return connection

    def peak(self) -> float:
        """The most memory that the process has had, in megabytes."""
        return self.memory("VmHWM")

    def memory(self, kind: str = "VmRSS") -> float:
        """The memory that the process has now, or another line of its status, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{kind}:\s+(\d+)", status)[1]) / 1000

    def cpu(self) -> float:
        """The processor's seconds that the process has had."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name: str) -> float:
        text = self.client.get("/metrics").text
        return float(re.search(rf"^labelgrove_{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])

    def works(self) -> None:
        """Predictions are answered, if not at once on a busy machine."""
        wait_for(self._answers, self.process)

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            response = self.client.post("/v1/predict", json={"texts": ["this red hat"], "k": 2})
            assert response.status_code in (200, 429, 503), response.text
            return bool(response.status_code == 200)
        return False


@contextmanager
def serving(
    model: Path,
    *settings: str,
    files: int | None = None,
    token: str | None = None,
    arguments: tuple[str, ...] = (),
) -> Iterator[Server]:
    """The command with ``arguments``; ``files`` limits the descriptors that it may open.

    The client sends the ``token``.
    """
    command = [sys.executable, "-m", "labelgrove", "serve", str(model), "--port", "0"]
    command += arguments
    for setting in settings:
        command += ["--set", setting]
    if files is not None:
        command = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *command]
    log = model.parent / f"log-{time.monotonic_ns()}"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
    try:
        address = wait_for(lambda: re.search(r"serving at (\S+)", log.read_text()), process)[1]
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=address, timeout=HANG, headers=headers) as client:
            server = Server(process, log, client.base_url.port, client)
            wait_for(lambda: is_ready(client), process)
            server.works()
            yield server
            server.works()
    finally:
        process.terminate()
        process.wait(HANG)
    # Many connections at once may reach the limit for a moment, which asyncio logs with one.
    said = log.read_text()
    assert files is not None or "Traceback" not in said, said


def is_ready(client: Any) -> bool:
    with suppress(httpx.TransportError):
        return bool(client.get("/readyz").status_code == 200)
    return False


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[bytes] | None = None) -> Any:
    deadline = time.monotonic() + HANG
    while not (value := condition()):
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.02)
    return value
