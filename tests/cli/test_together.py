"""Networks with --engine in this process (tests/engines has Ray), and by several processes."""

import json
import sys

import numpy as np
import pytest

pytest.importorskip("torch")

import labelgrove
from labelgrove import load
from support.ray_work import arrays, flags, settings
from support.run_logs import computed
from support.sharding import write_shards
from support.small_models import planted
from support.tiny_encoders import make_encoder
from support.together import run_together

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("tiny") / "encoder", "bert")


def test_a_network_learns_from_shards_what_it_learns_from_one_file(encoder, tmp_path, run):
    whole, shards = write_shards(tmp_path, 60, 25)
    train = ("--method", "lightxml", *flags(settings("lightxml", encoder)), "--dev", whole)
    run("train", whole, *train, "--out", tmp_path / "one")
    engine = ("--engine", "local", "--json")
    done = run("train", shards, *train, *engine, "--out", tmp_path / "many", cwd=tmp_path)
    facts = json.loads(done.stdout)
    assert facts["documents"] == 60 and "P@1" in facts["dev"]
    assert f"{shards}: 60 documents" in done.stderr
    one, many = load(tmp_path / "one"), load(tmp_path / "many")
    for key, array in arrays(one).items():
        np.testing.assert_array_equal(array, arrays(many)[key], err_msg=key)
    assert many.dev_metrics_ == one.dev_metrics_
    assert many.to_config() == one.to_config()
    assert not (tmp_path / "many.run").exists()
    # A file may have more than texts, so everything that belongs to one works.
    run("train", whole, *train, *engine, "--out", tmp_path / "file")
    for key, array in arrays(one).items():
        np.testing.assert_array_equal(array, arrays(load(tmp_path / "file"))[key], err_msg=key)


def test_what_workers_cannot_train_is_said_before_they_start(encoder, tmp_path, run):
    _, shards = write_shards(tmp_path, 60, 25)
    method = ("--method", "lightxml", *flags(settings("lightxml", encoder)))
    for source, given, message in (
        (
            shards,
            (*method, "--features", shards / "X.npz"),
            "has texts alone; leave out --features",
        ),
        (tmp_path / "nowhere", method, "nowhere"),
        (shards, (*method, "--device", "tpu"), "must be auto, cpu or cuda"),
    ):
        out = ("--engine", "local", "--out", tmp_path / "model")
        done = run("train", source, *out, *given, check=False)
        assert done.returncode == 1
        assert message in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"whole.jsonl", "shards"}


@pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment variables")
def test_two_processes_train_one_model_through_one_run_folder(tmp_path):
    texts, labels = planted(60)
    rows = (json.dumps({"text": t, "labels": y}) for t, y in zip(texts, labels, strict=True))
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    encoder = make_encoder(tmp_path / "encoder", "bert")
    train = ["-m", "labelgrove", "train", tmp_path / "train.jsonl"]
    train += ["--method", "cascadexml", "--device", "cpu"]
    train += ["--set", f"encoder.encoder={encoder}", "--set", "encoder.max_tokens=8"]
    train += ["--set", "training.epochs=2", "--set", "training.batch_size=8"]
    train += ["--set", "rerank.enabled=true", "--run", tmp_path / "run"]
    first, second = run_together(*train, "--out", tmp_path / "model", "--json")
    assert first.code == second.code == 0, first.errors + second.errors
    assert json.loads(first.out)["labels"] == 11
    assert second.out == ""  # one of them speaks
    model = labelgrove.load(tmp_path / "model")
    assert model.history_["steps"] == 8  # of two batches each: eight batches in an epoch
    assert model.predict(texts[:2], k=3).counts.tolist() == [3, 3]
    before = computed(tmp_path / "run")
    assert sorted(before) == sorted(set(before)) and "network" in before
    first, second = run_together(*train, "--out", tmp_path / "again", "--json")
    assert first.code == second.code == 0, first.errors + second.errors
    assert computed(tmp_path / "run") == before
    again = labelgrove.load(tmp_path / "again").predict(texts, k=3)
    assert again.scores.tobytes() == model.predict(texts, k=3).scores.tobytes()
