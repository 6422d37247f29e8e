"""Numbers in Prometheus' text format, of one process and of several."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from labelgrove.serve import metrics as module
from labelgrove.serve.metrics import Metrics

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [-+0-9.einf]+')


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_histograms_are_cumulative_and_add_up() -> None:
    metrics = Metrics()
    for value in (1, 1, 2, 3, 5000):
        metrics.observe("labelgrove_batch_texts", value)
    got = samples(metrics.text())
    name = "labelgrove_batch_texts"
    assert got[f'{name}_bucket{{le="1"}}'] == 2
    assert got[f'{name}_bucket{{le="2"}}'] == 3
    assert got[f'{name}_bucket{{le="4"}}'] == 4
    assert got[f'{name}_bucket{{le="1024"}}'] == 4
    assert got[f'{name}_bucket{{le="+Inf"}}'] == got[f"{name}_count"] == 5
    assert got[f"{name}_sum"] == 5007


def test_unforeseen_routes_and_statuses_count_as_other() -> None:
    metrics = Metrics()
    metrics.count("labelgrove_requests_total", "/etc/passwd", "418")
    metrics.count("labelgrove_requests_total", "/v1/predict", "200")
    got = samples(metrics.text())
    assert got['labelgrove_requests_total{route="other",status="other"}'] == 1
    assert got['labelgrove_requests_total{route="/v1/predict",status="200"}'] == 1


def test_every_family_has_help_and_type() -> None:
    text = Metrics().text(model_info={"id": 'a"b\\c\nd'})
    for family in module.FAMILIES:
        assert f"# TYPE {family.name} {family.kind}\n" in text
        assert f"# HELP {family.name} {family.help}\n" in text
    assert text.endswith('labelgrove_model_info{id="a\\"b\\\\c\\nd"} 1\n')


def test_processes_are_summed_and_a_dead_ones_gauges_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Metrics(tmp_path), Metrics(tmp_path)
    for number, metrics in enumerate((first, second), 1):
        metrics.count("labelgrove_texts_total", by=number)
        metrics.set("labelgrove_waiting_texts", 10 * number)
    for metrics in (first, second):
        got = samples(metrics.text())
        assert got["labelgrove_texts_total"] == 3
        assert got["labelgrove_waiting_texts"] == 30
    now = module.time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 60)
    got = samples(second.text())  # asking is a sign of life; the first gives none
    assert got["labelgrove_texts_total"] == 3
    assert got["labelgrove_waiting_texts"] == 20


def test_the_service_counts_what_it_did(client: Any) -> None:
    before = samples(client.get("/metrics").text)
    response = client.post("/v1/predict", json={"texts": ["a", "b"]})
    assert response.status_code == 200
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    after = samples(response.text)
    assert after["labelgrove_texts_total"] - before["labelgrove_texts_total"] == 2
    assert after["labelgrove_open_requests"] == 1  # this one
    for name in ("request_seconds", "batch_seconds", "waiting_seconds"):
        assert after[f"labelgrove_{name}_count"] > before.get(f"labelgrove_{name}_count", 0)
