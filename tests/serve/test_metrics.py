"""Numbers in Prometheus' text format, of one process and of several."""

import os
import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from labelgrove.serve.metrics import FOLDER, Metrics

pytestmark = pytest.mark.slow
KINDS = {
    "counter": ("requests", "texts", "reloads", "feedback"),
    "histogram": ("request_seconds", "batch_texts", "batch_seconds", "waiting_seconds"),
    "gauge": ("waiting_texts", "open_requests", "open_connections"),
}
# A worker that reports what it sees whenever a line comes in.
WORKER = """
import sys
from labelgrove.serve.metrics import Metrics
metrics = Metrics()
own = metrics.of("m")
own.texts.inc(int(sys.argv[1]))
own.batch_texts.observe(int(sys.argv[1]))
own.waiting_texts.set(10 * int(sys.argv[1]))
for line in sys.stdin:
    print(metrics.text(), end="# done\\n", flush=True)
"""


def samples(text):
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_unforeseen_routes_and_statuses_count_as_other():
    metrics = Metrics()
    metrics.count_request("/etc/passwd", 418)
    metrics.count_request("/etc/shadow", None)
    metrics.count_request("/v1/predict", 200, "m", 0.2)
    metrics.count_request("/etc/hosts", 200, seconds=0.2)
    got = samples(metrics.text())
    assert got["labelgrove_requests_total{model=,route=other,status=other}"] == 2
    assert got["labelgrove_requests_total{model=m,route=/v1/predict,status=200}"] == 1
    assert got["labelgrove_request_seconds_count{model=m,route=/v1/predict}"] == 1
    assert "labelgrove_request_seconds_count{model=,route=other}" not in got


def test_every_metric_has_help_and_type_and_no_time_of_creation():
    metrics = Metrics()
    metrics.of("m")
    text = metrics.text(model=[{"id": "b"}, {"id": 'a"b\\c\nd'}])
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for kind, names in KINDS.items():
        for name in names:
            family = families[f"labelgrove_{name}"]
            assert family.type == kind and family.documentation, name
    assert "_created" not in text
    assert text.endswith('labelgrove_model_info{id="a\\"b\\\\c\\nd"} 1.0\n')
    assert samples(text)["labelgrove_reloads_total{model=m,outcome=failed}"] == 0
    assert 'labelgrove_model_info{id="b"} 1.0\n' in text


@pytest.mark.skipif(sys.platform == "win32", reason="dead processes are not noticed there")
def test_processes_are_summed_and_a_dead_ones_gauges_forgotten(tmp_path):
    def report(worker):
        worker.stdin.write("report\n")
        worker.stdin.flush()
        return samples("".join(iter(worker.stdout.readline, "# done\n")))

    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {FOLDER: str(tmp_path)},
        )
        for number in (1, 2)
    ]
    first, second = workers
    try:
        report(second)  # by now it has counted
        got = report(first)
        assert got == report(second)
        assert got["labelgrove_texts_total{model=m}"] == 3
        assert got["labelgrove_batch_texts_count{model=m}"] == 2
        assert got["labelgrove_batch_texts_sum{model=m}"] == 3
        assert got["labelgrove_waiting_texts{model=m}"] == 30
        first.kill()
        first.wait()
        got = report(second)
        assert got["labelgrove_texts_total{model=m}"] == 3
        assert got["labelgrove_waiting_texts{model=m}"] == 20
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_the_service_counts_what_it_did(client):
    before = samples(client.get("/metrics").text)
    response = client.post("/v1/predict", json={"texts": ["a", "b"]})
    assert response.status_code == 200
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    after = samples(response.text)
    texts = "labelgrove_texts_total{model=model}"
    assert after[texts] - before[texts] == 2
    assert after["labelgrove_open_requests"] == 1  # this one
    counts = [f"{name}_count{{model=model}}" for name in ("batch_seconds", "waiting_seconds")]
    for name in (*counts, "request_seconds_count{model=model,route=/v1/predict}"):
        assert after[f"labelgrove_{name}"] > before.get(f"labelgrove_{name}", 0)
