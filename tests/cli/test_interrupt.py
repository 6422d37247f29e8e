"""Ctrl-C: the run folder keeps what was done, and going on gives the model of an unbroken run."""

import re
import shlex
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")]

# The real signal, at a moment that the test chooses; "labelgrove" is then the command it prints.
AT_STAGE = """
import os, signal, sys
import labelgrove.disk.run_folder as runs
from labelgrove.cli import main
real = runs.RunFolder.stage
def stage(self, name, *arguments):
    if name == "ranker":
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, name, *arguments)
runs.RunFolder.stage = stage
main()
"""
AT_UPDATE = """
import os, signal, sys
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


def _with_signal():
    """Commands in the background of a shell inherit that it ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(hook, *arguments, code=130):
    done = subprocess.run(
        [sys.executable, "-c", hook, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_with_signal,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def advice(said):
    """The arguments of the command that the message suggests."""
    command = re.search(r"Continue with:\n  (.*)", said)
    assert command is not None, said
    name, *arguments = shlex.split(command[1])
    assert name == "labelgrove"
    return arguments


@pytest.mark.parametrize("kept", [False, True])
def test_a_linear_training_goes_on(run, folder, model, tmp_path, kept):
    out = tmp_path / "m"
    flags = ["--run", tmp_path / "kept"] if kept else []
    said = interrupted(AT_STAGE, "train", folder / "train.jsonl", "--out", out, *flags)
    assert "Interrupted." in said
    assert "tfidf, tree" in said
    assert not out.exists()
    if not kept:
        refused = run("train", folder / "train.jsonl", "--out", out, check=False)
        assert refused.returncode == 1 and "--resume" in refused.stderr
    done = run(*advice(said))
    assert "trained in" in done.stderr
    for name in ("ranker.safetensors", "tfidf.safetensors"):
        assert (out / name).read_bytes() == (model / name).read_bytes()
    assert (tmp_path / "kept").exists() == kept
    assert not (tmp_path / "m.run").exists()


def test_auto_keeps_its_best_and_goes_on(run, folder, tmp_path):
    out = tmp_path / "m"
    train = ["train", folder / "train.jsonl", "--out", out]
    hook = AT_STAGE.replace('name == "ranker"', 'name == "ranker" and len(self.used) > 4')
    said = interrupted(hook, *train, code=0)  # there is a model
    assert "auto: interrupted; linear is kept" in said
    assert (out / "manifest.json").exists()
    again = run(*advice(said))
    assert "interrupted" not in again.stderr
    run("train", folder / "train.jsonl", "--out", tmp_path / "whole")
    for name in ("ranker.safetensors", "tfidf.safetensors"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "m.run").exists()


def test_a_neural_training_goes_on_from_its_checkpoint(run, folder, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # bits are the same at equal threads
    from support.tiny_encoders import make_encoder

    encoder = make_encoder(tmp_path / "encoder", "bert", words=["red", "blue", "shoe", "hat"])
    train = ["train", folder / "train.jsonl", "--method", "lightxml", "--device", "cpu"]
    train += ["--set", f"encoder.encoder={encoder}", "--set", "encoder.max_tokens=8"]
    train += ["--set", "training.batch_size=16", "--set", "training.epochs=2", "--threads", 1]
    train += ["--set", "baseline=false"]
    run(*train, "--out", tmp_path / "whole")
    said = interrupted(
        AT_UPDATE, *train, "--out", tmp_path / "broken", "--run", tmp_path / "stages"
    )
    assert list((tmp_path / "stages" / "checkpoints").glob("network/*/step-*"))
    assert re.search(r"tokens.*, network up to step \d+\)", said)
    run(*advice(said))
    whole, broken = (tmp_path / name / "network.safetensors" for name in ("whole", "broken"))
    assert broken.read_bytes() == whole.read_bytes()


def test_nothing_done_leaves_nothing(tmp_path, folder):
    hook = AT_STAGE.replace('"ranker"', '"tfidf"')
    said = interrupted(hook, "train", folder / "train.jsonl", "--out", tmp_path / "m")
    assert "Nothing was finished yet" in said
    assert list(tmp_path.iterdir()) == []


def test_a_search_goes_on(run, folder, tmp_path):
    pytest.importorskip("optuna")
    arguments = ["tune", folder / "train.jsonl", "--dev", folder / "dev.jsonl", "--trials", 2]
    arguments += ["--out", tmp_path / "t.toml"]
    said = interrupted(AT_STAGE, *arguments)
    assert "Run the same command again" in said
    done = run(*arguments)
    assert "trial 1: nDCG@5" in done.stderr
    assert "trial 0 " not in done.stdout


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_other_verbs_end_with_130(verb, folder, model):
    hook = (
        "import os, signal; import labelgrove.exchange.loading as loading\n"
        "from labelgrove.cli import main\n"
        "loading.load = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n"
        "main()\n"
    )
    assert signal.SIGINT  # the default handler raises KeyboardInterrupt
    interrupted(hook, verb, model, folder / "dev.jsonl")
