"""Benchmarks say what they do and stay within their budget of lines; examples run."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
# Runs inside an interpreter of another program, and takes a job file instead of options.
SCRIPTS = [file for file in FILES if file.name not in ("common.py", "peer.py")]


def test_benchmarks_stay_small() -> None:
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in FILES) <= 5000


@pytest.mark.slow
@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.stem)
def test_scripts_answer_help(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # mutants.py would start itself again without it
    monkeypatch.setattr("sys.argv", [str(file), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module(
            ".".join(file.relative_to(ROOT).with_suffix("").parts), run_name="__main__"
        )
    assert end.value.code == 0
    assert "usage:" in capsys.readouterr().out


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Settings that make an example quick; what it shows then is not worth looking at.
TINY = {
    "docstrings.py": ["--packages=json"],
    "neural_demo.py": ["--packages=networkx", "--documents=100", "--test=20", "--epochs=0.3"],
    "ray_cluster.py": ["--documents=2000", "--labels=200"],
}
NEEDS = {"neural_demo.py": "torch", "ray_cluster.py": "ray"}


def parameter(script: Path) -> Any:
    marks = [pytest.mark.long_ray] if script.name == "ray_cluster.py" else []
    return pytest.param(script, marks=marks, id=script.name)


@pytest.mark.slow
@pytest.mark.parametrize("script", [parameter(script) for script in EXAMPLES])
def test_example_runs(script: Path, tmp_path: Path) -> None:
    if script.name in NEEDS:
        pytest.importorskip(NEEDS[script.name])
    done = subprocess.run(
        [sys.executable, str(script), *TINY.get(script.name, [])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
