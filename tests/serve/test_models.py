"""Several models in one service, their names, and new models in their folders."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from labelgrove import Linear
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.serve.models import Models, NamedModel, Source
from labelgrove.serve.served import ModelFolder
from labelgrove.serve.settings import ServeParams, files_by_model, named_models
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


def test_names_must_differ_and_the_default_exist(model_path):
    folder = ModelFolder(model_path)
    a, b = (NamedModel(Source(name, model_path), folder, ServeParams()) for name in "ab")
    with pytest.raises(ConfigError, match="no model 'c', only a or b"):
        Models([a, b], "c")
    for wrong in ([], [a, a]):
        with pytest.raises(ConfigError, match="each with a name of its own"):
            Models(wrong)


def test_models_are_called_as_given_or_as_their_folders(tmp_path):
    for name in ("models/fi", "models/en", "models/unfinished", "one", "x=y"):
        (tmp_path / name).mkdir(parents=True)
        if name != "models/unfinished":
            (tmp_path / name / "manifest.json").touch()
    given = [f"{tmp_path}/one", f"b={tmp_path}/one", f"{tmp_path}/models", f"{tmp_path}/x=y"]
    assert named_models(given) == {
        "one": f"{tmp_path}/one",
        "b": f"{tmp_path}/one",
        "en": f"{tmp_path}/models/en",
        "fi": f"{tmp_path}/models/fi",
        "x-y": f"{tmp_path}/x=y",  # a folder that exists is no name and model
    }
    assert named_models(["hub:owner/name@v2", "nowhere"]) == {
        "name": "hub:owner/name@v2",
        "nowhere": "nowhere",
    }


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="two models are called 'm'"):
        named_models(["a/m", "b/m"])
    for name in ("", "a b", "a/b", "-a", "x" * 65, "ä"):
        with pytest.raises(ConfigError, match="cannot be a model's name"):
            named_models([f"{name}=model"])


def test_files_belong_to_a_model():
    assert files_by_model(["x=y.html"], ["one"], "--report") == {"one": Path("x=y.html")}
    assert files_by_model(["b=t.jsonl"], ["a", "b"], "--train") == {"b": Path("t.jsonl")}
    for wrong in ("t.jsonl", "c=t.jsonl"):
        with pytest.raises(ConfigError, match="--train NAME=FILE, where NAME is a or b"):
            files_by_model([wrong], ["a", "b"], "--train")


def test_models_change_under_load_and_no_request_fails(tmp_path):
    path = tmp_path / "model"
    fitted(prefix="v0 ").save(path)
    seen = set()
    stop = threading.Event()

    with running(path, reload_seconds=0.05) as client:

        def ask():
            asked = 0
            while not stop.is_set():
                body = {"texts": ["this red hat"] * 3, "k": 2}
                response = client.post("/v1/predict", json=body)
                assert response.status_code == 200, response.text
                rows = response.json()["predictions"]
                versions = {label["name"].split()[0] for row in rows for label in row}
                assert len(versions) == 1  # never two models in one answer
                seen.update(versions)
                asked += 1
            return asked

        with ThreadPoolExecutor(6) as pool:
            asking = [pool.submit(ask) for _ in range(6)]
            try:
                for version in ("v1", "v2", "v3"):
                    fitted(prefix=f"{version} ").save(path, overwrite=True)
                    wait_for(lambda version=version: version in seen)
            finally:
                stop.set()
            assert sum(future.result() for future in asking) > 10
        assert (
            'labelgrove_reloads_total{model="model",outcome="loaded"} 3'
            in client.get("/metrics").text
        )
    assert seen == {"v0", "v1", "v2", "v3"}


def test_a_broken_new_model_leaves_the_old_one_in_place(tmp_path, monkeypatch):
    looks = []  # what the service has seen in the folder
    look = ModelFolder._signature
    monkeypatch.setattr(
        ModelFolder, "_signature", lambda folder: looks.append(look(folder)) or looks[-1]
    )
    path = tmp_path / "model"
    fitted().save(path)
    with running(path, reload_seconds=0.05) as client:
        before = client.get("/v1/model").json()["id"]
        (path / "manifest.json").write_text("{}", encoding="utf-8")
        failed = 'labelgrove_reloads_total{model="model",outcome="failed"} 1'
        wait_for(lambda: failed in client.get("/metrics").text)
        shutil.rmtree(path)
        wait_for(lambda: looks[-3:] == [None] * 3)  # it has looked since, more than once
        assert client.get("/v1/model").json()["id"] == before
        assert client.post("/v1/predict", json={"texts": ["red"]}).status_code == 200
        assert client.get("/readyz").status_code == 200
        fitted(prefix="new ").save(path)
        wait_for(lambda: client.get("/v1/model").json()["id"] != before)


def test_a_link_that_is_pointed_elsewhere_is_a_new_model(tmp_path):
    for version in ("a", "b"):
        fitted(prefix=f"{version} ").save(tmp_path / version)
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "a")
    with running(link, reload_seconds=0.05) as client:
        before = client.get("/v1/model").json()["id"]
        (tmp_path / "next").symlink_to(tmp_path / "b")
        (tmp_path / "next").replace(link)
        wait_for(lambda: client.get("/v1/model").json()["id"] != before)


def test_a_folder_without_a_model_that_reads_texts_is_refused(tmp_path):
    with pytest.raises(ModelFormatError, match="no such folder"):
        ModelFolder(tmp_path / "nothing")
    features = fitted().vectorizer_.transform(["red hat", "blue hat"])
    Linear().fit(features, [["a"], ["b"]]).save(tmp_path / "features")
    with pytest.raises(ConfigError, match="trained on features"):
        ModelFolder(tmp_path / "features")
