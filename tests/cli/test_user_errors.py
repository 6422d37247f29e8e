"""Whatever a user gets wrong is told in a sentence or two, with the right exit code."""

import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from labelgrove import cli
from support.json_lines import write_jsonl


@pytest.fixture
def place(tmp_path, folder, model, monkeypatch):
    """A folder with a corpus, a model, and much that is neither."""
    shutil.copytree(model, tmp_path / "model")
    for name in ("train.jsonl", "dev.jsonl", "labels.tsv"):
        shutil.copy(folder / name, tmp_path / name)
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "typed.jsonl").write_text('{"text": 3, "labels": ["a"]}\n')
    (tmp_path / "unlabelled.jsonl").write_text('{"text": "some words"}\n' * 30)
    (tmp_path / "dir").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    return tmp_path


def sentence(said):
    """The error as one line; it has no traceback and is short."""
    assert "Traceback" not in said
    error = said.partition("error: ")[2]
    assert error.strip(), said
    assert len(error) < 400, error
    return " ".join(error.split())


CORPUS_VERBS = {
    "train": ["train", "CORPUS", "--out", "out", "--quiet"],
    "plan": ["train", "CORPUS", "--plan"],
    "predict": ["predict", "model", "CORPUS", "--out", "out"],
    "evaluate": ["evaluate", "model", "CORPUS"],
    "calibrate": ["calibrate", "model", "CORPUS", "--out", "out"],
    "report": ["report", "model", "CORPUS", "--out", "out"],
    "explain": ["explain", "model", "--text", "red", "--train", "CORPUS"],
    "tune": ["tune", "CORPUS", "--out", "out", "--trials", "1"],
    "stats": ["data", "stats", "CORPUS"],
    "convert": ["data", "convert", "CORPUS", "out.jsonl"],
    "split": ["data", "split", "CORPUS", "--out", "out"],
}


@pytest.mark.parametrize("verb", CORPUS_VERBS)
@pytest.mark.parametrize(
    ("corpus", "reason"),
    [
        ("missing.jsonl", "does not exist"),
        ("dir", "this folder has no known format"),
        ("empty.jsonl", "no documents"),
        ("binary.jsonl", "line 1"),
        ("typed.jsonl", "line 1: field 'text' must be a string, but is a number"),
    ],
)
def test_corpora_that_are_none(call, place, verb, corpus, reason):
    code, said = call(*(corpus if a == "CORPUS" else a for a in CORPUS_VERBS[verb]))
    assert code == 1
    assert reason in sentence(said)
    assert corpus in sentence(said)
    assert not (place / "out").exists()
    assert not (place / "out.run").exists()


@pytest.mark.parametrize("verb", ["train", "plan", "evaluate", "calibrate", "report", "tune"])
def test_corpora_without_labels(call, place, verb):
    code, said = call(*("unlabelled.jsonl" if a == "CORPUS" else a for a in CORPUS_VERBS[verb]))
    assert code == 1
    assert "label" in sentence(said)


def broken_models(place):
    """Model folders, each wrong in another way."""
    folders = {name: Path(shutil.copytree(place / "model", place / name)) for name in ("cut", "x")}
    (folders["x"] / "manifest.json").unlink()
    with (folders["cut"] / "ranker.safetensors").open("r+b") as file:
        file.truncate(100)
    return folders | {"missing": place / "nowhere", "file": place / "train.jsonl"}


