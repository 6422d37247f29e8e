"""Traces: what spans say, how they hang together, and that they go to a collector."""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.serve.tracing import Tracing
from support.collector import collector, spans_of, values
from support.services import running

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "PROTOCOL", "TRACES_ENDPOINT", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    for name in ("SERVICE_NAME", "RESOURCE_ATTRIBUTES", "SDK_DISABLED", "TRACES_SAMPLER"):
        monkeypatch.delenv(f"OTEL_{name}", raising=False)


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def named(memory: InMemorySpanExporter, name: str) -> list[Any]:
    return [span for span in memory.get_finished_spans() if span.name == name]


def test_a_request_is_a_span_with_its_time_in_the_queue_and_in_the_model(
    model_path: Path, memory: InMemorySpanExporter
) -> None:
    before = time.time_ns()
    with running({"a": model_path, "b": model_path}, tracing=Tracing(memory)) as client:
        body = {"texts": ["a secret hat", "secret"], "k": 3}
        headers = CALLER | {"x-request-id": "proxy-7"}
        assert client.post("/v1/models/b/predict", json=body, headers=headers).status_code == 200
    queue, predict, request = memory.get_finished_spans()  # as they end
    assert (request.name, request.kind) == ("POST /v1/models/{name}/predict", SpanKind.SERVER)
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "http.route": "/v1/models/{name}/predict",
        "http.response.status_code": 200,
        "url.path": "/v1/models/b/predict",
        "url.scheme": "http",
        "client.address": "127.0.0.1",
        "labelgrove.request_id": "proxy-7",
        "labelgrove.model": "b",
        "labelgrove.k": 3,
        "labelgrove.texts": 2,
    }
    assert f"{request.context.trace_id:032x}" == TRACE
    assert f"{request.parent.span_id:016x}" == PARENT and request.parent.is_remote
    assert request.context.trace_state.get("vendor") == "1"
    assert request.status.status_code is StatusCode.UNSET
    assert (queue.name, predict.name) == ("queue", "predict")
    assert dict(predict.attributes) == {"labelgrove.batch_texts": 2}
    for child in (queue, predict):
        assert child.parent.span_id == request.context.span_id
        assert child.context.trace_id == request.context.trace_id
    times = [before, request.start_time, queue.start_time, queue.end_time]
    assert queue.end_time == predict.start_time
    times += [predict.end_time, request.end_time, time.time_ns()]
    assert times == sorted(times)
    assert predict.end_time > predict.start_time
    assert not any("secret" in span.to_json() for span in memory.get_finished_spans())


def test_other_requests_have_spans_too_but_probes_have_none(
    model_path: Path, memory: InMemorySpanExporter
) -> None:
    with running(model_path, tracing=Tracing(memory), token="t") as client:
        assert client.get("/v1/model").status_code == 401
        client.headers["authorization"] = "Bearer t"
        for path in ("/healthz", "/readyz", "/metrics", "/nowhere"):
            client.get(path)
        client.get("/v1/labels", params={"q": "secret"})
        client.post("/v1/predict", json={"texts": "secret"}, headers={"traceparent": "nonsense"})
    spans = memory.get_finished_spans()
    assert [(s.name, s.attributes["http.response.status_code"]) for s in spans] == [
        ("GET", 401),
        ("GET", 404),
        ("GET /v1/labels", 200),
        ("POST /v1/predict", 422),
    ]
    assert {span.parent for span in spans} == {None}
    assert {span.status.status_code for span in spans} == {StatusCode.UNSET}
    assert len({span.context.trace_id for span in spans}) == 4
    assert not any("secret" in span.to_json() for span in spans)


def test_requests_that_share_a_batch_each_have_their_spans(
    model_path: Path, memory: InMemorySpanExporter
) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(texts: Any) -> None:
        if texts != ["hat"]:
            return
        begun.set()
        go.wait(60)

    def ask(*texts: str) -> int:
        status: int = client.post("/v1/predict", json={"texts": texts, "k": 1}).status_code
        return status

    with (
        running(model_path, tracing=Tracing(memory), slow=slow) as client,
        ThreadPoolExecutor(3) as pool,
    ):
        first = pool.submit(ask, "hat")
        assert begun.wait(60)
        others = [pool.submit(ask, "red lamp"), pool.submit(ask, "blue lamp", "red hat")]
        while "waiting_texts{" not in (text := client.get("/metrics").text) or (
            'waiting_texts{model="model"} 4' not in text
        ):
            time.sleep(0.01)
        go.set()
        assert {one.result() for one in (first, *others)} == {200}
    alone, *together = sorted(named(memory, "predict"), key=lambda span: span.start_time)
    assert alone.attributes["labelgrove.batch_texts"] == 1
    assert [span.attributes["labelgrove.batch_texts"] for span in together] == [3, 3]
    assert together[0].start_time >= alone.end_time
    texts = sorted(s.attributes["labelgrove.texts"] for s in named(memory, "POST /v1/predict"))
    assert texts == [1, 1, 2]


