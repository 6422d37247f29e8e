"""The service as an ASGI app: its models' routes, probes, metrics and the page."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

from labelgrove.core.versions import VERSION
from labelgrove.serve import page_files, problems, routes, schema
from labelgrove.serve.connection_limits import ConnectionLimits
from labelgrove.serve.metrics import CONTENT_TYPE, Metrics
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.request_limits import RequestLimits
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams

_PROBES = (408, 431, 500, 503)


def create_app(
    models: Models | ModelFolder,
    params: ServeParams | None = None,
    *,
    token: str | None = None,
    hosts: Collection[str] | None = None,
) -> FastAPI:
    """The service as an ASGI app, for uvicorn or another ASGI server.

    ``hosts`` are the names in the Host header that are answered; None: any. A single folder of a
    model is called "model".

    >>> import labelgrove, tempfile; from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "model"
    >>> labelgrove.Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).save(path)
    >>> sorted(create_app(ModelFolder(path)).openapi()["paths"])[-2:]
    ['/v1/predict', '/v1/tree']
    """
    params = (ServeParams() if params is None else params).checked()
    if isinstance(models, ModelFolder):
        models = Models([NamedModel(Source("model", models.path), models, params)])
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, ConnectionLimits]]:
        async with models.running(metrics):
            yield {"limits": ConnectionLimits(params, metrics)}  # for the protocol

    app = FastAPI(
        title="labelgrove",
        version=VERSION,
        summary="Raw text in, the k best labels out.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from other hosts
        redoc_url=None,
    )
    app.add_middleware(RequestLimits, params=params, metrics=metrics, token=token, hosts=hosts)
    problems.add_handlers(app)
    _describe(app, token=token is not None)
    routes.add_routes(app, models)

    @app.get("/healthz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def healthz() -> Response:
        """Whether the process answers at all."""
        return routes.json_response({"status": "alive"})

    @app.get("/readyz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def readyz() -> Response:
        """Whether requests are accepted."""
        for model in models:
            model.check_ready()
        return routes.json_response({"status": "ready"})

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problems.responses(*routes.ALWAYS),
        },
    )
    async def metrics_text() -> Response:
        """Prometheus' text format, over all worker processes."""
        served = [(model.name, model.folder.current) for model in models]
        text = metrics.text(
            build=[{"version": VERSION}],
            model=[{"name": name, "id": one.id, "method": one.method} for name, one in served],
        )
        return Response(text, media_type=CONTENT_TYPE)

    page_files.add_routes(app, models, page=params.page)
    return app


def _describe(app: FastAPI, *, token: bool) -> None:
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
