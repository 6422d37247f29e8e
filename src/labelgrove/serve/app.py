"""The service as an ASGI app: its models' routes, probes, metrics and the page.

The page is plain HTML, CSS and JavaScript modules in the folder ``page`` and uses the same routes
as every client. A policy lets it load and run nothing else. A report may be somebody else's HTML:
only the script of our reports runs in it.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi import Path as PathParam
from starlette.responses import Response

from labelgrove.core.versions import VERSION
from labelgrove.serve import problems, schema
from labelgrove.serve.batching import Answered
from labelgrove.serve.copies import read_plain
from labelgrove.serve.metrics import CONTENT_TYPE, Metrics
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.problems import Problem, as_json
from labelgrove.serve.protocol import ConnectionLimits
from labelgrove.serve.request_limits import ASKED, RequestLimits, is_cross_site
from labelgrove.serve.served import ModelFolder, Options
from labelgrove.serve.settings import ServeParams

_PROBES = (408, 431, 500, 503)
# What every route except probes may answer with.
ALWAYS = (401, 408, 413, 421, 429, 431, 500, 503)
Handler = Callable[..., Awaitable[Response]]
FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# By its path: importing labelgrove.experiments.report would load much that serving does not need.
_REPORT = Path(__file__).parents[1] / "experiments" / "report"
REPORT_SCRIPT = _REPORT / "templates" / "labels.js"
_digest = base64.b64encode(hashlib.sha256(REPORT_SCRIPT.read_bytes()).digest()).decode()
REPORT_POLICY = (
    f"default-src 'none'; script-src 'sha256-{_digest}'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-cache",  # the browser asks each time; most answers are 304
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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
    _add_model_routes(app, models)

    @app.get("/healthz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def healthz() -> Response:
        """Whether the process answers at all."""
        return json_response({"status": "alive"})

    @app.get("/readyz", response_model=schema.Status, responses=problems.responses(*_PROBES))
    async def readyz() -> Response:
        """Whether requests are accepted."""
        for model in models:
            model.check_ready()
        return json_response({"status": "ready"})

    @app.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problems.responses(*ALWAYS),
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

    _add_page(app, models, page=params.page)
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


def json_response(value: object) -> Response:
    """A value as JSON."""
    return Response(as_json(value), media_type="application/json")


def add_route(
    app: FastAPI, tag: str, method: str, path: str, handler: Handler, answer: type, *statuses: int
) -> None:
    """Adds a route that answers with JSON, or with a problem of one of these statuses."""
    responses = problems.responses(*ALWAYS, *statuses)
    app.api_route(path, methods=[method], response_model=answer, responses=responses, tags=[tag])(
        handler
    )


def check_sender(request: Request) -> None:
    """Refuses what pages of other sites can send without asking; not all frameworks do."""
    if request.method != "POST":
        return
    if is_cross_site(request.headers):
        raise Problem("cross-site", "pages of other sites may not send this")
    # Browsers ask before they send JSON to another site, and the service does not agree.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not re.fullmatch(r"application/(.+\+)?json", kind):
        detail = "send JSON with the header Content-Type: application/json"
        raise Problem("invalid-request", detail, errors=[{"field": "body", "message": detail}])


async def _while_connected(request: Request, asked: Awaitable[Answered]) -> Answered:
    """The answer; if the client leaves before, work for it ends."""
    answer, gone = asyncio.ensure_future(asked), asyncio.ensure_future(_disconnection(request))
    try:
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Problem("disconnected", "the client closed the connection")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


async def _disconnection(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_model_routes(app: FastAPI, models: Models) -> None:
    """Adds the routes of the default model and those with a name."""
    names = {"enum": list(models.names)}
    Name = Annotated[
        str, PathParam(max_length=200, description="name of a model", json_schema_extra=names)
    ]

    async def default(request: Request) -> NamedModel:
        check_sender(request)
        request.scope[ASKED] = models.default.name
        return models.default

    async def named(request: Request, name: Name) -> NamedModel:
        check_sender(request)
        model = models.named(name)
        request.scope[ASKED] = model.name
        return model

    async def list_models() -> Response:
        """The models of this service."""
        summaries = [model.summary() for model in models]
        return json_response({"default": models.default.name, "models": summaries})

    one = "/v1/models/{name}"
    bodies = schema.limited_requests(models.default.params)
    _add_routes(partial(add_route, app, "the default model"), "/v1", "/v1/model", default, *bodies)
    _add_routes(partial(add_route, app, "a model by its name"), one, one, named, *bodies)
    add_route(app, "models", "GET", "/v1/models", list_models, schema.ModelsResponse)


def _add_routes(
    add: Callable[..., None],
    base: str,
    facts: str,
    chosen: Callable[..., Awaitable[NamedModel]],
    PredictRequest: type[schema.PredictRequest],
    FeedbackRequest: type[schema.FeedbackRequest],
) -> None:
    """Routes under ``base``."""
    Chosen = Annotated[NamedModel, Depends(chosen)]
    unknown = (404,) if "{name}" in base else ()

    async def predict(
        request: schema.PredictRequest, model: Chosen, connection: Request
    ) -> Response:
        """The k best labels of each text."""
        pairs, most = len(request.texts) * request.k, model.params.max_explained
        if request.explain and pairs > most:
            detail = f"explain: {pairs} labels (texts times k) are more than {most}"
            raise Problem("too-much-to-explain", detail)
        asked = model.ask(request.texts, Options.of(request))
        answered = await _while_connected(connection, asked)
        answer: schema.PredictResponse = {
            "model": answered.shared.model,
            "score_kind": answered.shared.score_kind,
            "predictions": list(answered.rows),
            "unknown": [at for at, row in enumerate(answered.rows) if row.unknown],
            "timing": {
                "waiting_ms": round(1000 * answered.waiting, 3),
                "predicting_ms": round(1000 * answered.working, 3),
            },
        }
        return json_response(answer)

    async def feedback(request: schema.FeedbackRequest, model: Chosen) -> Response:
        """Keeps which labels a person chose for a text, to learn from it later."""
        return json_response(await model.keep_feedback(request))

    async def labels(
        model: Chosen,
        q: Annotated[
            str, Query(max_length=200, description="part of a name or id", examples=["oak"])
        ] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        """Labels by name, best matches first; without q the most frequent labels."""
        served = model.folder.current
        labels = await asyncio.to_thread(served.find_labels, q, limit)
        return json_response({"model": served.id, "labels": labels})

    async def model_facts(model: Chosen) -> Response:
        """The model that answers now."""
        return json_response(model.facts())

    async def tree(
        model: Chosen,
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
        page = model.folder.current.tree_page
        where = partial(page, tree, node, label=label, offset=offset, limit=limit)
        return json_response(await asyncio.to_thread(where))

    # The limits of a request are known only now.
    predict.__annotations__["request"] = PredictRequest
    feedback.__annotations__["request"] = FeedbackRequest
    add("POST", f"{base}/predict", predict, schema.PredictResponse, 400, 403, 422, *unknown)
    add("POST", f"{base}/feedback", feedback, schema.FeedbackResponse, 400, 403, 404, 422, 507)
    add("GET", f"{base}/labels", labels, schema.LabelsResponse, 422, *unknown)
    add("GET", facts, model_facts, schema.ModelResponse, *unknown)
    add("GET", f"{base}/tree", tree, schema.TreeResponse, 404, 422)


def _add_page(app: FastAPI, models: Models, *, page: bool) -> None:
    """Adds the page at / and reports at /report.

    They are for people and not in the OpenAPI text. Of a model's own folder no symbolic link to a
    report is followed: in somebody else's it could lead to any file of this machine.
    """

    async def show_page(request: Request) -> Response:
        return await show_file(request, "index.html")

    async def show_file(request: Request, name: str) -> Response:
        content = files.get(name)
        if content is None:
            raise Problem("not-found", f"the page has no file {name!r}")
        return _sent(request, content, TYPES[Path(name).suffix], POLICY)

    def show_report(request: Request, name: str | None = None) -> Response:
        model = models.default if name is None else models.named(name)
        # Read each time, so that a new report needs no restart.
        file, follow = model.source.report, model.source.follow
        content = None if file is None else read_plain(file, follow=follow)
        if content is None:
            raise Problem("no-report", "there is no report; start the service with --report FILE")
        return _sent(request, content, TYPES[".html"], REPORT_POLICY)

    shown: dict[str, Callable[..., Any]] = {"/report": show_report, "/report/{name}": show_report}
    if page:
        files = {file.name: file.read_bytes() for file in FOLDER.iterdir() if file.suffix in TYPES}
        shown |= {"/": show_page, "/page/{name}": show_file}
    for path, show in shown.items():
        app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)(show)


def _sent(request: Request, content: bytes, kind: str, policy: str) -> Response:
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = HEADERS | {"ETag": tag, "Content-Security-Policy": policy}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers | {"Content-Type": kind})
