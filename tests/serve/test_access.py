"""The log of requests, and their ids."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from labelgrove.serve.logs import access, log_access
from support.services import running

pytestmark = pytest.mark.slow


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is logged, in the order in which requests end."""
    written: list[dict[str, Any]] = []

    class Reading(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(json.loads(record.getMessage()))

    handler = Reading()
    before = access.level
    access.addHandler(handler)
    access.setLevel(logging.INFO)
    yield written
    access.removeHandler(handler)
    access.setLevel(before)


def ask(client: Any) -> None:
    body = {"texts": ["a secret hat"]}
    assert client.post("/v1/models/a/predict", json=body).status_code == 200
    assert client.get("/v1/labels", params={"q": "secret"}).status_code == 200
    assert client.get("/nowhere").status_code == 404


def test_a_line_per_request_without_texts(model_path: Path, lines: list[dict[str, Any]]) -> None:
    with running({"a": model_path, "b": model_path}, default="b", access_log=True) as client:
        ask(client)
    assert [(line["route"], line["model"], line["status"]) for line in lines] == [
        ("/v1/models/{name}/predict", "a", 200),
        ("/v1/labels", "b", 200),
        ("other", None, 404),
    ]
    first = lines[0]
    assert (first["method"], first["path"], first["client"]) == (
        "POST",
        "/v1/models/a/predict",
        "127.0.0.1",
    )
    assert first["ms"] > 0 and first["bytes"] > 10 and first["time"].endswith("+00:00")
    assert len({line["id"] for line in lines}) == 3
    assert "secret" not in json.dumps(lines)


def test_nothing_is_written_unless_asked_for(model_path: Path, lines: list[dict[str, Any]]) -> None:
    with running({"a": model_path}) as client:
        ask(client)
    assert lines == []


def test_every_answer_has_an_id(client: Any) -> None:
    for path in ("/v1/model", "/healthz", "/", "/nowhere"):
        given = client.get(path, headers={"x-request-id": "proxy-7.x_Y"})
        assert given.headers["x-request-id"] == "proxy-7.x_Y"
        own = [client.get(path).headers["x-request-id"] for _ in range(2)]
        assert len(set(own)) == 2 and all(len(one) == 16 for one in own)
    for forged in ("a b", "x" * 65, '{"id": 1}'):
        answer = client.get("/v1/model", headers={"x-request-id": forged})
        assert answer.headers["x-request-id"] != forged


def test_it_goes_to_standard_output_once(capsys: pytest.CaptureFixture[str]) -> None:
    before = access.handlers[:], access.level, access.propagate
    access.handlers.clear()
    try:
        log_access()
        log_access()
        access.info("a line")
        assert capsys.readouterr().out == "a line\n"
    finally:
        access.handlers[:], access.level, access.propagate = before
