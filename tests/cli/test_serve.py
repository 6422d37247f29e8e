"""labelgrove serve: the real command with several worker processes, and what it refuses."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")


@contextmanager
def serving(*arguments: object, **environment: str) -> Iterator[tuple[Any, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "labelgrove", "serve", *map(str, arguments), "--port", "0"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=os.environ | environment,
    )
    try:
        assert process.stderr is not None
        seen = ""
        while (found := re.search(r"serving at (\S+)", seen)) is None:
            line = process.stderr.readline()
            assert line, seen
            seen += line
        with httpx.Client(base_url=found[1], timeout=120) as client:
            wait_until_ready(client)
            yield client, process
    finally:
        process.terminate()
        _, rest = process.communicate()
    assert "Traceback" not in rest


def wait_until_ready(client: Any) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass  # with several workers nobody listens yet
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_one_process_serves_and_stops_when_asked(model: Path) -> None:
    with serving(model, "--set", "max_k=2", LABELGROVE_TOKEN="abc") as (client, process):
        assert client.get("/v1/model").status_code == 401
        client.headers["authorization"] = "Bearer abc"
        body = {"texts": ["a red shoe"], "k": 2}
        rows = client.post("/v1/predict", json=body).json()["predictions"]
        assert {label["id"] for label in rows[0]} == {"c:red", "k:shoe"}
        assert client.post("/v1/predict", json=body | {"k": 3}).status_code == 422
        process.send_signal(signal.SIGTERM)
        process.wait()


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("workers", [1, 2])
def test_other_names_and_links_out_of_the_folder_are_refused(
    model: Path, tmp_path: Path, workers: int
) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    (tmp_path / "secret").write_text("of this machine", encoding="utf-8")
    (copy / "report.html").symlink_to(tmp_path / "secret")
    names = ("--host-header", "labels.example.org", "--workers", workers)
    with serving(copy, *names) as (client, _):
        assert client.get("/report").status_code == 404
        assert client.get("/v1/model").json()["report"] is False
        for host, status in {"labels.example.org": 200, "evil.example": 421}.items():
            assert client.get("/v1/model", headers={"host": host}).status_code == status


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_several_workers_answer_as_one(model: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a long secret\n", encoding="utf-8")
    with serving(model, "--workers", 2, "--token-file", token) as (client, _):
        assert client.get("/v1/model").status_code == 401
        client.headers["authorization"] = "Bearer a long secret"
        client.headers["connection"] = "close"  # so that both workers get some
        for _ in range(40):
            response = client.post("/v1/predict", json={"texts": ["a red shoe"]})
            assert response.status_code == 200
        for _ in range(5):
            assert 'labelgrove_texts_total{model="model"} 40.0\n' in client.get("/metrics").text


def test_several_models_over_several_workers(model: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        shutil.copytree(model, tmp_path / "models" / name)
    (tmp_path / "b.html").write_text("<p>about b</p>", encoding="utf-8")
    said = tmp_path / "said"
    arguments = ("--default", "b", "--report", f"b={tmp_path}/b.html", "--set", "max_k=2")
    with serving(
        tmp_path / "models", f"c={model}", "--workers", 2, "--feedback", said, *arguments
    ) as (client, _):
        client.headers["connection"] = "close"  # so that both workers get some
        listed = client.get("/v1/models").json()
        assert listed["default"] == "b"
        assert [one["name"] for one in listed["models"]] == ["a", "b", "c"]
        assert [client.get(f"/report{name}").status_code for name in ("", "/b", "/a")] == [
            200,
            200,
            404,
        ]
        for name, k, status in (("a", 3, 422), ("a", 2, 200), ("c", 2, 200), ("d", 2, 404)):
            body = {"texts": ["a red shoe"], "k": k}
            assert client.post(f"/v1/models/{name}/predict", json=body).status_code == status
        for _ in range(20):
            given = {"text": "a red shoe", "labels": ["c:red"]}
            assert client.post("/v1/feedback", json=given).status_code == 200
    assert len((said / "b.jsonl").read_text(encoding="utf-8").splitlines()) == 20


def test_models_that_cannot_be_told_apart_are_said(run: Any, model: Path) -> None:
    for arguments, words in (
        ((model, model), "two models are called"),
        ((f"a={model}", f"b={model}", "--default", "c"), "no such model, only a or b"),
        ((f"a={model}", f"b={model}", "--train", "x"), "--train NAME=FILE"),
    ):
        done = run("serve", *arguments, check=False)
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_what_cannot_be_served_is_said_in_a_sentence(run: Any, model: Path, tmp_path: Path) -> None:
    done = run("serve", tmp_path / "nothing", check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no such folder" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", model, "--port", taken.getsockname()[1], check=False)
    assert done.returncode == 1
    assert "in use; choose another" in done.stderr
    done = run("serve", model, "--set", "max_kk=2", check=False)
    assert done.returncode == 1
    assert "did you mean max_k?" in done.stderr
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    done = run("serve", model, "--token-file", tmp_path / "empty", check=False)
    assert done.returncode == 1
    assert "one line of printable ASCII" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", model, "--port", taken.getsockname()[1], check=False)
    assert done.returncode == 1
    assert "in use" in done.stderr
    assert "Traceback" not in done.stderr
