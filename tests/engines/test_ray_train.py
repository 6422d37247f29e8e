"""Networks that several Ray workers train together: the result is that of one process."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra ray is not installed")
pytest.importorskip("torch", reason="the extra torch is not installed")

from labelgrove import load
from labelgrove.cli.options import Work
from labelgrove.cli.together import NetworkTraining
from labelgrove.cli.training_data import TrainingData
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import open_engine
from labelgrove.errors import ConfigError, ResourceError, StorageError
from support import ray_work
from support.clusters import NODE
from support.ray_work import AtUpdate, Curves, arrays, flags, settings
from support.sharding import write_shards
from support.small_models import COLOURS, THINGS
from support.tiny_encoders import make_encoder
from support.together import run_together

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def paths(monkeypatch):
    """Workers must find labelgrove and the functions of tests, also on nodes that come later."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    words = [*COLOURS, *THINGS, "item", "is", "a", "that", "we", "sell"]
    path = tmp_path_factory.mktemp("tiny") / "encoder"
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return make_encoder(path, "bert", words=words, **none)


@pytest.fixture
def together(cluster, tmp_path):
    """Runs a function in the two workers of the shared cluster."""
    with open_engine("ray", address=cluster.address) as engine:
        yield partial(run, engine, folder=tmp_path)


def run(engine, work, **options):
    usual = {"device": "auto", "threads": 1, "callback": lambda event: None}
    return engine.together(work, **(usual | options))


def losses(model):
    return [record["loss"] for record in model.history_["history"] if "loss" in record]


@pytest.mark.long_ray
def test_shards_give_the_loss_curve_of_one_process(cluster, encoder, tmp_path, call):
    """The command on shards, and without Ray on one file with twice the batches in an update."""
    file, shards = write_shards(tmp_path, 60, 25)
    one, many = (flags(settings("cascadexml", encoder, accumulate=count)) for count in (2, 1))
    train = ("--method", "cascadexml", "--quiet")
    call("train", file, *train, *one, "--out", tmp_path / "one")
    ray = ("--engine", "ray", "--address", cluster.address)
    out = call("train", shards, *train, *ray, *many, "--out", tmp_path / "many", "--json")
    assert json.loads(out)["documents"] == 60
    model, expected = load(tmp_path / "many"), load(tmp_path / "one")
    assert len(losses(model)) == 12  # three epochs of eight batches, two in an update
    assert np.allclose(losses(model), losses(expected), atol=1e-5, rtol=0)
    for name, array in arrays(expected).items():
        assert np.allclose(array, arrays(model)[name], atol=1e-4), name
    assert model.to_config()["n_jobs"] is None  # the share of a worker was one core
    assert not (tmp_path / "many.run").exists()


@pytest.mark.long_ray
@pytest.mark.parametrize("count", [2, 3])
def test_loss_curves_are_those_of_one_process(count, encoder, tmp_path):
    with open_engine("ray", workers=count) as engine:
        curves = run(engine, Curves(encoder), folder=tmp_path)
    expected = Curves(encoder, batches=count)(lambda event: None)
    assert curves.keys() == expected.keys()
    for method, curve in expected.items():
        assert len(curve) >= 3 * (8 // count), method
        assert np.allclose(curves[method], curve, atol=1e-5, rtol=0), method


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("documents"), 60, 25)[0]


@pytest.fixture(scope="module")
def tables(encoder):
    chosen = settings("cascadexml", encoder, epochs=10, checkpoint_minutes=0)
    return chosen | {"held_out": 0.2}


@pytest.fixture(scope="module")
def expected(corpus, tables, tmp_path_factory):
    """What two processes train that torchrun would start."""
    out = tmp_path_factory.mktemp("expected") / "model"
    train = ("-m", "labelgrove", "train", corpus, "--method", "cascadexml", *flags(tables))
    for ended in run_together(*train, "--out", out):
        assert ended.code == 0, ended.errors
    return load(out)


@pytest.fixture
def training(corpus, tables, tmp_path):
    out = tmp_path / "model"
    work = Work(device="cpu", threads=1)
    return NetworkTraining("cascadexml", tables, work, TrainingData(corpus=corpus), out)


def assert_same_model(path, expected):
    model = load(path)
    assert losses(model) == losses(expected)
    trained, wanted = arrays(model), arrays(expected)
    assert trained.keys() == wanted.keys()
    for key, array in wanted.items():
        np.testing.assert_array_equal(array, trained[key], err_msg=key)


def messages(events):
    return [event.values["text"] for event in events if event.kind == "message"]


LOST = "a worker was lost; all start again and continue from the last checkpoint"


