"""What the routes answer, over real connections."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from labelgrove import calibrate
from labelgrove.errors import UnsupportedError
from labelgrove.serve.served import ModelFolder, Options, Served
from support.services import check_problem, fitted, running

pytestmark = pytest.mark.slow


def predict(client, *texts, **options):
    return client.post("/v1/predict", json={"texts": texts, **options})


def names(response):
    assert response.status_code == 200, response.text
    return [[label["name"] for label in row] for row in response.json()["predictions"]]


def test_answers_are_the_models_answers(client):
    texts = ["this red hat", "a blue lamp", ""]
    body = predict(client, *texts, k=3).json()
    expected = fitted().predict(texts, k=3)
    got = [[(x["id"], x["name"], x["score"]) for x in row] for row in body["predictions"]]
    assert got == [[(x.id, x.name, round(x.score, 6)) for x in row] for row in expected]
    assert body["model"] == client.get("/v1/model").json()["id"]
    assert body["score_kind"] == expected.score_kind
    assert body["timing"]["predicting_ms"] > 0


def test_texts_without_a_known_word_are_told(client):
    texts = ["this red hat", "xyzzy qwerty", "", "xyzzy lamp"]
    for options in ({}, {"k": 1}, {"k": 9}, {"explain": True}):
        assert predict(client, *texts, **options).json()["unknown"] == [1, 2]
    # Of few labels the empty text may get the same as others.
    for options in ({"allow": ["colours"]}, {"deny": ["lamp"]}, {"threshold": 0.5}):
        assert predict(client, *texts, **options).json()["unknown"] == []


def test_threshold_allow_and_deny(client):
    text = "this red hat"
    everything = predict(client, text, k=9).json()["predictions"][0]
    bar = everything[1]["score"] - 1e-5  # shown scores are rounded
    kept = predict(client, text, k=9, threshold=bar).json()["predictions"][0]
    assert kept == [label for label in everything if label["score"] >= bar]
    colours = {f"{colour} goods" for colour in ("Red", "Blue", "Green", "Black")}
    assert set(names(predict(client, text, k=9, allow=["colours"]))[0]) == colours
    assert names(predict(client, text, k=1, allow=["lamp"])) == [["Lamp goods"]]
    assert "Red goods" not in names(predict(client, text, k=9, deny=["Red goods"]))[0]
    check_problem(predict(client, text, allow=[]), 422, "refused-by-model")
    problem = check_problem(predict(client, text, allow=["zebra"]), 422, "refused-by-model")
    assert "zebra" in problem["detail"]


def test_the_thresholds_of_a_calibrated_model_are_auto(client, model_path):
    problem = check_problem(predict(client, "a hat", threshold="auto"), 422, "not-supported")
    assert "labelgrove calibrate" in problem["detail"]
    served = Served.load(model_path)
    texts = ["this red hat", "the blue lamp"] * 20
    calibrate(served._model, texts, [["red", "hat"], ["blue", "lamp"]] * 20)
    _, rows = served.answer(Options(9, threshold="auto"), ["this red hat"])
    least = served._model.calibration_.threshold
    _, everything = served.answer(Options(9), ["this red hat"])
    assert rows[0] == [label for label in everything[0] if label["score"] >= least - 1e-6]
    assert 0 < len(rows[0]) < len(everything[0])


def test_masks_are_made_once_and_thresholds_reach_the_method(model_path):
    served = Served.load(model_path)
    asked = []
    predict_plainly = served._model.predict
    served._model.predict = lambda X, **options: (
        asked.append(options) or predict_plainly(X, **options)
    )
    wish = Options(9, threshold=0.2, allow=("colours",), deny=("Red goods",))
    (_, first), (_, second) = (served.answer(wish, ["a red hat"]) for _ in range(2))
    assert first == second
    assert asked[0]["allow"] is asked[1]["allow"] and "deny" not in asked[0]
    assert len(asked[0]["allow"]) == 3 and asked[0]["threshold"] == 0.2
    served.answer(Options(9, allow=("red",)), ["a red hat"])
    assert len(asked[2]["allow"]) == 1 and asked[2]["threshold"] is None


def test_what_training_measured_is_told(model_path):
    served = Served.load(model_path)
    facts = served.facts()
    assert facts["held_out"] == {} and facts["dev"] == {} and facts["calibration"] is None
    assert list(facts["training_seconds"]) == ["tfidf", "tree", "ranker"]
    assert facts["score_kind"] == "product"
    served._model.dev_metrics_ = {"P@1": 0.7}
    served._model.report_ = {"lightxml": {"P@1": 0.5}, "linear": {"P@1": 0.4}}
    calibrate(served._model, ["this red hat"] * 20, [["red", "hat"]] * 20)
    facts = served.facts()
    assert facts["held_out"] == {"lightxml": {"P@1": 0.5}, "linear": {"P@1": 0.4}}
    assert facts["dev"] == {"P@1": 0.7}
    assert facts["calibration"]["kind"] in ("isotonic", "beta")
    assert set(facts["calibration"]) == {"kind", "threshold", "report"}


class Why:
    def __init__(self, *of, **options):
        self.of = of

    def to_dict(self):
        return {"of": list(self.of[1:])}


def test_reasons_stand_beside_the_labels(model_path, monkeypatch):
    monkeypatch.setattr("labelgrove.methods.explaining.explain.explain", Why)
    with running(model_path, max_explained=4) as client:
        rows = predict(client, "a red hat", "a lamp", k=2, explain=True).json()["predictions"]
        for text, row in zip(["a red hat", "a lamp"], rows, strict=True):
            assert [label["why"] for label in row] == [{"of": [text, x["id"]]} for x in row]
        plain = predict(client, "a red hat", k=2).json()["predictions"][0]
        assert all("why" not in label for label in plain)
        response = predict(client, "a red hat", "a lamp", k=3, explain=True)
        check_problem(response, 422, "too-much-to-explain")


def test_similar_documents_are_named_where_there_is_a_corpus(model_path, tmp_path):
    lines = [{"id": "d1", "text": "one red hat", "labels": ["red"]}, {"text": "x", "labels": []}]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    served = ModelFolder(model_path, train=file).current
    wish = Options(1, allow=("red",), explain=True)
    (near,) = served.answer(wish, ["a red hat"])[1][0][0]["why"]["neighbours"]
    assert near["id"] == "d1" and near["excerpt"] == "one red hat"
    assert "hat" in near["terms"]


def test_a_model_that_cannot_be_explained_is_a_problem(model_path, monkeypatch):
    def refuse(*of, **options):
        raise UnsupportedError("this method cannot be explained")

    monkeypatch.setattr("labelgrove.methods.explaining.explain.explain", refuse)
    with running(model_path) as client:
        response = predict(client, "a red hat", k=2, explain=True)
        check_problem(response, 422, "not-supported")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": "one text"}, "texts"),
        ({"texts": ["a", 3]}, "texts[1]"),
        ({"texts": [None]}, "texts[0]"),
        ({"texts": ["a"], "k": 0}, "k"),
        ({"texts": ["a"], "k": 21}, "k"),
        ({"texts": ["a"], "k": "3"}, "k"),
        ({"texts": ["a"], "k": True}, "k"),
        ({"texts": ["a"], "k": 1.5}, "k"),
        ({"texts": ["a"], "k": 10**30}, "k"),
        ({"texts": ["a"], "threshold": "high"}, "threshold"),
        ({"texts": ["a"], "allow": "red"}, "allow"),
        ({"texts": ["a"], "deny": [1]}, "deny[0]"),
        ({"texts": ["a"], "explain": 1}, "explain"),
        ({"texts": ["a"], "top": 3}, "top"),
        ({"texts": ["a" * 1001]}, "texts[0]"),
        ({"texts": ["a"] * 257}, "texts"),
        (["a"], "body"),
        (None, "body"),
    ],
)
def test_wrong_fields_are_named(client, body, field):
    problem = check_problem(client.post("/v1/predict", json=body), 422, "invalid-request")
    assert problem["errors"][0]["field"] == field
    assert problem["errors"][0]["message"]


JSON = "application/json"


@pytest.mark.parametrize(
    ("content", "kind", "code", "word"),
    [
        (b'{"texts": ["a"', JSON, "invalid-json", "JSON"),
        (b"\xff\xfe", JSON, "invalid-json", ""),
        (b"{'texts': 1}", JSON, "invalid-json", "JSON"),
        (b"[" * 9999, JSON, "invalid-json", ""),
        ('{"texts": ["grün"]}'.encode("latin-1"), JSON, "invalid-json", "UTF-8"),
        (b'{"texts": ["a"], "threshold": NaN}', JSON, "invalid-request", "threshold"),
        (b'{"texts": ["a"], "threshold": 1e999}', JSON, "invalid-request", "threshold"),
        (b'{"texts": ["\\ud800"]}', JSON, "invalid-request", "texts[0]"),
        (b"", JSON, "invalid-request", ""),
        (b'{"texts": ["a"]}', "text/plain", "invalid-request", f"Content-Type: {JSON}"),
        # curl -d says this unless told otherwise
        (b"{}", "application/x-www-form-urlencoded", "invalid-request", f"Content-Type: {JSON}"),
    ],
)
def test_bodies_that_are_no_request(client, content, kind, code, word):
    response = client.post("/v1/predict", content=content, headers={"content-type": kind})
    problem = check_problem(response, 400 if code == "invalid-json" else 422, code)
    assert word in problem["detail"]


def test_unknown_routes_and_methods_are_problems(client):
    check_problem(client.get("/v2/predict"), 404, "not-found")
    response = client.get("/v1/predict")
    check_problem(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"


def test_the_token_guards_everything_but_the_probes(model_path):
    with running(model_path, token="open sesame") as client:
        routes = ["/v1/model", "/v1/labels", "/metrics", "/openapi.json", "/nothing"]
        for route in routes:
            response = client.get(route)
            check_problem(response, 401, "no-token")
            assert response.headers["www-authenticate"] == "Bearer"
        check_problem(predict(client, "a"), 401, "no-token")
        assert client.get("/healthz").json() == {"status": "alive"}
        assert client.get("/readyz").json() == {"status": "ready"}
        for wrong in ("Bearer open", "Bearer open sesame2", "Basic open sesame", "Bearer", "ü"):
            headers = {"authorization": wrong.encode("latin-1")}
            check_problem(client.get("/v1/model", headers=headers), 401, "no-token")
        client.headers["authorization"] = "Bearer open sesame"
        assert predict(client, "a").status_code == 200
        text = client.get("/openapi.json").json()
        assert text["paths"]["/v1/model"]["get"]["security"] == [{"token": []}]
        assert "security" not in text["paths"]["/healthz"]["get"]


@pytest.mark.parametrize(
    "limits", [{"max_texts": 4, "max_waiting": 8, "batch_texts": 4}, {"max_requests": 3}], ids=str
)
def test_overload_gives_429_and_nothing_else(model_path, limits):
    refused = threading.Event()  # until then the model is busy
    limits = limits | {"max_seconds": 240}
    with running(model_path, slow=lambda texts: refused.wait(), **limits) as client:

        def ask(number):
            response = predict(client, "red", "blue")
            if response.status_code != 200:
                refused.set()
            return response

        with ThreadPoolExecutor(40) as pool:
            responses = list(pool.map(ask, range(200)))
        statuses = [response.status_code for response in responses]
        assert set(statuses) == {200, 429}
        for response in responses:
            if response.status_code == 429:
                check_problem(response, 429, "overloaded")
                assert 1 <= int(response.headers["retry-after"]) <= 60
        assert predict(client, "red").status_code == 200
        text = client.get("/metrics").text
        assert f'batch_texts_sum{{model="model"}} {2.0 * statuses.count(200) + 1}' in text
        refusing = "" if "max_requests" in limits else "model"  # before the model is known
        for model, status, number in (
            ("model", 200, statuses.count(200) + 1),
            (refusing, 429, statuses.count(429)),
        ):
            route = f'{{model="{model}",route="/v1/predict",status="{status}"}}'
            assert f"{route} {number}.0\n" in text
        assert 'labelgrove_waiting_texts{model="model"} 0.0\n' in text


def test_a_failing_model_is_a_500_that_tells_nothing(model_path):
    def fail(texts):
        if "bad" in texts:
            raise RuntimeError("secret of the house")

    with running(model_path, slow=fail) as client:
        for _ in range(5):
            body = check_problem(predict(client, "bad"), 500, "internal-error")
            assert "secret" not in json.dumps(body)
            assert predict(client, "good").status_code == 200  # over the same connection
        assert (
            '{model="model",route="/v1/predict",status="500"} 5.0\n' in client.get("/metrics").text
        )


def test_open_requests_are_answered_when_the_server_stops(model_path):
    begun, stopped = threading.Event(), threading.Event()
    addresses = []

    def slow(texts):
        """Works until the server has begun to stop and nobody listens any more."""
        begun.set()
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                socket.create_connection(addresses[0], timeout=240).close()
            except ConnectionError:
                stopped.set()
                return
            time.sleep(0.01)

    with ThreadPoolExecutor(1) as pool:
        with running(model_path, slow=slow, max_seconds=240) as client:
            address = client.base_url
            addresses.append((address.host, address.port))
            answer = pool.submit(
                httpx.post, f"{address}/v1/predict", json={"texts": ["red"]}, timeout=240
            )
            assert begun.wait(240)
        assert answer.result().status_code == 200 and stopped.is_set()


def test_every_answer_has_an_id(client):
    for path in ("/v1/model", "/healthz", "/", "/nowhere"):
        given = client.get(path, headers={"x-request-id": "proxy-7.x_Y"})
        assert given.headers["x-request-id"] == "proxy-7.x_Y"
        own = [client.get(path).headers["x-request-id"] for _ in range(2)]
        assert len(set(own)) == 2 and all(len(one) == 16 for one in own)
    for forged in ("a b", "x" * 65, '{"id": 1}'):
        answer = client.get("/v1/model", headers={"x-request-id": forged})
        assert answer.headers["x-request-id"] != forged


def test_requests_are_logged_if_asked_for(model_path, capfd):
    with running({"a": model_path}, access_log=True) as client:
        client.get("/v1/models/a")
    assert '"GET /v1/models/a HTTP/1.1" 200' in capfd.readouterr().out
