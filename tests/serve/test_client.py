"""The client gives what the model gives."""

import pickle
import threading

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

from labelgrove import Client, Linear, records
from labelgrove.errors import ConfigError, DataError, ServiceError
from support.services import fitted, running

pytestmark = pytest.mark.slow
TEXTS = ["this red hat", "a blue lamp", "", 'grüne 🪑 "chair"', "this black table"]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    fitted().save(folder / "plain")
    rows = [{"title": f"volume {n % 5}", "creator": f"Person {n % 3}"} for n in range(60)]
    documents = records(rows, text="title", fields="creator")
    Linear().fit(documents, [[f"L{n % 3}"] for n in range(60)]).save(folder / "fields")
    return {name: folder / name for name in ("plain", "fields")}


@pytest.fixture(scope="module")
def service(paths, tmp_path_factory):
    said = tmp_path_factory.mktemp("said")
    with running(paths, max_texts=2, max_body=2000, token="s3cret", feedback=said) as client:
        client.said = said
        yield client


def ask(service, model=None, **options):
    return Client(f"{service.base_url}/", model=model, **{"token": "s3cret"} | options)


def test_predictions_are_the_models_over_several_requests(service):
    got, expected = ask(service).predict(TEXTS * 5, k=3), fitted().predict(TEXTS * 5, k=3)
    assert got.ids() == expected.ids() and got.names() == expected.names()
    assert got.scores == pytest.approx(expected.scores, abs=1e-6)
    assert got.score_kind == expected.score_kind and got.k == 3
    assert len(got.index) == len({label for row in got.ids() for label in row})


def test_options_are_the_models(service):
    client, model = ask(service), fitted()
    for options in (
        {"allow": ["colours"]},
        {"deny": ["Red goods", "hat"]},
        {"k": 9, "threshold": 0.4},
        {"threshold": 0.99},  # nothing is left
    ):
        assert client.predict(TEXTS, **options).ids() == model.predict(TEXTS, **options).ids()
    assert len(client.predict([])) == 0


def test_documents_may_be_frames_and_mappings(service):
    pandas = pytest.importorskip("pandas")
    client = ask(service)
    frame = pandas.DataFrame({"text": TEXTS})
    for documents in (frame["text"], frame, tuple(TEXTS)):
        assert client.predict(documents, k=1).ids() == fitted().predict(TEXTS, k=1).ids()
    rows = [{"title": "volume 1", "creator": ["Person 2"]}, {"title": "x", "creator": "Person 0"}]
    fields = ask(service, "fields")
    for documents in (rows, pandas.DataFrame(rows)):
        assert fields.predict(documents, k=1).names() == [["L2"], ["L0"]]
    with pytest.raises(DataError, match="trained on plain texts"):
        client.predict(rows)
    with pytest.raises(DataError, match="reads texts"):
        client.predict(fitted().vectorizer_.transform(TEXTS))
    with pytest.raises(DataError, match="one string"):
        client.predict("a text")


def test_the_service_is_described(service):
    client = ask(service, "fields")
    assert [model["name"] for model in client.models()] == ["plain", "fields"]
    assert client.facts()["name"] == "fields" and ask(service).facts()["name"] == "plain"
    assert ask(service).labels("lam", limit=3)[0]["name"] == "Lamp goods"
    assert repr(client) == f"Client('{service.base_url}', model='fields')".replace("/'", "'")
    assert "s3cret" not in repr(client)


def test_feedback_is_sent(service):
    client = ask(service)
    client.feedback("a hat", ["hat"], suggestions=client.predict(["a hat"], k=2)[0], threshold=0.3)
    line = (service.said / "plain.jsonl").read_text(encoding="utf-8")
    assert '"labels":["hat"]' in line and line.count('"score":') == 2


def test_refusals_are_errors_with_the_services_words(service):
    for client, status, code in (
        (ask(service, "nothing"), 404, "no-model"),
        (ask(service, token="wrong"), 401, "no-token"),
        (ask(service, token=None), 401, "no-token"),
    ):
        with pytest.raises(ServiceError) as raised:
            client.predict(["x"])
        assert (raised.value.status, raised.value.code) == (status, code)
        again = pickle.loads(pickle.dumps(raised.value))
        assert (str(again), again.status, again.code) == (str(raised.value), status, code)
    with pytest.raises(ServiceError, match="k: Input should be") as raised:
        ask(service).predict(["x"], k=1000)
    assert raised.value.status == 422
    with pytest.raises(ServiceError, match="is labelgrove serve running there") as raised:
        Client("http://127.0.0.1:9").models()
    assert raised.value.status == 0
    with pytest.raises(ConfigError, match="begins with http"):
        Client("localhost:8000")


def test_a_busy_service_is_asked_again(paths):
    busy, go_on = threading.Event(), threading.Event()

    def wait(texts):
        if texts == ["first"]:
            busy.set()
            go_on.wait(60)

    with running(paths["plain"], slow=wait, max_texts=1, max_waiting=1) as service:
        address = str(service.base_url)
        first = threading.Thread(target=Client(address).predict, args=(["first"],))
        first.start()
        assert busy.wait(60)
        with pytest.raises(ServiceError) as raised:
            Client(address, timeout=1.2).predict(["second"])
        assert raised.value.status == 429 and raised.value.retry_after
        threading.Timer(0.2, go_on.set).start()
        assert Client(address).predict(["this red hat"], k=1).k == 1
        first.join()
