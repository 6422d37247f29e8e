"""A small model, and the real service on loopback around it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from labelgrove import Corpus, LabelIndex, Linear
from labelgrove.serve.app import create_app
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.run import uvicorn_options
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams
from support.served_process import wait_for

COLOURS = ["red", "blue", "green", "black"]
THINGS = ["shoe", "hat", "lamp", "chair", "table"]


def fitted(*, seed: int = 0, prefix: str = "") -> Linear:
    """Knows colours and things; ``prefix`` makes the names of one model differ from another's."""
    texts = [f"this {colour} {thing}" for colour in COLOURS for thing in THINGS] * 3
    labels = [[colour, thing] for colour in COLOURS for thing in THINGS] * 3
    ids = [*COLOURS, *THINGS]
    index = LabelIndex(
        ids,
        names=[f"{prefix}{label.title()} goods" for label in ids],
        groups={"colours": range(len(COLOURS))},
    )
    return Linear(random_state=seed).fit(Corpus.from_lists(texts, labels, index=index))


@contextmanager
def running(
    path: Path | dict[str, Path],
    *,
    default: str | None = None,
    feedback: Path | None = None,
    token: str | None = None,
    report: Path | None = None,
    follow: bool = True,
    hosts: list[str] | None = None,
    slow: Callable[[Any], None] | None = None,
    **limits: Any,
) -> Iterator[Any]:
    """A client of a service under real uvicorn; ``slow`` is called before every prediction.

    ``path`` is a model, which is then called "model", or models by name. Feedback is kept if there
    is a folder for it.
    """
    params = ServeParams(**limits)
    models = []
    for name, folder in (path if isinstance(path, dict) else {"model": path}).items():
        kept = feedback and feedback / f"{name}.jsonl"
        source = Source(name, folder, report=report, follow=follow, feedback=kept)
        models.append(NamedModel(source, ModelFolder(folder, threads=1), params))
    if slow is not None:
        model = models[0].folder.current._model
        predict = model.predict

        def slowly(texts: Any, **options: Any) -> Any:
            slow(texts)
            return predict(texts, **options)

        model.predict = slowly
    options = uvicorn_options(params)
    options["log_level"] = options["log_level"] if params.access_log else "critical"
    app = create_app(Models(models, default), params, token=token, hosts=hosts)
    config = uvicorn.Config(app, **options)
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        many = httpx.Limits(max_connections=200, max_keepalive_connections=200)
        with httpx.Client(base_url=address, timeout=120, limits=many) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(timeout=240)
        listening.close()
    assert not thread.is_alive()


def check_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == "about:blank"
    assert body["detail"]
    return body