@pytest.mark.slow
def test_folders_that_are_no_models(call, place):
    verbs = {
        "predict": ["predict", "MODEL", "dev.jsonl"],
        "evaluate": ["evaluate", "MODEL", "dev.jsonl"],
        "info": ["info", "MODEL", "--verify"],
        "explain": ["explain", "MODEL", "--text", "red shoe"],
        "calibrate": ["calibrate", "MODEL", "dev.jsonl", "--out", "out"],
        "report": ["report", "MODEL", "dev.jsonl", "--out", "out"],
    }
    for name, folder in broken_models(place).items():
        for verb, arguments in verbs.items():
            code, said = call(*(folder if a == "MODEL" else a for a in arguments))
            assert code == 1, (name, verb, said)
            assert folder.name in sentence(said), (name, verb, said)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "train.jsonl", "--quiet", "--out", "train.jsonl/x"],
        ["predict", "model", "dev.jsonl", "--out", "train.jsonl/x"],
        ["report", "model", "dev.jsonl", "--out", "train.jsonl/x"],
        ["calibrate", "model", "dev.jsonl", "--out", "train.jsonl/x"],
        ["data", "convert", "dev.jsonl", "train.jsonl/x.jsonl"],
        ["data", "split", "dev.jsonl", "--out", "train.jsonl/x"],
        ["data", "make", "--documents", "60", "--labels", "10", "--out", "train.jsonl/x"],
        ["tune", "train.jsonl", "--trials", "1", "--out", "train.jsonl/x"],
        ["predict", "model", "dev.jsonl", "--out", "dir"],
        ["train", "train.jsonl", "--quiet", "--out", "o", "--run", "dev.jsonl"],
        ["tune", "train.jsonl", "--trials", "1", "--out", "o", "--run", "dev.jsonl"],
    ],
    ids=" ".join,
)
def test_places_that_cannot_be_written(call, place, arguments):
    code, said = call(*arguments)
    assert code == 1
    named = [word for word in ("train.jsonl", "dir", "dev.jsonl") if word in sentence(said)]
    assert named, said


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("predict model dev.jsonl --k 0", 2, "--k"),
        ("predict model dev.jsonl --threshold auto", 1, "labelgrove calibrate"),
        ("evaluate nowhere dev.jsonl", 1, "nowhere: does not exist; the folder contains"),
        ("predict model dev.jsonl --deny @missing.txt", 1, "missing.txt"),
        ("predict model dev.jsonl --threshold high", 1, "a number or auto"),
        ("predict model dev.jsonl --deny 'red thing'", 1, "did you mean 'red things'"),
        ("train train.jsonl", 2, "--out"),
        ("train train.jsonl --out o --dense binary.jsonl", 1, "binary.jsonl"),
        ("train train.jsonl --out o --label-tree dir", 1, "dir"),
        ("train train.jsonl --out o --memory 1K", 1, "memory"),
        ("train train.jsonl --out o --device abacus", 1, "auto, cpu or cuda"),
        ("export model", 1, "give --out FOLDER or --hub NAME"),
        ("export model --out o --set licence=mit", 1, "for the card of --hub"),
        ("export model --hub a/b --set license=mit", 1, "did you mean licence"),
        ("calibrate model dev.jsonl --out model", 1, "exists"),
        ("calibrate model dev.jsonl --target high", 1, "--target high: must be a number"),
        ("update model --out o", 1, "nothing to learn"),
        ("update model dev.jsonl --out model", 1, "add --force"),
        ("update model dev.jsonl --dense a --dense a --out o", 1, "--dense: give a file for each"),
        ("update model dev.jsonl --set cautoin=1 --out o", 1, "caution"),
        ("update model train.jsonl --feedback said.jsonl --out o", 1, "brings its own texts"),
        ("update model --feedback train.jsonl --out o", 1, "is no file with feedback"),
        ("explain model --text '' ", 1, "no text to explain"),
        ("explain model --text red --dense rows.npy", 1, "there is only one text"),
        ("report model dev.jsonl --out train.jsonl", 1, "add --force to replace it"),
        ("predict model dir --engine local", 1, "give --out FOLDER"),
        ("predict model dir --workers 2", 1, "need --engine ray"),
        ("predict model dir --address auto", 1, "need --engine ray"),
        ("predict model train.jsonl --engine dask --out dir", 1, "local, ray"),
        ("predict model train.jsonl --engine local --out dev.jsonl", 1, "cannot be made"),
        (
            "train train.jsonl --engine local --out o --method neighbours",
            1,
            "trains linear and its settings",
        ),
        ("train train.jsonl --engine local --out o --memory 8G", 1, "--memory: does not work"),
        ("train train.jsonl --engine local --out o --plan", 1, "--plan: does not work"),
        ("train train.jsonl --engine local --out o --features x.npz", 1, "leave out --features"),
        ("train train.jsonl --out o --set C=2", 1, "did you mean ranker.C?"),
        ("predict model dev.jsonl --deny deny.txt", 1, "write @deny.txt"),
        ("predict model 'a red shoe'", 1, "echo 'a text' | labelgrove predict MODEL -"),
    ],
)
def test_wrong_words(call, place, command, code, reason):
    np.save(place / "rows.npy", np.ones((2, 3), np.float32))
    write_jsonl(place / "said.jsonl", [{"text": "x", "labels": [], "suggestions": []}])
    (place / "deny.txt").write_text("sale\n")
    got, said = call(*shlex.split(command))
    assert "Traceback" not in said
    assert (got, reason in " ".join(said.split())) == (code, True), said
    if code == 1:
        sentence(said)
    assert not (place / "o").exists() and not (place / "o.run").exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "over the --memory limit"),
        (RuntimeError("can't start new thread"), "over the --memory limit"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (
            type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory"),
            "the GPU is out of memory",
        ),
    ],
)
def test_memory_that_runs_out(error, reason, monkeypatch, capsys):
    def fails():
        raise error

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1 and reason in capsys.readouterr().err


def test_other_faults_keep_their_traceback(monkeypatch):
    def fails():
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "app", fails)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()
