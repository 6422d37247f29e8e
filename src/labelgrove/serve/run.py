"""Starts the service: one process, or several that share a port and the model's mapped files."""

from __future__ import annotations

import json
import math
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from labelgrove.errors import ConfigError
from labelgrove.serve.app import create_app
from labelgrove.serve.metrics import FOLDER
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams

# Worker processes are started anew and read there what they serve; the token stays out of sight
# of whoever lists processes.
TOKEN, SETTINGS = "LABELGROVE_TOKEN", "LABELGROVE_SERVE_SETTINGS"
REPORT = "report.html"


def serve(
    model: Path,
    *,
    params: ServeParams,
    host: str,
    port: int,
    workers: int = 1,
    threads: int | None = None,
    device: str = "auto",
    token: str | None = None,
    report: Path | None = None,
    train: Path | None = None,
    announce: Any = print,
) -> None:
    """Serves until the process is told to stop; ``announce`` gets the address once it is known.

    ``report`` is shown at /report; without it, a report.html in the model folder. ``train`` is a
    corpus whose documents explanations name where they are like the text.
    """
    kept = model / REPORT
    report = kept if report is None and kept.is_file() else report
    if report is not None and not report.is_file():
        raise ConfigError(f"{report}: no such file; labelgrove report --out writes one")
    threads = threads or max(1, (os.cpu_count() or 1) // workers)
    # Also with several workers: what is wrong with the model shall be told here, once.
    folder = ModelFolder(model, device=device, threads=threads, train=train)
    options = uvicorn_options(params)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # What a socket adds to the system's words is the address again.
        known = error.errno is not None and not isinstance(error, socket.gaierror)
        why = os.strerror(error.errno or 0) if known else error.strerror
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {why}; choose another --host or --port "
            "(--port 0 takes a free one)"
        ) from error
    port = listening.getsockname()[1]
    announce(folder.current, f"http://{f'[{host}]' if ':' in host else host}:{port}")
    if workers == 1:
        config = uvicorn.Config(create_app(folder, params, token=token, report=report), **options)
        uvicorn.Server(config).run(sockets=[listening])
        return
    listening.close()  # the workers' own parent takes the port
    del folder
    with tempfile.TemporaryDirectory(prefix="labelgrove-serve-") as shared:
        settings = {
            "model": str(model.absolute()),
            "params": params.get_params(),
            "how": {
                "device": device,
                "threads": threads,
                "train": None if train is None else str(train.absolute()),
            },
            "report": None if report is None else str(report.absolute()),
        }
        os.environ |= {SETTINGS: json.dumps(settings), FOLDER: shared}
        if token is not None:
            os.environ[TOKEN] = token
        app = "labelgrove.serve.run:worker_app"
        uvicorn.run(app, factory=True, workers=workers, host=host, port=port, **options)


class Promptly(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with Nagle's algorithm off.

    An answer leaves in two pieces, and the second would wait 40 ms for the client to acknowledge
    the first. asyncio sees to that for sockets that it opens itself, but not for those it is given.
    """

    def connection_made(self, transport: Any) -> None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


def uvicorn_options(params: ServeParams) -> dict[str, Any]:
    """How uvicorn runs the service.

    >>> uvicorn_options(ServeParams(max_seconds=9.5))["timeout_graceful_shutdown"]
    11
    """
    return {
        "http": Promptly,
        "ws": "none",
        "lifespan": "on",
        "access_log": False,
        "server_header": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": math.ceil(params.max_seconds) + 1,
        # Workers that load a model on a busy machine are not dead; after 5 s, uvicorn's own limit,
        # they were killed and started anew for ever.
        "timeout_worker_healthcheck": 60,
    }


def worker_app() -> Any:
    """The app of one of several worker processes."""
    settings = json.loads(os.environ[SETTINGS])
    return create_app(
        ModelFolder(settings["model"], **settings["how"]),
        ServeParams.from_dict(settings["params"]),
        token=os.environ.get(TOKEN),
        report=None if settings["report"] is None else Path(settings["report"]),
    )