def test_a_request_that_waits_too_long_shows_where(
    model_path: Path, memory: InMemorySpanExporter
) -> None:
    go = threading.Event()

    def slow(texts: Any) -> None:
        if texts != [""]:
            go.wait(60)

    body = {"texts": ["hat"]}
    with running(model_path, tracing=Tracing(memory), slow=slow, max_seconds=0.5) as client:
        with ThreadPoolExecutor(2) as pool:
            working = pool.submit(client.post, "/v1/predict", json=body)
            while 'waiting_texts{model="model"} 1' not in client.get("/metrics").text:
                time.sleep(0.01)
            waiting = pool.submit(client.post, "/v1/predict", json=body)
            statuses = (working.result().status_code, waiting.result().status_code)
        assert statuses == (503, 429)
        go.set()
    failed, refused = sorted(named(memory, "POST /v1/predict"), key=lambda span: span.start_time)
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "503"
    assert refused.status.status_code is StatusCode.UNSET
    (predict,) = named(memory, "predict")
    assert predict.parent.span_id == failed.context.span_id
    assert predict.end_time == failed.end_time
    _, queue = sorted(named(memory, "queue"), key=lambda span: span.start_time)
    assert queue.parent.span_id == refused.context.span_id
    assert queue.end_time - queue.start_time > 0.4e9


def test_spans_go_to_the_collector_of_the_environment(
    model_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector() as (address, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=labels,stage=test")
        with running(model_path, tracing=Tracing()) as client:
            client.post("/v1/predict", json={"texts": ["a hat"], "k": 2}, headers=CALLER)
    spans = {span.name: span for _, span in spans_of(received)}
    assert sorted(spans) == ["POST /v1/predict", "predict", "queue"]
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    assert spans["POST /v1/predict"].parent_span_id.hex() == PARENT
    assert values(spans["POST /v1/predict"].attributes)["labelgrove.k"] == 2
    about, _ = spans_of(received)[0]
    assert (about["service.name"], about["stage"]) == ("labels", "test")


def test_the_service_has_a_name_and_a_version(memory: InMemorySpanExporter) -> None:
    tracing = Tracing(memory)
    tracing._tracer.start_span("one").end()
    tracing.close()
    (span,) = memory.get_finished_spans()
    assert span.resource.attributes["service.name"] == "labelgrove"
    assert span.resource.attributes["service.version"]


def test_a_caller_may_decide_that_a_request_is_not_traced(
    model_path: Path, memory: InMemorySpanExporter
) -> None:
    with running(model_path, tracing=Tracing(memory)) as client:
        unsampled = {"traceparent": CALLER["traceparent"][:-2] + "00"}
        client.post("/v1/predict", json={"texts": ["hat"]}, headers=unsampled)
    assert memory.get_finished_spans() == ()


def test_a_collector_that_is_not_there_holds_up_neither_answers_nor_the_end(
    model_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setattr("labelgrove.serve.tracing.LAST_SECONDS", 0.2)
    with running(model_path, tracing=Tracing()) as client, caplog.at_level(logging.WARNING):
        assert client.post("/v1/predict", json={"texts": ["hat"]}).status_code == 200
        started = time.monotonic()
    assert time.monotonic() - started < 8  # the exporter alone would go on for 10 s
    assert "opentelemetry" in caplog.text


@pytest.mark.parametrize("package", ["opentelemetry.sdk.trace", "opentelemetry.exporter"])
def test_without_the_extra_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for name in [name for name in sys.modules if name.startswith(package)]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"serve --trace needs the extra `trace`"):
        Tracing()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "^OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "TRACES_PROTOCOL=http/json"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9999", "OTEL_.*max_export_batch_size"),
    ],
)
def test_variables_that_cannot_be_followed_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=sentence):
        Tracing()
