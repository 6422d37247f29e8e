"""Requests that cost much, and files that change below a real service."""

import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

import httpx

from support.served_process import serving, wait_for
from support.services import check_problem

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads times from /proc"),
]
SETTINGS = ("reload_seconds=0",)
LONG = 199_000  # characters


def costly(shop):
    """One label takes as much work as possible: many words, or one with many positions."""
    assert shop.texts is not None
    texts = " ".join(shop.texts)[:LONG], "oak " * (LONG // 4)
    return [{"texts": [text], "k": 18, "explain": True} for text in texts]


def test_predictions_do_not_wait_for_explanations(server, shop):
    plain = {"texts": ["a chopping board of oak"], "k": 3}
    seconds = []
    with ThreadPoolExecutor(6) as pool:
        costs = [pool.submit(server.client.post, "/v1/predict", json=x) for x in costly(shop) * 3]
        while not any(cost.done() for cost in costs):
            started = time.perf_counter()
            assert server.client.post("/v1/predict", json=plain).status_code == 200
            seconds.append(time.perf_counter() - started)
        answers = [cost.result() for cost in costs]
    print(f"beside: {statistics.median(seconds):.3f} s, at most {max(seconds):.3f} s")
    assert len(seconds) > 1
    for answer in answers:
        assert answer.status_code == 200 and len(answer.content) < 2_000_000
        for label in answer.json()["predictions"][0]:
            (note,) = label["why"]["notes"]
            assert note.startswith("only the first 10,000 characters")


def test_work_ends_when_its_client_leaves(server, shop):
    body = costly(shop)[0] | {"k": 50}
    url = server.client.base_url.join("/v1/predict")
    before = server.cpu()
    assert server.client.post("/v1/predict", json=body).status_code == 200
    whole, before = server.cpu() - before, server.cpu()
    for _ in range(20):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=body, timeout=0.05)
    wait_for(lambda: server.metric('waiting_texts{model="model"}') == 0)
    wait_for(lambda: server.metric("open_requests") == 1)  # the one for the metrics
    print(f"{whole:.2f} CPU s for one, {server.cpu() - before:.2f} for twenty whose clients left")
    assert server.cpu() - before < 10 * whole


@pytest.mark.long_attack
def test_honest_clients_beside_hostile_ones(model, shop, rounds, tally):
    """Ten minutes in the long form; each kind of hostile client tries again and again."""
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    costs, plain = costly(shop), {"texts": ["a chopping board of oak"], "k": 3}
    settings = ("max_header_seconds=2", "max_seconds=5", "max_connections_per_address=60")
    with serving(model, *settings) as server, ThreadPoolExecutor(6) as pool:
        url, end = server.client.base_url.join("/v1/predict"), Event()

        def explain(number):
            httpx.post(url, json=costs[number % 2], timeout=60)

        def leave(number):
            httpx.post(url, json=costs[number % 2], timeout=0.05)

        def send(data):
            with server.connect(data) as connection:
                connection.settimeout(10)
                while connection.recv(65536):
                    pass

        hostile = {
            "explanations of long texts": explain,
            "clients that leave": leave,
            "half headers": lambda number: send(head[: 20 + number % 60]),
            "half bodies": lambda number: send(
                head + b"Content-Length: 4000000\r\n\r\n" + b" " * 99
            ),
            "garbage": lambda number: send(os.urandom(2000) + b"\r\n\r\n"),
            "large bodies": lambda number: httpx.post(url, content=b" " * 5_000_000, timeout=60),
        }

        def attack(kind):
            while not end.is_set():
                with suppress(httpx.TransportError, OSError):
                    hostile[kind](tally[kind])
                tally[kind] += 1

        attacks = [pool.submit(attack, kind) for kind in hostile]
        seconds = []
        try:
            wait_for(lambda: all(tally[kind] for kind in hostile), server.process)
            early = server.memory()
            for _ in rounds(1 / 6):
                for _ in range(20):
                    started = time.perf_counter()
                    assert server.client.post("/v1/predict", json=plain).status_code == 200
                    seconds.append(time.perf_counter() - started)
                    time.sleep(0.05)
        finally:
            end.set()
        for done in attacks:
            done.result()
        late = server.memory()
    seconds.sort()
    low, high = statistics.median(seconds), seconds[int(0.99 * len(seconds))]
    print(f"{len(seconds):,} answers: p50 {low:.3f} s, p99 {high:.3f} s, max {seconds[-1]:.3f} s")
    print(f"{early:.0f} MB before, {late:.0f} MB after; {dict(tally)}")
    tally["honest requests beside hostile clients"] += len(seconds)
    assert late < early + 100


def test_every_route_notices_a_file_that_was_cut(model, tmp_path):
    copy = shutil.copytree(model, tmp_path / "model")
    mapped = {file: file.read_bytes() for file in copy.rglob("*.safetensors")}
    settings = ("copy_mb=0", "reload_seconds=0.1")
    entry = {"text": "a hat", "labels": [], "suggestions": []}
    with serving(copy, *settings, arguments=("--feedback", str(tmp_path / "said"))) as server:
        client = server.client
        entry["labels"] = [client.get("/v1/labels?limit=1").json()["labels"][0]["id"]]
        for file in mapped:
            os.truncate(file, 0)
        texts = {"texts": ["a chopping board of oak"]}
        for answer in (
            client.post("/v1/feedback", json=entry),
            client.post("/v1/predict", json=texts),
            client.post("/v1/predict", json=texts | {"explain": True}),
            client.post("/v1/predict", json=texts | {"allow": entry["labels"]}),
            *(client.get(path) for path in ("/v1/labels?q=oak", "/v1/tree", "/v1/model")),
            client.get("/readyz"),
        ):
            check_problem(answer, 503, "model-changed")
        for path in ("/v1/models", "/", "/healthz", "/metrics"):
            assert client.get(path).status_code == 200
        assert (tmp_path / "said" / "model.jsonl").read_bytes() == b""
        for file, content in mapped.items():
            file.write_bytes(content)
        wait_for(lambda: client.get("/readyz").status_code == 200, server.process)
        assert client.post("/v1/feedback", json=entry).status_code == 200
