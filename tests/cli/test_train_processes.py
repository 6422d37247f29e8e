"""Several processes that train one model from the command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import labelgrove
from run_logs import computed
from test_contract import planted
from tiny_encoders import make_encoder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment variables")


def train_together(*arguments: Any) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of two processes that run ``labelgrove train``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "labelgrove", "train", *map(str, arguments)],
            env={**shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    said = [process.communicate(timeout=120) for process in processes]
    return [(p.returncode, out, err) for p, (out, err) in zip(processes, said, strict=True)]


def test_two_processes_train_one_model_through_one_run_folder(tmp_path: Path) -> None:
    texts, labels = planted(60)
    rows = (json.dumps({"text": t, "labels": y}) for t, y in zip(texts, labels, strict=True))
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    encoder = make_encoder(tmp_path / "encoder", "bert")
    train: list[Any] = [tmp_path / "train.jsonl", "--method", "cascadexml", "--device", "cpu"]
    train += ["--set", f"encoder.encoder={encoder}", "--set", "encoder.max_tokens=8"]
    train += ["--set", "training.epochs=2", "--set", "training.batch_size=8"]
    train += ["--set", "rerank.enabled=true", "--run", tmp_path / "run"]
    first, second = train_together(*train, "--out", tmp_path / "model", "--json")
    assert first[0] == second[0] == 0, first[2] + second[2]
    assert json.loads(first[1])["labels"] == 11
    assert second[1] == ""  # one of them speaks
    model = labelgrove.load(tmp_path / "model")
    assert model.story_["steps"] == 8  # of two batches each: eight batches in an epoch
    assert model.predict(texts[:2], k=3).counts.tolist() == [3, 3]
    before = computed(tmp_path / "run")
    assert sorted(before) == sorted(set(before)) and "network" in before
    first, second = train_together(*train, "--out", tmp_path / "again", "--json")
    assert first[0] == second[0] == 0, first[2] + second[2]
    assert computed(tmp_path / "run") == before
    again = labelgrove.load(tmp_path / "again").predict(texts, k=3)
    assert again.scores.tobytes() == model.predict(texts, k=3).scores.tobytes()
