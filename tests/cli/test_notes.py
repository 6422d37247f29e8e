"""What is probably a mistake is said on the command line, with a remedy that works."""

import sys
from pathlib import Path

import pytest

from labelgrove import cli
from support.json_lines import write_jsonl


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_measuring_on_the_training_data_is_said(call, call_both, model, folder):
    code, table, _ = call_both("evaluate", model, folder / "train.jsonl")
    assert code == 0 and "were in the model's training data" in table
    code, table, _ = call_both("evaluate", model, folder / "dev.jsonl")
    assert code == 0 and "training data" not in table
    code, said = call("calibrate", model, folder / "train.jsonl", "--out", "calibrated")
    assert code == 0 and "were in the model's training data" in said


def test_thresholds_that_cut_everything_are_said(call, model, folder):
    flags = ["--threshold", 1, "--k", 100_000, "--out", "out.jsonl"]
    code, said = call(
        "predict", model, write_jsonl(Path("unknown.jsonl"), [{"text": "xyzzy"}]), *flags
    )
    assert code == 0
    assert "no label of any document reaches it" in said
    assert "no document gets more" in said


def test_tune_without_optuna_says_so_before_it_begins(call, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, said = call("tune", folder / "train.jsonl", "--out", "best.toml", "--trials", 1)
    assert code == 1 and "pip install 'optuna" in said
    assert "tuning linear" not in said and "documents" not in said.partition("error")[0]


def test_warnings_of_others_stay_as_they_are(monkeypatch):
    shown = []
    monkeypatch.setattr(cli, "_usual_show", lambda *arguments: shown.append(arguments))
    cli._show_warning("of another library", DeprecationWarning, "file.py", 3)
    assert shown == [("of another library", DeprecationWarning, "file.py", 3, None, None)]
