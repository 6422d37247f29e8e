"""The service keeps what its OpenAPI text promises, for requests that fit it and that do not."""

import pytest
from hypothesis import HealthCheck, given, settings

from labelgrove.serve.problems import CODES
from support.services import running

pytestmark = pytest.mark.slow

schemathesis = pytest.importorskip("schemathesis")

ONE = "/v1/models/{name}"
# What takes something; of the others nothing about the request can be wrong.
TAKING = {"predict": "POST", "feedback": "POST", "labels": "GET", "tree": "GET"}
TAKING = {f"{base}/{name}": method for base in ("/v1", ONE) for name, method in TAKING.items()}
ROUTES = TAKING | dict.fromkeys(
    ("/v1/model", "/v1/models", ONE, "/healthz", "/readyz", "/metrics"), "GET"
)


@pytest.fixture(scope="module")
def api(model_path, tmp_path_factory):
    """A service with low limits, so that requests beyond them are small, too."""
    limits = {"max_texts": 8, "max_text_chars": 100, "max_labels": 5, "max_k": 20}
    models = {"a": model_path, "b": model_path}
    with running(models, feedback=tmp_path_factory.mktemp("feedback"), **limits) as client:
        yield schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


def test_every_route_is_tried_and_codes_keep_their_statuses(api, pinned):
    pinned("problems", CODES)
    described = {
        operation.ok().path: operation.ok().method for operation in api.get_all_operations()
    }
    assert {path: method.upper() for path, method in described.items()} == ROUTES
    paths = api.raw_schema["paths"]
    for path, method in described.items():
        assert ONE not in path or "404" in paths[path][method]["responses"]


@pytest.mark.parametrize(
    ("route", "mode"),
    [(route, "POSITIVE") for route in ROUTES] + [(route, "NEGATIVE") for route in TAKING],
)
def test_answers_are_as_promised(api, route, mode):
    takes_something = route in TAKING
    kind = schemathesis.GenerationMode[mode]
    tried = 0

    @settings(
        # Routes of one model have the handlers of the others.
        max_examples=3 if not takes_something else 10 if route.startswith(ONE) else 40,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=api[route][ROUTES[route]].as_strategy(generation_mode=kind))
    def try_one(case):
        nonlocal tried
        tried += 1
        response = case.call()
        # A request may fit the schema and name labels that this model does not have.
        refused = response.status_code == 422 and response.json()["code"] in (
            "refused-by-model",
            "not-supported",
            "too-much-to-explain",
        )
        positive = schemathesis.checks.positive_data_acceptance
        case.validate_response(response, excluded_checks=[positive] if refused else [])
        assert response.status_code < 500

    try_one()
    assert tried
