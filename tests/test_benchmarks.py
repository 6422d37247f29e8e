"""Every benchmark says what it does, and each folder stays within its budget of lines."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
# Runs inside an interpreter of another program, and takes a job file instead of options.
SCRIPTS = [file for file in FILES if file.name not in ("common.py", "peer.py")]


def test_scripts_are_in_folders_by_subject() -> None:
    assert [file.name for file in FILES if file.parent.name == "benchmarks"] == ["common.py"]


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
