"""The extras of pyproject.toml: each has code behind it, and the pinned versions fit together."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import labelgrove
from labelgrove.errors import MissingExtraError, packages_of

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODULES = {"huggingface-hub": "huggingface_hub", "prometheus-client": "prometheus_client"}
# Servers and formats that another package of the same extra imports for us.
INDIRECT = {"httptools", "safetensors", "onnxscript"}


def pins(file="constraints.txt"):
    """The versions in a file of constraints."""
    lines = (ROOT / file).read_text("utf-8").splitlines()
    pinned = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pinned}


def requirements(extra):
    for line in EXTRAS[extra]:
        requirement = Requirement(line)
        if requirement.name == "labelgrove":
            for other in requirement.extras:
                yield from requirements(other)
        else:
            yield requirement


def imported():
    """The first parts of all modules that labelgrove imports."""
    names = set()
    for file in Path(labelgrove.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


def test_every_extra_has_code_behind_it():
    modules = imported()
    for extra in EXTRAS.keys() - {"dev"}:
        for requirement in requirements(extra):
            name = MODULES.get(requirement.name, requirement.name)
            assert name in modules | INDIRECT, f"{extra}: nothing imports {requirement.name}"


PLAIN = """
import sys
for name in {names}:
    sys.modules[name] = None  # as if it were not installed
import labelgrove
from labelgrove.cli import main
for method in (labelgrove.Linear(), labelgrove.Neighbours(), labelgrove.Matcher()):
    model = method.fit(["red hat", "shoe", "red shoe"], [["hat"], ["shoe"], ["shoe"]])
    assert model.predict(["a hat"], k=1).names() == [["hat"]], model
model.save("model")
sys.argv = ["labelgrove", "predict", "model", "texts.txt", "--k", "1"]
main()
"""


def test_without_extras_the_linear_methods_and_commands_work(tmp_path):
    extras = {
        MODULES.get(requirement.name, requirement.name)
        for extra in EXTRAS.keys() - {"dev"}
        for requirement in requirements(extra)
    } - {"pydantic"}  # comes with typer
    (tmp_path / "texts.txt").write_text("a hat\n")
    command = [sys.executable, "-c", PLAIN.format(names=sorted(extras))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"hat"' in done.stdout


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_the_pinned_versions_are_those_an_extra_asks_for(extra):
    pinned = pins()
    for requirement in requirements(extra):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"constraints.txt lacks {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} is pinned at {version}"


def test_the_oldest_versions_are_the_lower_bounds():
    needed = [Requirement(line) for line in PROJECT["dependencies"]]
    needed += [one for extra in EXTRAS.keys() - {"dev"} for one in requirements(extra)]
    bounds = {canonicalize_name(one.name): str(one.specifier).removeprefix(">=") for one in needed}
    oldest = pins("constraints-oldest.txt")
    assert bounds.keys() == oldest.keys()
    for name, bound in bounds.items():
        assert Version(oldest[name]) == Version(bound), name


def test_the_advice_for_a_missing_extra_names_its_packages():
    assert set(packages_of("export")) == {str(package) for package in requirements("export")}
    message = str(MissingExtraError("tune", "labelgrove tune"))
    assert re.fullmatch(r"labelgrove tune needs the extra `tune`: pip install 'optuna>=4'", message)


def test_the_advice_does_not_need_an_installed_labelgrove(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.requires", requires)
    assert "pip install 'labelgrove[tune]'" in str(MissingExtraError("tune", "labelgrove tune"))
