"""The log of requests and their ids; repeated messages are written once per second."""

import json
import logging

import pytest

from labelgrove.serve.logs import NOISY, OncePerSecond, access, limit_logs, log_access
from support.services import running

pytestmark = pytest.mark.slow


@pytest.fixture
def lines():
    """What is logged, in the order in which requests end."""
    written = []

    class Reading(logging.Handler):
        def emit(self, record):
            written.append(json.loads(record.getMessage()))

    handler = Reading()
    before = access.level
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    yield written
    access.removeHandler(handler)
    access.setLevel(before)


def ask(client):
    body = {"texts": ["a secret hat"]}
    assert client.post("/v1/models/a/predict", json=body).status_code == 200
    assert client.get("/v1/labels", params={"q": "secret"}).status_code == 200
    assert client.get("/nowhere").status_code == 404


def test_a_line_per_request_without_texts(model_path, lines):
    with running({"a": model_path, "b": model_path}, default="b", access_log=True) as client:
        ask(client)
    assert [(line["route"], line["model"], line["status"]) for line in lines] == [
        ("/v1/models/{name}/predict", "a", 200),
        ("/v1/labels", "b", 200),
        ("other", None, 404),
    ]
    first = lines[0]
    assert (first["method"], first["path"]) == ("POST", "/v1/models/a/predict")
    assert first["client"] == "127.0.0.1"
    assert first["ms"] > 0 and first["bytes"] > 10 and first["time"].endswith("+00:00")
    assert len({line["id"] for line in lines}) == 3
    assert "secret" not in json.dumps(lines)
    lines.clear()
    with running({"a": model_path}) as client:  # nothing is written unless it is asked for
        ask(client)
    assert lines == []


def test_every_answer_has_an_id(client):
    for path in ("/v1/model", "/healthz", "/", "/nowhere"):
        given = client.get(path, headers={"x-request-id": "proxy-7.x_Y"})
        assert given.headers["x-request-id"] == "proxy-7.x_Y"
        own = [client.get(path).headers["x-request-id"] for _ in range(2)]
        assert len(set(own)) == 2 and all(len(one) == 16 for one in own)
    for forged in ("a b", "x" * 65, '{"id": 1}'):
        answer = client.get("/v1/model", headers={"x-request-id": forged})
        assert answer.headers["x-request-id"] != forged


def test_it_goes_to_standard_output_once(capsys):
    before = access.handlers[:], access.level, access.propagate
    access.handlers.clear()
    try:
        log_access()
        log_access()
        access.info("a line")
        assert capsys.readouterr().out == "a line\n"
    finally:
        access.handlers[:], access.level, access.propagate = before


def test_a_message_is_written_once_per_second():
    now = [100.0]
    lines = []
    logger = logging.Logger("strangers")
    logger.addFilter(OncePerSecond(lambda: now[0]))
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    for number in range(2048):
        logger.error(f"socket.accept() out of system resource\nsocket: {number}")
    logger.error("something else: %d%%", 5)
    assert [line.split("\n")[0] for line in lines] == [
        "socket.accept() out of system resource",
        "something else: 5%",
    ]
    now[0] += 1.0
    logger.error("socket.accept() out of system resource")
    assert lines[2:] == [
        "socket.accept() out of system resource (2047 more like this since the last line)"
    ]


def test_messages_that_never_repeat_do_not_pile_up():
    once = OncePerSecond(lambda: 0.0)
    for number in range(5000):
        record = logging.LogRecord("x", logging.ERROR, "", 0, f"{number}", None, None)
        assert once.filter(record)
    assert len(once._last) < 2000


def test_loggers_are_limited_once(monkeypatch):
    for name in NOISY:
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    limit_logs()
    limit_logs()
    assert [len(logging.getLogger(name).filters) for name in NOISY] == [1, 1]
