"""Several models in one service."""

import pytest

from labelgrove.errors import ConfigError
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams
from support.served_process import wait_for
from support.services import check_problem, fitted, running

pytestmark = pytest.mark.slow
TEXT = "this red hat"


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("a", "b"):
        fitted(prefix=f"{name} ").save(folder / name)
    return {name: folder / name for name in ("a", "b")}


@pytest.fixture(scope="module")
def two(paths):
    with running(paths, default="b", max_k=9) as client:
        yield client


def best(client, route, **options):
    response = client.post(route, json={"texts": [TEXT], **options})
    assert response.status_code == 200, response.text
    return str(response.json()["predictions"][0][0]["name"])


def test_each_model_answers_under_its_name_and_one_under_none(two):
    assert best(two, "/v1/models/a/predict").startswith("a ")
    assert best(two, "/v1/models/b/predict").startswith("b ")
    assert best(two, "/v1/predict").startswith("b ")
    listed = two.get("/v1/models").json()
    assert listed["default"] == "b"
    assert [model["name"] for model in listed["models"]] == ["a", "b"]
    for model in listed["models"]:
        facts = two.get(f"/v1/models/{model['name']}").json()
        assert facts["id"] == model["id"] and facts["labels"] == model["labels"] == 9
        assert facts["name"] == model["name"] and not facts["feedback"]
    assert two.get("/v1/model").json() == two.get("/v1/models/b").json()
    for route in ("labels?q=lamp", "tree"):
        answers = [two.get(f"/v1/models/{name}/{route}").text for name in ("a", "b")]
        assert "a Lamp goods" in answers[0] and "b Lamp goods" in answers[1]
    assert "b Lamp goods" in two.get("/v1/labels?q=lamp").text


def test_an_unknown_name_gets_the_list(two):
    body = {"texts": [TEXT]}
    for response in (
        two.post("/v1/models/c/predict", json=body),
        two.post("/v1/models/c/feedback", json={"text": "x", "labels": []}),
        two.get("/v1/models/c"),
        two.get("/v1/models/c/labels"),
        two.get("/v1/models/c/tree"),
        two.get("/report/c"),
    ):
        problem = check_problem(response, 404, "no-model")
        assert problem["detail"] == "there is no model 'c'; there is a or b"


def test_limits_hold_for_every_model(two):
    for route in ("/v1/models/a/predict", "/v1/models/b/predict", "/v1/predict"):
        body = {"texts": ["x"], "k": 10}
        problem = check_problem(two.post(route, json=body), 422, "invalid-request")
        assert problem["errors"][0]["field"] == "k"


def test_numbers_are_by_model(two):
    best(two, "/v1/models/a/predict")
    text = two.get("/metrics").text
    for route in ('model="a",route="/v1/models/{name}/predict"', 'model="b",route="/v1/predict"'):
        assert f"labelgrove_request_seconds_count{{{route}}}" in text
    for name in ("a", "b"):
        assert f'labelgrove_texts_total{{model="{name}"}}' in text
        assert f'method="linear",name="{name}"}} 1.0' in text


def test_a_new_model_replaces_only_its_own(tmp_path):
    paths = {name: tmp_path / name for name in ("a", "b")}
    for name, path in paths.items():
        fitted(prefix=f"{name} ").save(path)
    with running(paths, reload_seconds=0.05) as client:
        before = client.get("/v1/models").json()["models"]
        fitted(prefix="new ").save(paths["b"], overwrite=True)
        wait_for(lambda: client.get("/v1/models/b").json()["id"] != before[1]["id"])
        after = client.get("/v1/models").json()["models"]
        assert after[0] == before[0]
        assert best(client, "/v1/models/b/predict").startswith("new ")
        assert best(client, "/v1/models/a/predict").startswith("a ")
        loaded = 'labelgrove_reloads_total{model="b",outcome="loaded"} 1.0\n'
        assert loaded in client.get("/metrics").text


def test_names_must_differ_and_the_default_exist(model_path):
    folder = ModelFolder(model_path)
    a, b = (NamedModel(Source(name, model_path), folder, ServeParams()) for name in "ab")
    with pytest.raises(ConfigError, match="no model 'c', only a or b"):
        Models([a, b], "c")
    for wrong in ([], [a, a]):
        with pytest.raises(ConfigError, match="each with a name of its own"):
            Models(wrong)
