"""Help: every command shows how to call it, and reads as text at any width."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from labelgrove import cli
from labelgrove.cli import COMMANDS, app, options
from labelgrove.methods import METHODS


def _leaves(group, prefix=""):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _leaves(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


ROOT = get_command(app)
LEAVES = dict(_leaves(ROOT))


def _options(command):
    return [param for param in command.params if param.param_type_name == "option"]


def test_there_are_fifteen_commands():
    assert tuple(ROOT.commands) == COMMANDS and len(COMMANDS) == 15


def test_a_list_of_commands_without_their_flags_reads_the_same():
    listed = cli._app(COMMANDS, listed=True)
    outputs = [CliRunner().invoke(made, ["--help"]).output for made in (listed, app)]
    assert "train" in outputs[0] and outputs[0] == outputs[1]


def test_a_command_that_is_not_first_is_more_than_listed(monkeypatch, capsys):
    monkeypatch.delattr(cli, "app")
    monkeypatch.setattr("sys.argv", ["labelgrove", "--", "info", "no such folder"])
    with pytest.raises(SystemExit, match="1"):
        cli.main()
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_an_example_and_panels(name):
    text = LEAVES[name].help or ""
    assert "Example: " in text
    assert f"labelgrove {name}" in text
    assert all("\n" not in paragraph for paragraph in text.split("\n\n"))
    for option in _options(LEAVES[name]):
        assert option.rich_help_panel in options.PANELS, option.name
        assert "[" not in option.help, option.name  # rich would take it for markup


def test_commands_take_what_they_took(pinned):
    found = {}
    for name, command in LEAVES.items():
        for param in command.params:
            least = getattr(param, "min", getattr(getattr(param, "type", None), "min", None))
            found[f"{name} {param.name}"] = f"{param.default} {least} {param.opts} {param.help}"
    pinned("commands", found)


def test_the_flags_that_matter_come_first():
    def first(name):
        shown = [option.opts[0] for option in _options(LEAVES[name])]
        panels = [option.rich_help_panel for option in _options(LEAVES[name])]
        return shown[: panels.count(options.FIRST)] if panels[0] == options.FIRST else []

    train = ["--out", "--dev", "--method", "--text-field", "--labels-field", "--budget"]
    assert first("train") == train
    assert first("predict") == ["--out", "--k", "--threshold", "--text-field", "--allow", "--deny"]
    assert first("info") == []  # it has few
    for name in ("evaluate", "calibrate", "update", "tune", "report"):
        assert 4 <= len(first(name)) <= options.MOST_FIRST


def test_the_help_names_ten_methods():
    names = options.METHODS.split(", ")
    assert len(names) == 10 and set(names) < set(METHODS)
    shown = next(option for option in LEAVES["train"].params if option.name == "method").help
    assert shown.startswith(options.METHODS) and "parabel" not in shown
    pages = (Path(__file__).parents[2] / "docs" / "methods").glob("*.md")
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name in METHODS if f"`{name}`" not in text] == []


def test_groups_of_flags_become_one_argument():
    seen = []

    def read(
        corpus: Annotated[Path, typer.Argument()],
        *,
        reading: Annotated[options.CorpusOptions, options.Without("id_field")],
        machine: options.Machine,
        as_json: options.Json = False,
    ) -> None:
        """Read.

        Over two
        lines.
        """
        seen.extend([corpus, reading, machine, as_json])

    small = typer.Typer()
    options.add_command(small, "read", read)
    flags = ["x.csv", "--text-field", "title", "--read", "part=test", "--threads", "2", "--json"]
    assert CliRunner().invoke(small, flags).exit_code == 0
    reading = options.CorpusOptions(text_field="title", read=["part=test"])
    assert seen == [Path("x.csv"), reading, options.Machine(threads=2), True]
    assert reading.options("dev").part == "test"
    assert options.CorpusOptions().options("dev").part == "dev"
    assert CliRunner().invoke(small, ["x.csv", "--id-field", "key"]).exit_code == 2
    assert small.registered_commands[0].help == "Read.\n\nOver two lines."
