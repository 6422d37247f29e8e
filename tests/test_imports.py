"""The light parts stay light: what may be imported, and what it may cost."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import labelgrove

# Needs its extra on purpose; everything else must import without any optional package.
NEEDS_EXTRA = (
    "labelgrove.exporting.encoder_graph",
    "labelgrove.nn",
    "labelgrove.methods.cascadexml",
    "labelgrove.methods.indexing",
    "labelgrove.methods.lightxml",
    "labelgrove.methods.matching",
    "labelgrove.methods.vectors",
    "labelgrove.methods.xtransformer",
    "labelgrove.methods.neural",
    "labelgrove.methods.preparation",
    "labelgrove.methods.xr",
    "labelgrove.serve",
    "labelgrove.parallel.ray",
)

BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked in this test", name=name)
sys.meta_path.insert(0, Blocker())
"""


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=120
    )


def test_everything_imports_without_torch_and_the_other_extras() -> None:
    modules = [
        module.name
        for module in pkgutil.walk_packages(labelgrove.__path__, "labelgrove.")
        if not module.name.startswith(NEEDS_EXTRA) and not module.name.endswith("__main__")
    ]
    assert "labelgrove.methods.linear" in modules
    blocked = {"torch", "transformers", "fastapi", "pyarrow", "ray", "optuna", "mlflow"}
    blocked |= {"onnx", "onnxruntime", "onnxscript", "huggingface_hub", "tokenizers"}
    blocked |= {"matplotlib", "jinja2", "prometheus_client", "safetensors"}
    source = BLOCKER.format(blocked=blocked)
    source += "\n".join(f"import {name}" for name in modules)
    done = run(source)
    assert done.returncode == 0, done.stderr


def test_a_neural_method_without_torch_says_what_to_install() -> None:
    done = run(
        BLOCKER.format(blocked={"torch"}) + "from labelgrove.methods import create\n"
        "from labelgrove.errors import MissingExtraError\n"
        "try:\n    create('lightxml')\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    assert "labelgrove[torch]" in done.stdout, done.stderr


def test_training_and_prediction_use_neither_torch_nor_pydantic() -> None:
    source = BLOCKER.format(blocked={"torch", "pydantic", "pydantic_core", "pyarrow"}) + (
        "import labelgrove\n"
        "model = labelgrove.Linear().fit(['red shoe', 'blue hat'], [['a'], ['b']])\n"
        "assert model.predict(['hat'], k=1).names() == [['b']]\n"
    )
    done = run(source)
    assert done.returncode == 0, done.stderr


def test_importing_labelgrove_loads_nothing_heavy() -> None:
    done = run(
        "import sys, labelgrove\n"
        "print(sorted({'numpy', 'scipy', 'sklearn', 'typer', 'rich'} & set(sys.modules)))"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_public_names_all_resolve() -> None:
    for name in labelgrove.__all__:
        assert getattr(labelgrove, name) is not None
    assert set(labelgrove.__all__) <= set(dir(labelgrove))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = labelgrove.nothing


@pytest.mark.skipif(sys.platform == "win32", reason="needs os.wait4")
def test_help_costs_less_than_four_tenths_of_a_cpu_second() -> None:
    import os

    def cpu_seconds() -> float:
        process = subprocess.Popen(
            [sys.executable, "-m", "labelgrove", "--help"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        text = process.stdout.read()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        assert status == 0
        assert b"train" in text
        return usage.ru_utime + usage.ru_stime

    # The machine may be busy: the best of five is what the command really costs.
    assert min(cpu_seconds() for _ in range(5)) < 0.4


def test_the_package_is_typed() -> None:
    assert (Path(labelgrove.__file__).parent / "py.typed").exists()
