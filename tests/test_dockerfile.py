"""What the Dockerfile names exists: files, extras, flags. Building it takes docker."""

import json
import re
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
