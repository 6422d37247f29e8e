"""What the Dockerfile names exists: files, extras, flags. Building it takes docker."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labelgrove.cli import app
from labelgrove.errors import ModelFormatError

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
# One line per instruction.
LINES = re.sub(r"\\\n\s*", "", re.sub(r"(?m)^#.*\n", "", TEXT)).splitlines()


def instructions(name):
    return [line.removeprefix(name).strip() for line in LINES if line.startswith(f"{name} ")]


def test_copied_files_exist_and_are_not_ignored():
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = set()
    for line in instructions("COPY"):
        if not line.startswith("--from"):
            copied.update(line.split()[:-1])
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_build_installs_what_the_build_system_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = {re.split("[><=]", name)[0] for name in project["build-system"]["requires"]}
    (install,) = [line for line in instructions("RUN") if "pip wheel" in line]
    assert needed <= set(install.split())
    assert project["project"]["readme"] == "README.md"  # both are read while building
    assert set(project["project"]["license-files"]) == {"LICENSE"}
    arguments = dict(line.split("=", 1) for line in instructions("ARG"))
    assert set(arguments) == {"BASE", "EXTRAS"}
    assert arguments["EXTRAS"] in project["project"]["optional-dependencies"]
    named = re.search(r"--build-arg EXTRAS=(\S+)", TEXT)
    assert named is not None
    assert set(named[1].split(",")) <= set(project["project"]["optional-dependencies"])


def test_both_stages_use_the_base_that_can_be_pinned():
    # An ARG counts for FROM only before the first one.
    assert [line.split()[0] for line in LINES if line][:2] == ["ARG", "FROM"]
    assert [line.split()[0] for line in instructions("FROM")] == ["${BASE}", "${BASE}"]
    assert re.search(r"--build-arg BASE=\S+@sha256:", TEXT)


def test_the_service_runs_without_root_and_its_command_is_understood():
    assert instructions("USER") == ["labelgrove"]
    (entry,), (command,) = map(instructions, ("ENTRYPOINT", "CMD"))
    assert json.loads(entry) == ["labelgrove"]
    arguments = json.loads(command)
    # Taken as they are, up to the model that is not there.
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, ModelFormatError), done.output
    (port,), (mounted,) = map(instructions, ("EXPOSE", "VOLUME"))
    assert port == arguments[arguments.index("--port") + 1] and mounted in arguments


def test_the_health_check_asks_the_service(monkeypatch):
    (line,) = [line for line in instructions("HEALTHCHECK") if "CMD" in line]
    command = json.loads(line[line.index("CMD") + 3 :])
    assert command[:2] == ["python", "-c"]
    asked = []
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: asked.append(url))
    exec(command[2])
    assert asked == [f"http://127.0.0.1:{instructions('EXPOSE')[0]}/healthz"]
