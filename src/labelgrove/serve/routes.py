"""The routes about one model: the default one at /v1, each by its name at /v1/models/{name}."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from labelgrove.serve import problems, schema
from labelgrove.serve.batching import Answered
from labelgrove.serve.hosts import is_cross_site
from labelgrove.serve.models import Models, NamedModel
from labelgrove.serve.problems import Problem, as_json
from labelgrove.serve.request_limits import ASKED
from labelgrove.serve.served import Options

# What every route except probes may answer with.
ALWAYS = (401, 408, 413, 421, 429, 431, 500, 503)
Handler = Callable[..., Awaitable[Response]]


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


def add_routes(app: FastAPI, models: Models) -> None:
    """Adds the routes of the default model and those with a name."""
    names = {"enum": list(models.names)}
    Name = Annotated[
        str, Path(max_length=200, description="name of a model", json_schema_extra=names)
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
    _add(partial(add_route, app, "the default model"), "/v1", "/v1/model", default, *bodies)
    _add(partial(add_route, app, "a model by its name"), one, one, named, *bodies)
    add_route(app, "models", "GET", "/v1/models", list_models, schema.ModelsResponse)


def _add(
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
