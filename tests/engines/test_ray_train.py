"""Networks that several Ray workers train together: the result is that of one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra ray is not installed")
pytest.importorskip("torch", reason="the extra torch is not installed")

from labelgrove import load
from labelgrove.cli.options import Documents, Reading
from labelgrove.cli.together import Training
from labelgrove.core.callbacks import Event
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import open_engine
from support.ray_training import Curves, DiesOnce, arrays, flags, settings
from support.sharding import write_shards
from support.tiny_encoders import make_encoder
from test_contract import COLOURS, THINGS

whole = pytest.mark.skipif(
    os.environ.get("LABELGROVE_TEST_RAY") != "all",
    reason="starts many processes; `make test-ray` runs it",
)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = [*COLOURS, *THINGS, "item", "is", "a", "that", "we", "sell"]
    path = tmp_path_factory.mktemp("tiny") / "encoder"
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return make_encoder(path, "bert", words=words, **none)


@pytest.fixture
def together(engine: Any, tmp_path: Path) -> Callable[..., Any]:
    """Runs a function in the two workers of the shared cluster."""
    return partial(run, engine, folder=tmp_path)


def run(engine: Any, work: Any, **options: Any) -> Any:
    usual = {"device": "auto", "threads": 1, "callback": lambda event: None}
    return engine.together(work, **(usual | options))


def losses(model: Any) -> list[float]:
    return [record["loss"] for record in model.story_["history"] if "loss" in record]


def test_two_workers_have_the_loss_curve_of_one_process(
    cluster: Any, encoder: Path, tmp_path: Path, call: Callable[..., str]
) -> None:
    """The command on shards, and without Ray on one file with twice the batches in an update."""
    file, shards = write_shards(tmp_path, 60, 25)
    one, many = (flags("cascadexml", encoder, batches=count) for count in (2, 1))
    train = ("--method", "cascadexml", "--quiet")
    call("train", file, *train, *one, "--out", tmp_path / "one")
    ray = ("--engine", "ray", "--address", cluster.address)
    out = call("train", shards, *train, *ray, *many, "--out", tmp_path / "many", "--json")
    assert '"documents": 60' in out
    model, expected = load(tmp_path / "many"), load(tmp_path / "one")
    assert len(losses(model)) == 12  # three epochs of eight batches, two in an update
    assert np.allclose(losses(model), losses(expected), atol=1e-5, rtol=0)
    for name, array in arrays(expected).items():
        assert np.allclose(array, arrays(model)[name], atol=1e-4), name
    assert model.to_config()["n_jobs"] is None  # the share of a worker was one core
    assert not (tmp_path / "many.run").exists()


@whole
@pytest.mark.parametrize("count", [2, 3])
def test_loss_curves_are_those_of_one_process(count: int, encoder: Path, tmp_path: Path) -> None:
    with open_engine("ray", workers=count) as engine:
        curves = run(engine, Curves(encoder), folder=tmp_path)
    expected = Curves(encoder, batches=count)(lambda event: None)
    assert curves.keys() == expected.keys()
    for method, curve in expected.items():
        assert len(curve) >= 3 * (8 // count), method
        assert np.allclose(curves[method], curve, atol=1e-5, rtol=0), method


@pytest.fixture
def training(encoder: Path, tmp_path: Path) -> Training:
    file, _ = write_shards(tmp_path, 60, 25)
    tables = settings("cascadexml", encoder)
    tables["training"] |= {"checkpoint_minutes": 0}
    tables["held_out"] = 0.2
    out = tmp_path / "model"
    return Training("cascadexml", tables, "cpu", 1, file, Documents(), Reading(), out)


@whole
def test_a_killed_worker_changes_no_bit(
    together: Callable[..., Any], training: Training, tmp_path: Path
) -> None:
    models, events = [], list[Event]()
    for name, deadly in (("whole", False), ("killed", True)):
        with RunFolder(tmp_path / name) as open_run:
            work: Any = partial(training.work, open_run.path)
            work = DiesOnce(work, tmp_path / "died", update=5) if deadly else work
            facts, _ = together(work, folder=open_run.path, callback=events.append)
            assert facts["documents"] == 60
            assert not (open_run.path / "ray").exists()
        models.append(load(training.out))
    assert (tmp_path / "died").exists()
    said = [event.values["text"] for event in events if event.kind == "message"]
    assert "a worker was lost; all start again and continue from the last checkpoint" in said
    assert any(text.startswith("training: continues after") for text in said)
    starts = [event.stage for event in events if event.kind == "stage_start"]
    assert sorted(starts) == sorted(event.stage for event in events if event.kind == "stage_end")
    first, second = map(arrays, models)
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key], err_msg=key)
    assert losses(models[0]) == losses(models[1])