@pytest.mark.long_ray
def test_a_killed_worker_changes_no_bit(together, training, expected, tmp_path):
    events = []
    with RunFolder(tmp_path / "run") as opened, opened.shared():
        act = partial(ray_work.die_once, tmp_path)
        work = AtUpdate(partial(training.fit, opened.path), 5, act)
        facts = together(work, folder=opened.path, callback=events.append)
        assert not (opened.path / "ray").exists()
    assert (tmp_path / "died").exists()
    assert facts["documents"] == 60
    assert messages(events).count(LOST) == 1
    assert "training: continues after" in " ".join(messages(events))
    starts = [event.stage for event in events if event.kind == "stage_start"]
    assert sorted(starts) == sorted(event.stage for event in events if event.kind == "stage_end")
    assert_same_model(training.out, expected)


@pytest.mark.long_ray
@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "for good"])
def test_a_lost_machine_is_replaced_or_missed(
    replaced, lossy, training, expected, tmp_path, monkeypatch
):
    cluster, node, engine = lossy
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "20" if replaced else "5")
    monkeypatch.setattr("labelgrove.engines.ray_train.WAITS", 4 if replaced else 0)
    events = []

    def lose(event):
        events.append(event)
        if event.values.get("step") == 5 and not (tmp_path / "go").exists():
            cluster.remove_node(node, allow_graceful=False)
            if replaced:
                cluster.add_node(**NODE)
            (tmp_path / "go").touch()

    with RunFolder(tmp_path / "run") as opened, opened.shared():
        act = partial(ray_work.wait_for, tmp_path / "go")
        work = AtUpdate(partial(training.fit, opened.path), 5, act)
        if replaced:
            run(engine, work, folder=opened.path, callback=lose)
        else:
            with pytest.raises(ResourceError, match=r"could not start 2 workers .* --resume"):
                run(engine, work, folder=opened.path, callback=lose)
            assert opened.status().checkpoints
            return
    assert LOST in messages(events)
    assert_same_model(training.out, expected)


@pytest.mark.long_ray
def test_a_command_that_was_stopped_goes_on_with_resume(corpus, tables, expected, tmp_path):
    """First Ctrl-C, then kill -9; no worker of the command is left."""
    command = [sys.executable, "-m", "labelgrove", "train", corpus, "--method", "cascadexml"]
    command += ["--engine", "ray", "--workers", "2", "--out", "model", *flags(tables)]
    options = {
        "cwd": tmp_path,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    steps = "model.run/checkpoints/*/*/step-*"
    for number, stop in enumerate((signal.SIGINT, signal.SIGKILL)):
        before = set(tmp_path.glob(steps))
        process = subprocess.Popen([*command, *["--resume"][:number]], **options)
        while not set(tmp_path.glob(steps)) - before and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(stop)
        _, errors = process.communicate()
        assert process.returncode == (130 if stop == signal.SIGINT else -stop), errors
        if stop == signal.SIGINT:
            assert "--resume" in errors.splitlines()[-1]
        assert set(tmp_path.glob(steps))
        assert not (tmp_path / "model").exists()
    done = subprocess.run([*command, "--resume"], **options)
    assert done.returncode == 0, done.stderr
    assert "training: continues after" in done.stderr
    assert_same_model(tmp_path / "model", expected)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}
    deadline = time.monotonic() + 60
    while left := workers_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def workers_in(folder):
    """The workers of Ray Train whose working directory is this."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = process.joinpath("cwd").readlink() == folder
            title = process.joinpath("cmdline").read_text()
        except OSError:
            continue  # it has ended, or is not ours
        if inside and title.startswith("ray::"):
            found.append(f"{process.name} {title}")
    return found


@pytest.mark.long_ray
def test_errors_of_workers_are_sentences(together, tmp_path):
    with pytest.raises(StorageError, match="no space left on device"):
        together(ray_work.refuse_in_the_first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labelgrove.engines.ray_train.RESTARTS", 0)
        pytest.raises(ResourceError, together, ray_work.die_in_training).match(
            "failed again and .*; look"
        )
        pytest.raises(ResourceError, together, ray_work.fail).match("a mistake in the code")
    assert not list(tmp_path.iterdir())


@pytest.mark.long_ray
def test_workers_get_the_cores_that_they_ask_for(together):
    before = actors()
    assert together(ray_work.variables) == ("2", "1")
    deadline = time.monotonic() + 60
    while left := actors() - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
    with pytest.raises(ConfigError, match="room for 0 workers with 4 cores each, not for 1"):
        together(ray_work.variables, threads=4)
    with pytest.raises(ConfigError, match="device: cuda needs GPUs, but the cluster has none"):
        together(ray_work.variables, device="cuda")


def actors():
    """The actors that live, without the one that Ray keeps for its autoscaler."""
    from ray._private.state import actors

    living = [actor for actor in actors().values() if actor["State"] != "DEAD"]
    names = {(actor["ActorID"], actor["ActorClassName"]) for actor in living}
    return {(each, name) for each, name in names if name != "_AutoscalingCoordinatorActor"}
