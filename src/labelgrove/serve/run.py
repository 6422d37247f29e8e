"""Starts the service: one process, or several that share a port and the mapped model files."""

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

# Worker processes read from the environment what they serve. The token must not be on a command
# line, where other users could read it.
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
    """Serves until the process is stopped; calls ``announce`` with the model and the address.

    ``report`` is shown at /report; the default is report.html in the model folder. ``train`` is a
    corpus: explanations name its documents that are similar to the text.
    """
    if report is None and (model / REPORT).is_file():
        report = model / REPORT
    if report is not None and not report.is_file():
        raise ConfigError(f"{report}: no such file; labelgrove report --out writes one")
    threads = threads or max(1, (os.cpu_count() or 1) // workers)
    # Loaded even if only workers use it, so that errors are reported here, once.
    folder = ModelFolder(model, device=device, threads=threads, train=train)
    options = uvicorn_options(params)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # The socket's own message repeats the address.
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
    listening.close()  # uvicorn's parent process opens it again
    del folder
    with tempfile.TemporaryDirectory(prefix="labelgrove-serve-") as shared:
        settings = {
            "model": str(model.absolute()),
            "params": params.get_params(),
            "device": device,
            "threads": threads,
            "train": train and str(train.absolute()),
            "report": report and str(report.absolute()),
        }
        os.environ |= {SETTINGS: json.dumps(settings), FOLDER: shared}
        if token is not None:
            os.environ[TOKEN] = token
        app = "labelgrove.serve.run:worker_app"
        uvicorn.run(app, factory=True, workers=workers, host=host, port=port, **options)


class Promptly(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol without Nagle's algorithm.

    An answer is sent in two pieces, and the second would wait 40 ms for the client to acknowledge
    the first. asyncio switches it off only for sockets that it opens itself.
    """

    def connection_made(self, transport: Any) -> None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)


def uvicorn_options(params: ServeParams) -> dict[str, Any]:
    """Options of uvicorn for this service."""
    return {
        "http": Promptly,
        "ws": "none",
        "lifespan": "on",
        "access_log": False,
        "server_header": False,
        "log_level": "warning",
        "timeout_graceful_shutdown": math.ceil(params.max_seconds) + 1,
        # Loading a model on a busy machine may take longer than uvicorn's default of 5 s, after
        # which it would kill and restart the worker again and again.
        "timeout_worker_healthcheck": 60,
    }


def worker_app() -> Any:
    """The app of one of several worker processes."""
    settings = json.loads(os.environ[SETTINGS])
    options = {name: settings[name] for name in ("device", "threads", "train")}
    return create_app(
        ModelFolder(settings["model"], **options),
        ServeParams.from_dict(settings["params"]),
        token=os.environ.get(TOKEN),
        report=settings["report"] and Path(settings["report"]),
    )
