"""The ``labelgrove`` command for shell scripts, forked from a process that has imported it all.

A command of its own spends more than a second on imports, and the docs have a hundred of them.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

TESTS = Path(__file__).parent.parent
START = "import sys; from support import commands; commands.serve(sys.argv[1])"
# Services get signals of their own, so they are processes of their own.
CLIENT = """#!{python} -IS
import os, socket, sys
if sys.argv[1:2] == ["serve"]:
    os.execv({python!r}, [{python!r}, "-m", "labelgrove", *sys.argv[1:]])
import json
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n"
sent = socket.send_fds(server, [request], [0, 1, 2])
server.sendall(request[sent:])
answer = server.recv(9)
sys.exit(int(answer) if answer else 137)
"""


class Commands:
    """While it lasts, ``folder`` has a ``labelgrove`` that starts in milliseconds."""

    def __init__(self, folder: Path) -> None:
        address = str(folder / "socket")
        script = folder / "labelgrove"
        script.write_text(CLIENT.format(python=sys.executable, address=address))
        script.chmod(0o755)
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    """Forks for each command."""


def serve(address: str) -> None:
    """Ends by a signal."""
    sys.path[:] = [entry for entry in sys.path if entry not in ("", str(TESTS))]
    for module in ("labelgrove.cli", "sklearn.isotonic", "labelgrove.methods.linear.method"):
        importlib.import_module(module)
    with Server(address, Command) as server:
        print("ready", flush=True)
        server.serve_forever()


class Command(socketserver.BaseRequestHandler):
    """In the child: runs a command, sends its exit status and never returns."""

    def handle(self) -> None:
        _run(self.request)


def _run(connection: socket.socket) -> None:
    from labelgrove.cli import main

    request, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    while not request.endswith(b"\n"):
        request += connection.recv(1 << 16)
    arguments, folder, environment = json.loads(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = os.fdopen(0, closefd=False)
    # By lines, as in a terminal, so that a reader of both gets them in order.
    sys.stdout, sys.stderr = (os.fdopen(n, "w", buffering=1, closefd=False) for n in (1, 2))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["labelgrove", *arguments]
    status: Any = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        connection.sendall(b"%d" % status)
        os._exit(status)
