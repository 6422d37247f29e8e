"""The routes about one model: the default one at /v1, each by its name at /v1/models/{name}."""

import asyncio
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Query, Request
from starlette.responses import Response

from labelgrove.serve import problems, schema
from labelgrove.serve.models import Models, NamedModel
from labelgrove.serve.problems import Problem, as_json
from labelgrove.serve.request_limits import ASKED
from labelgrove.serve.served import Options

# What every route except probes may answer with.
ALWAYS = (401, 408, 413, 421, 429, 431, 500, 503)


def json_response(value: Any) -> Response:
    """A value as JSON."""
    return Response(as_json(value), media_type="application/json")


def add_routes(app: FastAPI, models: Models) -> None:
    """Adds the routes of the default model and those with a name."""

    async def default(request: Request) -> NamedModel:
        request.scope[ASKED] = models.default.name
        return models.default

    async def named(
        request: Request,
        name: Annotated[
            str,
            Path(
                max_length=200,
                description="name of a model",
                json_schema_extra={"enum": list(models.names)},
            ),
        ],
    ) -> NamedModel:
        model = models.named(name)
        request.scope[ASKED] = model.name
        return model

    limits = models.default.params
    bodies = schema.limited_request(limits), schema.limited_feedback(limits)
    _add(app, "/v1", "/v1/model", default, *bodies)
    one = "/v1/models/{name}"
    _add(app, one, one, named, *bodies, 404)

    @app.get(
        "/v1/models",
        response_model=schema.ModelsResponse,
        responses=problems.responses(*ALWAYS),
        tags=["models"],
    )
    async def list_models() -> Response:
        """The models of this service."""
        summaries = [model.summary() for model in models]
        return json_response({"default": models.default.name, "models": summaries})


def _add(
    app: FastAPI,
    base: str,
    facts: str,
    chosen: Any,
    predict_body: type[schema.RequestFields],
    feedback_body: type[schema.FeedbackFields],
    *also: int,
) -> None:
    """Routes under ``base``."""
    Chosen = Annotated[NamedModel, Depends(chosen)]
    kind: dict[str, Any] = {"tags": ["a model by its name" if also else "the default model"]}

    async def predict(request: schema.RequestFields, model: Chosen) -> Response:
        """The k best labels of each text."""
        pairs, most = len(request.texts) * request.k, model.params.max_explained
        if request.explain and pairs > most:
            detail = f"explain: {pairs} labels (texts times k) are more than {most}"
            raise Problem("too-much-to-explain", detail)
        options = Options(
            request.k,
            request.threshold,
            None if request.allow is None else tuple(request.allow),
            None if request.deny is None else tuple(request.deny),
            request.explain,
        )
        answered = await model.ask(request.texts, options)
        return json_response(
            {
                "model": answered.shared.model,
                "score_kind": answered.shared.score_kind,
                "predictions": answered.rows,
                "unknown": [at for at, row in enumerate(answered.rows) if row.unknown],
                "timing": {
                    "waiting_ms": round(1000 * answered.waiting, 3),
                    "predicting_ms": round(1000 * answered.working, 3),
                },
            }
        )

    async def feedback(request: schema.FeedbackFields, model: Chosen) -> Response:
        """Keeps which labels a person chose for a text, to learn from it later."""
        return json_response(await asyncio.to_thread(model.keep_feedback, request))

    # The limits of a request are known only now.
    predict.__annotations__["request"] = predict_body
    feedback.__annotations__["request"] = feedback_body
    app.post(
        f"{base}/predict",
        response_model=schema.PredictResponse,
        responses=problems.responses(400, *ALWAYS, 422, *also),
        **kind,
    )(predict)
    app.post(
        f"{base}/feedback",
        response_model=schema.FeedbackResponse,
        responses=problems.responses(400, 404, *ALWAYS, 422, 507),
        **kind,
    )(feedback)

    @app.get(
        f"{base}/labels",
        response_model=schema.LabelsResponse,
        responses=problems.responses(*ALWAYS, 422, *also),
        **kind,
    )
    async def labels(
        model: Chosen,
        q: Annotated[
            str, Query(max_length=200, description="part of a name or id", examples=["oak"])
        ] = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        """Labels by name, best matches first; without q the most frequent labels."""
        served = model.folder.current
        found = await asyncio.to_thread(served.find_labels, q, limit)
        return json_response({"model": served.id, "labels": found})

    @app.get(
        facts,
        response_model=schema.ModelResponse,
        responses=problems.responses(*ALWAYS, *also),
        **kind,
    )
    async def model_facts(model: Chosen) -> Response:
        """The model that answers now."""
        return json_response(model.facts())

    @app.get(
        f"{base}/tree",
        response_model=schema.TreeResponse,
        responses=problems.responses(*ALWAYS, 404, 422),
        **kind,
    )
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
        served = model.folder.current
        which = {"label": label, "offset": offset, "limit": limit}
        return json_response(await asyncio.to_thread(served.tree_page, tree, node, **which))
