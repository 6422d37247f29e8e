"""Several processes that train one model from the command line."""

import json
import sys

import pytest

pytest.importorskip("torch")

import labelgrove
from support.run_logs import computed
from support.small_models import planted
from support.tiny_encoders import make_encoder
from support.together import run_together

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment variables"),
]


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
