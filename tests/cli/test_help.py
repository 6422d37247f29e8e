"""Help: every verb shows how to call it, and reads as text at any width."""

from __future__ import annotations

import inspect

import pytest

from labelgrove.cli import app, data

COMMANDS = {
    command.name or getattr(command.callback, "__name__", ""): command
    for command in (*app.registered_commands, *data.data.registered_commands)
}
FOR_PROGRAMS = ("train", "evaluate", "explain", "bench", "calibrate", "tune", "report", "info")


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
