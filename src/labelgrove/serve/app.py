"""The routes of the service."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query
from starlette.responses import Response

from labelgrove.core.versions import VERSION
from labelgrove.serve import page_files, problems, schema
from labelgrove.serve.batching import Batcher
from labelgrove.serve.door import Door
from labelgrove.serve.gate import Gate
from labelgrove.serve.metrics import CONTENT_TYPE, Metrics
from labelgrove.serve.problems import Problem, as_json
from labelgrove.serve.served import ModelFolder, Options, Served
from labelgrove.serve.settings import ServeParams

_ALWAYS = (401, 408, 413, 421, 429, 431, 500, 503)
_PROBES = (408, 431, 500, 503)
# Limits that a client cannot keep by itself; all others are told.
_OF_THE_SERVICE = ("max_requests", "max_waiting", "max_bodies", "max_header", "max_connections")


def create_app(
    folder: ModelFolder,
    params: ServeParams | None = None,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
    report: Path | None = None,
    follow: bool = True,
) -> FastAPI:
    """The service as an ASGI app, for uvicorn or another ASGI server.

    ``hosts`` are the names in the Host header that are answered; None: any. ``report`` is an HTML
    file to show at /report, for example one by ``labelgrove report``; ``follow`` is whether it may
    be a symbolic link.

    >>> import labelgrove, tempfile; from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "model"
    >>> labelgrove.Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).save(path)
    >>> sorted(create_app(ModelFolder(path)).openapi()["paths"])[-2:]
    ['/v1/predict', '/v1/tree']
    """
    params = (ServeParams() if params is None else params).checked()
    metrics = Metrics()
    batcher: Batcher | None = None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        nonlocal batcher
        watching = asyncio.create_task(folder.watch(params.reload_seconds, metrics))
        # A batch uses the model that is current when it begins.
        async with Batcher(lambda *work: folder.current.answer(*work), params, metrics) as batcher:
            yield {"gate": Gate(params, metrics)}  # for the protocol, before any request
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching

    app = FastAPI(
        title="labelgrove",
        version=VERSION,
        summary="Raw text in, the k best labels out.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from other hosts
        redoc_url=None,
    )
    app.add_middleware(Door, params=params, metrics=metrics, token=token, hosts=hosts)
    problems.add_handlers(app)
    describe(app, token=token is not None)

    async def predict(request: schema.RequestFields) -> Response:
        """The k best labels of each text."""
        if batcher is None:
            raise Problem("starting", "the server is not running yet", retry_after=1)
        pairs = len(request.texts) * request.k
        if request.explain and pairs > params.max_explained:
            detail = f"explain: {pairs} labels (texts times k) are more than {params.max_explained}"
            raise Problem("too-much-to-explain", detail)
        options = Options(
            request.k,
            request.threshold,
            None if request.allow is None else tuple(request.allow),
            None if request.deny is None else tuple(request.deny),
            request.explain,
        )
        texts = _as_texts(folder.current, request.texts, params.max_text_chars)
        answered = await batcher.ask(texts, options)
        metrics.texts.inc(len(request.texts))
        return _json(
            {
                "model": answered.shared.model,
                "score_kind": answered.shared.score_kind,
                "predictions": answered.rows,
                "timing": {
                    "waiting_ms": round(1000 * answered.waiting, 3),
                    "predicting_ms": round(1000 * answered.working, 3),
                },
            }
        )

    # The limits of a request are known only now.
    predict.__annotations__["request"] = schema.limited_request(params)
    app.post(
        "/v1/predict",
        response_model=schema.PredictResponse,
        responses=problems.responses(400, *_ALWAYS, 422),
    )(predict)

    @app.get(
        "/v1/labels",
        response_model=schema.LabelsResponse,
        responses=problems.responses(*_ALWAYS, 422),
    )
    async def labels(
        q: Annotated[str, Query(max_length=200, description="part of a name or id")] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        """Labels by name, best matches first; without q the most frequent labels."""
        served = folder.current
        found = await asyncio.to_thread(served.find_labels, q, limit)
        return _json({"model": served.id, "labels": found})

    @app.get(
        "/v1/model", response_model=schema.ModelResponse, responses=problems.responses(*_ALWAYS)
    )
    async def model() -> Response:
        """The model that answers now."""
        limits = {
            name: value
            for name, value in params.get_params().items()
            if name.startswith("max_") and not name.startswith(_OF_THE_SERVICE)
        }
        return _json(folder.current.facts() | {"report": report is not None, "limits": limits})

    @app.get(
        "/v1/tree",
        response_model=schema.TreeResponse,
        responses=problems.responses(*_ALWAYS, 404, 422),
    )
    async def tree(
        node: Annotated[str, Query(max_length=40, description="id of a node")] = "root",
        tree: Annotated[int, Query(ge=0, le=1000, description="which of the model's trees")] = 0,
        label: Annotated[
            str | None,
            Query(max_length=1000, description="answer with the children that lead to this label"),
        ] = None,
        offset: Annotated[int, Query(ge=0, le=2**31 - 1, description="children to skip")] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> Response:
        """A node of the label tree and a page of its children."""
        served = folder.current
        which = {"label": label, "offset": offset, "limit": limit}
        return _json(await asyncio.to_thread(served.tree_page, tree, node, **which))

    @app.get("/healthz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def healthz() -> Response:
        """Whether the process answers at all."""
        return _json({"status": "alive"})

    @app.get("/readyz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def readyz() -> Response:
        """Whether requests are accepted."""
        if batcher is None or not batcher.running:
            raise Problem("not-ready", "the service does not accept requests now")
        folder.current.check_files()
        return _json({"status": "ready"})

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problems.responses(*_ALWAYS),
        },
    )
    async def metrics_text() -> Response:
        """Prometheus' text format, over all worker processes."""
        served = folder.current
        text = metrics.text(
            build={"version": VERSION},
            model={"id": served.id, "method": served.method},
        )
        return Response(text, media_type=CONTENT_TYPE)

    page_files.add_routes(app, page=params.page, report=report, follow=follow)
    return app


def describe(app: FastAPI, *, token: bool) -> None:
    """Adds to the OpenAPI text what all routes share: the form of errors and the token."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            parts = plain()["components"]
            parts["schemas"]["Problem"] = problems.SCHEMA
            for unused in ("HTTPValidationError", "ValidationError"):
                parts["schemas"].pop(unused, None)
            if token:
                parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                for path, route in plain()["paths"].items():
                    if path not in ("/healthz", "/readyz"):
                        for operation in route.values():
                            operation["security"] = [{"token": []}]
        return plain()

    app.openapi = openapi  # type: ignore[method-assign]


def _as_texts(served: Served, documents: list[Any], most: int) -> list[str]:
    """Documents with fields as the model reads them, before they share a batch with others."""
    if not any(isinstance(document, dict) for document in documents):
        return documents
    texts: list[str] = served.model.documents(documents)
    for number, text in enumerate(texts):
        if len(text) > most:
            raise Problem(
                "invalid-request", f"texts[{number}]: a document may have {most:,} characters"
            )
    return texts


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")
