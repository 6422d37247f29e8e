"""Every config can be read, and trains: ten updates of a tiny encoder on made-up data."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import labelgrove
from labelgrove.core.params import read_toml
from labelgrove.disk.run_folder import RunFolder
from labelgrove.experiments.bench.config import Bench
from labelgrove.methods import create
from labelgrove.methods.defaults import RULES
from support.small_models import made_small, planted, same, tiny_training

ROOT = Path(__file__).parent.parent
BEST = ROOT / "configs" / "best.toml"  # an ensemble that follows the corpus
CONFIGS = sorted(set((ROOT / "configs").glob("*.toml")) - {BEST})
BENCHES = sorted((ROOT / "benchmarks").rglob("*.toml"))


def test_there_are_configs() -> None:
    assert len(CONFIGS) >= 10


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_trains(path: Path) -> None:
    config = read_toml(path)
    method = config.pop("method")
    texts, labels = planted(60)
    model = create(method, made_small(method, config)).fit(texts, labels)
    assert model.history_["steps"] == 10
    assert model.predict(texts[:3], k=3).counts.tolist() == [3, 3, 3]


@pytest.mark.slow
def test_the_best_config_trains_and_its_members_share(tmp_path: Path) -> None:
    config = read_toml(BEST)
    method, tiny = config.pop("method"), tiny_training()
    config["encoder"]["encoder"] = tiny["encoder"]["encoder"]
    config |= {"training": {"max_steps": 5, "batch_size": 8, "precision": "fp32"}, "device": "cpu"}
    texts, labels = planted(120)
    heard: list[str] = []
    with RunFolder(tmp_path / "run") as run:
        model = create(method, config).fit(
            texts, labels, run=run, callbacks=[lambda e: heard.append(e.values.get("text", ""))]
        )
        lines = map(json.loads, (run.path / "log.jsonl").read_text().splitlines())
        made = Counter(line["stage"] for line in lines if line["kind"] == "stage_computing")
    names = [
        "linear",
        "neighbours",
        "matcher",
        "cascadexml",
        "cascadexml",
        "xrtransformer",
        "lightxml",
        "dual",
    ]
    assert [member.method for member in model.members_] == names
    assert made["tfidf"] == made["tokens"] == 1  # of eight members
    assert all(member.facts_.documents == 114 for member in model.members_)
    assert "members did not learn from the 6 held-out documents" in heard
    assert model.score(texts, labels) > 0.9
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    assert same(loaded.predict(texts[:9], k=3), model.predict(texts[:9], k=3))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_keeps_its_settings_when_defaults_change(path: Path) -> None:
    """``fixtures/configs.json``: the usual settings of a method's configs, and what differs.

    Nothing is left to be derived, so that a published setting stays what its authors ran.
    """
    pinned = json.loads((ROOT / "tests" / "fixtures" / "configs.json").read_text())
    expected = dict(pinned["configs"][path.name])
    config = read_toml(path)
    method = config.pop("method")
    assert expected.pop("method") == method
    settings: dict[str, Any] = {}
    for name, value in create(method, config).to_config().items():
        inner = value if isinstance(value, dict) else {"": value}
        settings |= {f"{name}.{key}".rstrip("."): content for key, content in inner.items()}
    if settings["training.average"] == "none":  # then it has no effect
        settings["training.swa_every"] = 100
    expected = pinned["usual"][method] | expected
    assert json.loads(json.dumps(settings)) == expected
    assert not [name for name in RULES if settings.get(name) == "auto"]


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.stem)
def test_the_rows_of_a_bench_can_be_made(path: Path) -> None:
    bench = Bench.from_config(read_toml(path), folder=path.parent)
    assert len(bench.rows) > 3 and bench.params.baseline in {row.name for row in bench.rows}
