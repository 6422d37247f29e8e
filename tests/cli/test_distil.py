"""labelgrove distil: a teacher and texts in, a student's folder out; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import labelgrove

ENSEMBLE = """
rule = "learnt"
held_out = 0.2
[[members]]
method = "linear"
[[members]]
method = "neighbours"
"""


@pytest.fixture(scope="module")
def teacher(folder: Path, run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("teacher")
    (place / "ensemble.toml").write_text(ENSEMBLE)
    train = folder / "train.jsonl"
    run("train", train, "--config", place / "ensemble.toml", "--out", place / "model")
    return place / "model"


@pytest.fixture
def command(folder: Path, teacher: Path, tmp_path: Path) -> list[Any]:
    (tmp_path / "more.txt").write_text("we sell this red shoe, a zyzzyva\n" * 5)
    flags = ["--unlabelled", tmp_path / "more.txt", "--out", tmp_path / "student"]
    return ["distil", teacher, folder / "train.jsonl", *flags]


def test_a_student_is_written(command: list[Any], folder: Path, run: Any, tmp_path: Path) -> None:
    done = run(*command, "--dev", folder / "dev.jsonl", "--set", "ranker.C=2", "--json")
    facts = json.loads(done.stdout)
    assert (facts["method"], facts["documents"], facts["unlabelled"]) == ("linear", 100, 5)
    assert facts["dev"]["student"]["P@1"] == 100 and facts["dev"]["teacher"]["n"] == 20
    assert 0 < facts["model_bytes"]["student"] < facts["model_bytes"]["teacher"]
    student = labelgrove.load(tmp_path / "student")
    assert student.ranker.C == 2 and student.ranker.label_weights == "cost"
    assert set(student.predict(["zyzzyva"], k=2).names()[0]) == {"red things", "shoes"}
    assert not (tmp_path / "student.run").exists()
    said = run(*command, "--dev", folder / "dev.jsonl", "--force", "--share", "0.5").stderr
    assert "teacher" in said and "student" in said and "evaluate" in said


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--method", "neighbours"], "neighbours cannot learn from scores"),
        (["--share", "2"], "share: must be at most 1"),
        (["--least", "0"], "least: must be greater than 0"),
        (["--set", "ranker.label_weights=propensity"], "must not be propensity"),
        (["--unlabelled", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_is_refused(
    command: list[Any], flags: list[str], sentence: str, run: Any, tmp_path: Path
) -> None:
    done = run(*command, *flags, check=False)
    assert done.returncode == 1 and sentence in done.stderr
    assert not (tmp_path / "student").exists() and not (tmp_path / "student.run").exists()


def test_nothing_to_learn_is_refused(folder: Path, teacher: Path, run: Any, tmp_path: Path) -> None:
    done = run("distil", teacher, folder / "train.jsonl", "--out", tmp_path / "s", check=False)
    assert done.returncode == 1 and "nothing to learn from the teacher" in done.stderr
