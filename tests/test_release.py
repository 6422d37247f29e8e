"""The checks before a release: they pass for this tree, and they find what they look for."""

import importlib.util
import io
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def loaded():
    spec = importlib.util.spec_from_file_location("release_check", ROOT / ".ci/release_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checks = loaded()


def test_the_versions_of_this_tree_agree():
    checks.check_versions(CHANGELOG, final=False)


@pytest.mark.parametrize("heading", ["## 9.9.9 (unreleased)", "## Changes"])
def test_a_changelog_of_another_version_is_refused(heading):
    other = re.sub(r"^## .*$", heading, CHANGELOG, count=1, flags=re.MULTILINE)
    with pytest.raises(checks.NotReadyError, match="first section of CHANGELOG"):
        checks.check_versions(other if "9.9.9" in heading else heading, final=False)


def test_the_plugin_of_annif_has_the_same_version():
    file = ROOT / "integrations" / "annif" / "pyproject.toml"
    plugin = tomllib.loads(file.read_text("utf-8"))["project"]
    version = PROJECT["project"]["version"]
    assert plugin["version"] == version
    ours = next(Requirement(one) for one in plugin["dependencies"] if one.startswith("labelgrove"))
    assert ours.specifier.contains(version)


def test_a_release_needs_a_date():
    version = PROJECT["project"]["version"]
    checks.check_versions(f"## {version} (2026-12-01)\n", final=True)
    with pytest.raises(checks.NotReadyError, match="its date"):
        checks.check_versions(f"## {version} (unreleased)\n", final=True)


def wheel(folder, *, without="-", extra="", version=""):
    project = PROJECT["project"]
    version = version or project["version"]
    file = folder / "labelgrove-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl"
    lines = [
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        f"License-Expression: {project['license']}",
        *(f"Provides-Extra: {name}" for name in project["optional-dependencies"]),
    ]
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("labelgrove-0.1.0.dist-info/METADATA", "\n".join(lines) + "\n")
        archive.writestr("labelgrove/_native.abi3.so", "")
        for path in checks.PACKAGE.rglob("*"):
            name = path.relative_to(checks.PACKAGE.parent).as_posix()
            if path.is_file() and path.suffix not in (".pyc", ".so") and without not in name:
                archive.writestr(name, "")
        if extra:
            archive.writestr(extra, "")
    return file


def test_a_whole_wheel_passes(tmp_path):
    assert checks.check_wheel(wheel(tmp_path), abi3=True)["Name"] == "labelgrove"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"without": "experiments/report/templates/labels.js"}, "/report/templates/labels.js"),
        ({"extra": "tests/test_secrets.py"}, "contains tests/test_secrets.py"),
        ({"extra": "labelgrove/_native.cpython-312.so"}, "must have one _native extension"),
        ({"version": "9.9.9"}, "Version is '9.9.9'"),
    ],
)
def test_a_wrong_wheel_is_refused(tmp_path, change, message):
    with pytest.raises(checks.NotReadyError, match=re.escape(message)):
        checks.check_wheel(wheel(tmp_path, **change), abi3=True)


def test_a_source_archive_without_kernels_is_refused(tmp_path):
    file = tmp_path / "labelgrove-0.1.0.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("labelgrove-0.1.0/pyproject.toml"), io.BytesIO())
    with pytest.raises(checks.NotReadyError, match=r"lacks .*native/"):
        checks.check_sdist(file)


def test_commands_see_nothing_of_the_checkout(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    assert checks.run(sys.executable, "-c", "import os; print('PYTHONPATH' in os.environ)") == (
        "False\n"
    )
    with pytest.raises(checks.NotReadyError, match=r"failed with 3.*\n.*why"):
        checks.run(sys.executable, "-c", "print('why'); raise SystemExit(3)")
