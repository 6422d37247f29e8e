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
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from pydantic import TypeAdapter

from labelgrove.errors import ConfigError
from labelgrove.serve import metrics
from labelgrove.serve.app import create_app
from labelgrove.serve.copies import Copies, own_folder
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.protocol import GuardedProtocol, allow_descriptors
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams

log = logging.getLogger(__name__)

# Worker processes read from the environment what they serve. The token must not be on a command
# line, where other users could read it.
TOKEN, SETTINGS = "LABELGROVE_TOKEN", "LABELGROVE_SERVE_SETTINGS"


# What strangers can cause as often as they like: failed accepts, bad requests.
NOISY = ("asyncio", "uvicorn.error")


class OncePerSecond(logging.Filter):
    """Lets each message through once per second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        # The first words: what follows (sockets, addresses) differs every time.
        key, now = str(record.msg).partition("\n")[0][:80], time.monotonic()
        if now - self._last.get(key, -1.0) < 1.0:
            return False
        if len(self._last) > 1000:
            self._last.clear()
        self._last[key] = now
        return True


once_per_second = OncePerSecond()


@dataclass(frozen=True)
class ServiceSetup:
    """What each process of a service does; ``shared`` is a folder for private copies."""

    sources: list[Source]
    default: str | None
    limits: dict[str, Any]
    device: str
    threads: int  # 0: this process's share of the cores
    hosts: list[str] | None  # names in the Host header that are answered; None: any
    shared: Path | None = None

    def to_json(self) -> str:
        """For :meth:`from_json`. Limits may be infinite, which pydantic's JSON cannot say."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> ServiceSetup:
        """What :meth:`to_json` wrote."""
        return TypeAdapter(cls).validate_python(json.loads(text))

    def models(self) -> Models:
        """Loads the models, and prepares this process to serve them."""
        params = ServeParams.from_dict(self.limits)
        # Explanations are Python: the event loop waits this long for their thread, several times
        # per request. Python's own 5 ms make answers beside them half as slow again.
        sys.setswitchinterval(0.001)
        for name in NOISY:
            logging.getLogger(name).addFilter(once_per_second)
        copies = None if self.shared is None else Copies(self.shared, params.copy_mb)
        how: dict[str, Any] = {"device": self.device, "threads": self.threads, "copies": copies}
        models = [
            NamedModel(source, ModelFolder(source.path, train=source.train, **how), params)
            for source in self.sources
        ]
        return Models(models, self.default)

    def app(self, models: Models, token: str | None) -> FastAPI:
        """The service of one process."""
        params = ServeParams.from_dict(self.limits)
        return create_app(models, params, token=token, hosts=self.hosts)


def serve(
    settings: ServiceSetup,
    *,
    host: str,
    port: int,
    workers: int = 1,
    token: str | None = None,
    announce: Callable[[Models, str], None],
) -> None:
    """Serves until the process is stopped; calls ``announce`` with the models and the address."""
    params = ServeParams.from_dict(settings.limits)
    sources = [source.with_report() for source in settings.sources]
    threads = settings.threads or max(1, (os.cpu_count() or 1) // workers)
    allow_descriptors(params.max_connections)
    with own_folder() as shared:
        if shared is None and workers > 1:
            raise ConfigError("--workers needs a writable temporary folder; set TMPDIR to one")
        if shared is None:
            log.warning("no writable temporary folder (TMPDIR): the model is mapped in place")
        settings = replace(settings, sources=sources, threads=threads, shared=shared)
        # Loaded even if only workers use it, so that errors are reported here, once.
        models = settings.models()
        socket = _listen(host, port)
        # uvicorn sends itself SIGTERM again when it has stopped; by default, that would end the
        # process at once and leave temporary files behind. For systemd, 143 would be a failure.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        port = socket.getsockname()[1]
        announce(models, f"http://{f'[{host}]' if ':' in host else host}:{port}")
        options = uvicorn_options(params)
        if workers == 1:
            app = settings.app(models, token)
            uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[socket])
            return
        socket.close()  # uvicorn's parent process opens it again
        del models
        assert shared is not None
        numbers = shared / "metrics"
        numbers.mkdir()
        os.environ |= {SETTINGS: settings.to_json(), metrics.FOLDER: str(numbers)}
        if token is not None:
            os.environ[TOKEN] = token
        name = "labelgrove.serve.run:worker_app"
        uvicorn.run(name, factory=True, workers=workers, host=host, port=port, **options)


def worker_app() -> FastAPI:
    """The app of one of several worker processes."""
    settings = ServiceSetup.from_json(os.environ[SETTINGS])
    return settings.app(settings.models(), os.environ.get(TOKEN))


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
        "access_log": params.access_log,
        "server_header": False,
        "log_level": "info" if params.access_log else "warning",
        "timeout_graceful_shutdown": math.ceil(params.max_seconds) + 1,
        # Loading a model on a busy machine may take longer than uvicorn's default of 5 s, after
        # which it would kill and restart the worker again and again.
        "timeout_worker_healthcheck": 60,
    }
