"""Starts the service: one process, or several that share a port and the mapped model files."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from labelgrove.errors import ConfigError
from labelgrove.serve.app import create_app
from labelgrove.serve.connection_limits import allow_descriptors
from labelgrove.serve.copies import Copies, own_folder
from labelgrove.serve.feedback import FeedbackFile
from labelgrove.serve.hosts import allowed_hosts
from labelgrove.serve.logs import limit_logs, log_access
from labelgrove.serve.metrics import FOLDER
from labelgrove.serve.models import Models, NamedModel
from labelgrove.serve.protocol import GuardedProtocol
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams

log = logging.getLogger(__name__)

# Worker processes read from the environment what they serve. The token must not be on a command
# line, where other users could read it.
TOKEN, SETTINGS = "LABELGROVE_TOKEN", "LABELGROVE_SERVE_SETTINGS"
REPORT = "report.html"


@dataclass(frozen=True)
class Source:
    """A model to serve: its folder, and what belongs to it.

    ``report`` is shown at /report; the default is report.html in the model folder, unless it is a
    link. ``train`` is a corpus: explanations name its documents that are similar to the text.
    ``feedback`` is a file for what people say about suggestions.
    """

    name: str
    path: Path
    report: Path | None = None
    train: Path | None = None
    feedback: Path | None = None
    follow: bool = True  # a link to the report

    def with_report(self) -> Source:
        """The same with the report that is in the model folder, if no other is given."""
        report, own = self.report, self.path / REPORT
        if report is None and own.is_file():
            if own.is_symlink():
                log.warning("%s: is a link, which is not followed; use --report", own)
            else:
                return replace(self, report=own, follow=False)
        if report is not None and not report.is_file():
            raise ConfigError(f"{report}: no such file; labelgrove report --out writes one")
        return self

    def to_json(self) -> dict[str, str | bool | None]:
        """For a worker process, which may have another working directory."""
        return {
            name: str(value.absolute()) if isinstance(value, Path) else value
            for name, value in vars(self).items()
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Source:
        """The inverse of :meth:`to_json`."""
        paths = ("path", "report", "train", "feedback")
        read = {name: stored[name] and Path(stored[name]) for name in paths}
        return cls(**stored | read)


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and to whom it answers.

    ``hosts`` are more names in the Host header that are answered (see ``hosts.py``).
    """

    host: str
    port: int
    workers: int = 1
    token: str | None = None
    hosts: Sequence[str] = ()


def serve(
    sources: Sequence[Source],
    listening: Listening,
    *,
    params: ServeParams,
    default: str | None = None,
    threads: int | None = None,
    device: str = "auto",
    announce: Callable[[Models, str], None],
) -> None:
    """Serves until the process is stopped; calls ``announce`` with the models and the address."""
    sources = [source.with_report() for source in sources]
    host, workers = listening.host, listening.workers
    names = allowed_hosts(host, listening.hosts)
    _prepare(params)
    allow_descriptors(params.max_connections)
    threads = threads or max(1, (os.cpu_count() or 1) // workers)
    with ending_cleanly(), own_folder() as shared:
        if shared is None and workers > 1:
            raise ConfigError("--workers needs a writable temporary folder; set TMPDIR to one")
        if shared is None:
            log.warning("no writable temporary folder (TMPDIR): the model is mapped in place")
        # Loaded even if only workers use it, so that errors are reported here, once.
        models = _loaded(sources, params, default, shared, device=device, threads=threads)
        socket = _listen(host, listening.port)
        port = socket.getsockname()[1]
        announce(models, f"http://{f'[{host}]' if ':' in host else host}:{port}")
        options = uvicorn_options(params)
        if workers == 1:
            app = create_app(models, params, token=listening.token, hosts=names)
            uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[socket])
            return
        socket.close()  # uvicorn's parent process opens it again
        del models
        assert shared is not None
        settings = {
            "models": [source.to_json() for source in sources],
            "default": default,
            "params": params.get_params(),
            "device": device,
            "threads": threads,
            "hosts": names,
            "shared": str(shared),
        }
        numbers = shared / "metrics"
        numbers.mkdir()
        os.environ |= {SETTINGS: json.dumps(settings), FOLDER: str(numbers)}
        if listening.token is not None:
            os.environ[TOKEN] = listening.token
        name = "labelgrove.serve.run:worker_app"
        uvicorn.run(name, factory=True, workers=workers, host=host, port=port, **options)


def worker_app() -> FastAPI:
    """The app of one of several worker processes."""
    settings = json.loads(os.environ[SETTINGS])
    params = ServeParams.from_dict(settings["params"])
    _prepare(params)
    sources = [Source.from_json(stored) for stored in settings["models"]]
    how = {name: settings[name] for name in ("device", "threads")}
    models = _loaded(sources, params, settings["default"], Path(settings["shared"]), **how)
    return create_app(models, params, token=os.environ.get(TOKEN), hosts=settings["hosts"])


def _loaded(
    sources: Sequence[Source],
    params: ServeParams,
    default: str | None,
    shared: Path | None,
    *,
    device: str,
    threads: int,
) -> Models:
    """The models of a service; private copies are in the folder ``shared``."""
    copies = None if shared is None else Copies(shared, params.copy_mb)
    models = []
    for source in sources:
        folder = ModelFolder(
            source.path, device=device, threads=threads, train=source.train, copies=copies
        )
        model = NamedModel(source.name, folder, params, report=source.report, follow=source.follow)
        if source.feedback is not None:
            model.feedback = FeedbackFile(source.feedback, params.max_feedback_mb)
        models.append(model)
    return Models(models, default)


def _prepare(params: ServeParams) -> None:
    # Explanations are Python: the event loop waits this long for their thread, several times per
    # request. Python's own 5 ms make answers beside them half as slow again.
    sys.setswitchinterval(0.001)
    limit_logs()
    if params.access_log:
        log_access()


class Terminated(BaseException):
    """SIGTERM, on its way through the code that tidies up."""


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Lets SIGTERM end the process only after temporary files are removed.

    uvicorn sends itself the signal again when it has stopped, which would end the process at once.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # The socket's own message repeats the address.
        known = error.errno is not None and not isinstance(error, socket.gaierror)
        why = os.strerror(error.errno or 0) if known else error.strerror
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {why}; choose another --host or --port "
            "(--port 0 takes a free one)"
        ) from error


def uvicorn_options(params: ServeParams) -> dict[str, Any]:
    """Options of uvicorn for a service with these limits."""
    return {
        "http": GuardedProtocol,
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
