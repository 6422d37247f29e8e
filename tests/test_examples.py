"""Every script in examples/ runs from start to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
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
