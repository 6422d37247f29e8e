"""Help: every verb shows how to call it, and reads as text at any width."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from labelgrove.cli import app, data, feedback, imports, options

COMMANDS = {
    command.name or getattr(command.callback, "__name__", ""): command
    for command in (*app.registered_commands, *data.data.registered_commands)
}
COMMANDS |= {
    f"feedback {command.callback.__name__}": command
    for command in feedback.feedback.registered_commands
}
COMMANDS |= {
    f"import {command.callback.__name__.replace('_', '-')}": command
    for command in imports.import_.registered_commands
}
FOR_PROGRAMS = (
    "feedback stats",
    "train",
    "evaluate",
    "explain",
    "bench",
    "calibrate",
    "tune",
    "report",
    "info",
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_has_an_example(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert "Example: " in text
    assert f"labelgrove {name}" in text or f"labelgrove data {name}" in text
    assert all("\n" not in paragraph for paragraph in text.split("\n\n"))


@pytest.mark.parametrize("name", FOR_PROGRAMS)
def test_verbs_with_results_speak_json(name: str) -> None:
    callback = COMMANDS[name].callback
    assert callback is not None
    assert "as_json" in inspect.signature(callback).parameters


def test_groups_of_flags_become_one_argument() -> None:
    seen: list[Any] = []

    def read(
        corpus: Path,
        *,
        reading: Annotated[options.Reading, options.Without("id_field")],
        machine: options.Machine,
        as_json: options.Json = False,
    ) -> None:
        """Read.

        Over two
        lines.
        """
        seen.extend([corpus, reading, machine, as_json])

    small = typer.Typer()
    options.add_commands(small, read)
    flags = ["x.csv", "--text-field", "title", "--read", "part=test", "--threads", "2", "--json"]
    assert CliRunner().invoke(small, flags).exit_code == 0
    reading = options.Reading(text_field="title", read=["part=test"])
    assert seen == [Path("x.csv"), reading, options.Machine(threads=2), True]
    assert reading.options("dev").part == "test"
    assert options.Reading().options("dev").part == "dev"
    assert CliRunner().invoke(small, ["x.csv", "--id-field", "key"]).exit_code == 2
    assert small.registered_commands[0].help == "Read.\n\nOver two lines."
