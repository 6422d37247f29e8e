"""The costs of prediction, of rows of a bench."""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labelgrove import Linear
from labelgrove.data.corpus import Corpus
from labelgrove.experiments.bench import costs as module
from labelgrove.experiments.bench.config import Bench
from labelgrove.experiments.bench.costs import BATCHES, FEWEST, MOST, WARM_UP, Costs, costs_table
from labelgrove.experiments.bench.run import BenchFolder
from support.small_models import planted

pytestmark = pytest.mark.slow
QUICK = Costs(seconds=0.0)


class Clock:
    """A clock on which a document takes a millisecond to predict, and a call one more."""

    def __init__(self) -> None:
        self.now, self.sizes = 0.0, list[int]()

    def perf_counter(self) -> float:
        return self.now

    def predict(self, documents: Any, **_: Any) -> None:
        self.sizes.append(len(documents))
        self.now += 0.001 * (1 + len(documents))


def test_numbers_are_medians_of_calls_after_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.from_lists(*planted(30))
    model, clock = Linear(), Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(model, "predict", clock.predict)
    result = Costs(seconds=1.0).of(model, corpus)
    assert list(result) == ["cpu"]  # linear has no network, whatever the machine has
    one, many = (result["cpu"][str(size)] for size in BATCHES)
    assert one == {"ms_per_document": 2.0, "documents_per_second": 500.0, "calls": MOST}
    # A batch of 128 takes 0.129 s, and the calls end when a second has passed.
    assert many["ms_per_document"] == pytest.approx(129 / 128, abs=1e-4)
    assert many["calls"] == 8
    assert clock.sizes == [1] * (WARM_UP + MOST) + [4] * WARM_UP + [128] * 8
    clock.sizes.clear()
    assert QUICK.of(model, corpus)["cpu"]["128"]["calls"] == FEWEST


def test_a_network_is_measured_where_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from labelgrove.methods import create

    model = create("lightxml")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Costs().devices(model) == ["cuda", "cpu"]
    assert Costs("cpu").devices(model) == ["cpu"]
    assert Costs("cuda").devices(Linear()) == ["cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Costs().devices(model) == ["cpu"]


def test_rows_of_a_bench_have_costs_once(data: Path, tmp_path: Path) -> None:
    bench = Bench.from_config({"intervals": 0, "methods": [{"method": "linear"}]})
    BenchFolder(bench, data, tmp_path).run()
    messages: list[str] = []
    seen = [
        BenchFolder(bench, data, tmp_path).run(costs=QUICK, say=messages.append) for _ in range(2)
    ]
    before = "linear: measured before"
    assert messages == [before, "linear: measuring the costs of prediction", before]
    BenchFolder(bench, data, tmp_path).run(costs=replace(QUICK, threads=1), say=messages.append)
    assert messages[3:] == messages[:2]  # with other threads the numbers are others
    assert seen[0] == seen[1]
    records = seen[0]
    assert records[0]["prediction"]["cpu"]["128"]["documents_per_second"] > 0
    table = costs_table(records).splitlines()
    assert table[0].split("|")[-3:-1] == [" cpu ms, batch 1 ", " cpu docs/s, batch 128 "]
    assert [cell.strip() for cell in table[2].split("|")[1:4]] == ["linear", "shop", "11"]


def test_the_training_of_networks_is_counted_in_updates() -> None:
    pytest.importorskip("torch")
    from labelgrove.methods import create
    from labelgrove.methods.ensemble.method import Ensemble
    from support.small_models import tiny_training

    settings = deepcopy(tiny_training())  # other tests share it
    settings["training"]["max_steps"] = 3
    model = create("cascadexml", settings).fit(*planted(60))
    joined = Ensemble([model, Linear().fit(*planted(60)), model], rule="rank").join()
    record = QUICK.record(joined, Corpus.from_lists(*planted(8)))
    assert record["story"]["updates"] == 6
    assert record["story"]["tokens_per_second"] > 0
    assert "cpu" in record["prediction"]


def test_a_row_without_its_model_is_an_error_of_that_row(data: Path, tmp_path: Path) -> None:
    methods = [{"method": "linear"}, {"method": "ova"}]
    bench = Bench.from_config({"intervals": 0, "baseline": "linear", "methods": methods})
    BenchFolder(bench, data, tmp_path).run()
    shutil.rmtree(tmp_path / "models" / "linear")
    records = BenchFolder(bench, data, tmp_path).run(costs=QUICK)
    assert "no such" in records[0]["error"]
    assert "prediction" in records[1] and "gain" in records[1]
    assert "error" not in BenchFolder(bench, data, tmp_path).run()[0]  # it is measured all the same
