"""The command line: one file per command; everything heavy is imported inside the commands."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer

from labelgrove.cli import common, options

# In the order of the help; each command is the function of this name in the file of this name.
COMMANDS = (
    "train",
    "predict",
    "evaluate",
    "explain",
    "calibrate",
    "update",
    "tune",
    "bench",
    "report",
    "serve",
    "export",
    "info",
    "doctor",
    "demo",
    "data",
)

if TYPE_CHECKING:
    app: typer.Typer


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module 'labelgrove.cli' has no attribute {name!r}")
    globals()["app"] = made = _app(COMMANDS)
    return made


def _app(names: Iterable[str], *, listed: bool = False) -> typer.Typer:
    """The command line with some of its commands; if they are only ``listed``, without flags."""
    made = typer.Typer(
        name="labelgrove",
        help="Find the best labels for a text, out of thousands to millions of labels.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,  # shells ask by a variable, without flags of ours
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(_version)
    for name in names:
        command = getattr(importlib.import_module(f"labelgrove.cli.{name}"), name)
        if listed:
            of_group = isinstance(command, typer.Typer)
            text = command.info.help if of_group else options.help_text(command)
            made.command(name, help=text)(lambda: None)
        elif isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            options.add_command(made, name, command)
    return made


def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from labelgrove.core.versions import VERSION

        typer.echo(f"labelgrove {VERSION}")
        raise typer.Exit


def main() -> None:
    """Runs the command line; errors that the user can fix come without a traceback."""
    from labelgrove.errors import LabelgroveError, LabelgroveWarning

    for stream in (sys.stdout, sys.stderr):
        # If the terminal cannot show a character, an escape is better than no answer.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    warnings.showwarning = _show_warning
    warnings.simplefilter("once", LabelgroveWarning)  # one training may say the same again
    # All commands take typer longer than a prediction does; the help alone shows more than one.
    command = sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in COMMANDS else COMMANDS
    listed = not {*COMMANDS} & {*sys.argv}
    if "_LABELGROVE_COMPLETE" in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
        listed = False  # a shell that completes a line wants the flags
    try:
        (globals().get("app") or _app(command, listed=listed))()
    except LabelgroveError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if (advice := _memory_advice(error)) is None:
            raise
        _fail(advice)


_usual_show = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from labelgrove.errors import LabelgroveWarning

    if issubclass(category, LabelgroveWarning):
        typer.secho(f"note: {common.harmless(str(message))}", fg="yellow", err=True)
    else:
        _usual_show(message, category, filename, lineno, file, line)


def _memory_advice(error: Exception) -> str | None:
    """What to do if memory ran out, None if it did not: torch has no MemoryError."""
    if type(error).__name__ == "OutOfMemoryError":
        return "the GPU is out of memory; lower training.batch_size or encoder.max_tokens"
    message = str(error)
    # Beyond the --memory limit not even a thread can start.
    if isinstance(error, MemoryError) or "thread" in message or "allocate memory" in message:
        return "out of memory, or over the --memory limit"
    return None


def _fail(message: str) -> NoReturn:
    typer.secho(f"error: {common.harmless(message)}", fg="red", err=True)
    sys.exit(common.USER_ERROR)
