"""labelgrove adapt: several files in, an encoder folder out; Ctrl-C and what is refused."""

from __future__ import annotations

import json
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.tiny_encoders import make_encoder

LETTERS = "abcdefghijklmnopqrstuvwxyz"
AT_UPDATE = """
import os, signal
import labelgrove.nn.training.updates as updates
from labelgrove.cli import main
real = updates.Updates.make
def make(self, step, *arguments):
    if step == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, step, *arguments)
updates.Updates.make = make
main()
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents with labels, JSON lines without labels, and lines of plain text."""
    folder = tmp_path_factory.mktemp("texts")
    source = random.Random(0)
    lines = [" ".join(source.choices(["haus", "wald", "fluss"], k=9)) for _ in range(300)]
    labelled = [json.dumps({"text": text, "labels": ["x"]}) for text in lines[:100]]
    (folder / "train.jsonl").write_text("\n".join(labelled))
    plain = [json.dumps({"text": text}) for text in lines[100:200]]
    (folder / "more.jsonl").write_text("\n".join(plain))
    (folder / "lines.txt").write_text("\n".join(lines[200:]))
    return folder


@pytest.fixture(scope="module")
def command(texts: Path) -> list[Any]:
    words = [*LETTERS, *(f"##{letter}" for letter in LETTERS if letter != "s")]
    encoder = make_encoder(texts / "encoder", "bert", words=words)
    files = [texts / name for name in ("train.jsonl", "more.jsonl", "lines.txt")]
    flags = ["--set", "max_tokens=24", "--set", "epochs=2", "--set", "batch_tokens=512"]
    return ["adapt", encoder, *files, *flags, "--device", "cpu"]


def test_several_files(run: Any, command: list[Any], texts: Path, tmp_path: Path) -> None:
    done = run(*command, "--out", tmp_path / "out", "--json", "--set", "lr=0.01")
    facts = json.loads(done.stdout)
    distinct = {line for line in _all_texts(texts) if line}
    assert facts["texts"] + facts["held_out"] == len(distinct)
    assert facts["new_pieces"] == 3
    assert facts["losses"][-1][1] < facts["losses"][0][1]
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert not (tmp_path / "out.run").exists()
    assert "no field 'labels'" not in done.stderr  # labels are not used
    said = run(*command, "--out", tmp_path / "out", "--force").stderr
    assert "3 new word pieces" in said and f"encoder.encoder={tmp_path / 'out'}" in said


def _all_texts(texts: Path) -> list[str]:
    rows = (texts / "train.jsonl", texts / "more.jsonl")
    found = [json.loads(line)["text"] for file in rows for line in file.read_text().splitlines()]
    return [*found, *(texts / "lines.txt").read_text().splitlines()]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_leaves_a_checkpoint(
    run: Any, command: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # bits are the same at equal threads
    run(*command, "--out", tmp_path / "whole")
    arguments = [*command, "--out", tmp_path / "broken"]
    done = subprocess.run(
        [sys.executable, "-c", AT_UPDATE, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    assert done.returncode == 130, done.stderr
    assert not (tmp_path / "broken").exists()
    advice = re.search(r"Continue with:\n  labelgrove (.*)", done.stderr)
    assert advice is not None and "adapt up to step" in done.stderr
    refused = run(*arguments, check=False)
    assert refused.returncode == 1 and "--resume" in refused.stderr
    run(*shlex.split(advice[1]))
    for name in ("model.safetensors", "tokenizer.json"):
        whole, broken = (tmp_path / folder / name for folder in ("whole", "broken"))
        assert broken.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--set", "piece=3"], "did you mean pieces?"),
        (["--set", "mask_share=2"], "at most 0.9"),
        (["--device", "tpu"], "must be auto, cpu or cuda"),
    ],
)
def test_wrong_settings(
    run: Any, command: list[Any], tmp_path: Path, flags: list[str], sentence: str
) -> None:
    done = run(*command, *flags, "--out", tmp_path / "out", check=False)
    assert done.returncode == 1 and sentence in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_files(run: Any, command: list[Any], texts: Path, tmp_path: Path) -> None:
    encoder = command[1]

    def refused(*arguments: object) -> str:
        done = run("adapt", *arguments, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        return str(done.stderr)

    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    assert "0 different texts" in refused(encoder, empty, "--out", tmp_path / "a")
    nowhere = tmp_path / "nowhere"
    assert "nowhere" in refused(encoder, nowhere, "--out", tmp_path / "a")
    assert "no such folder" in refused(nowhere, texts / "lines.txt", "--out", tmp_path / "a")
    assert "already exists" in refused(encoder, texts / "lines.txt", "--out", texts)
    said = refused(encoder, empty, "--out", texts, "--force")
    assert "not a folder that adapt wrote" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.txt"]
