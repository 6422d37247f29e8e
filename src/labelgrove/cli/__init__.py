"""The command line: one file per verb; everything heavy is imported inside the verbs."""

from __future__ import annotations

import inspect
import sys
from typing import NoReturn

import typer

from labelgrove.cli import (
    bench,
    calibrate,
    common,
    data,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    info,
    predict,
    push,
    report,
    serve,
    train,
    tune,
    update,
)

app = typer.Typer(
    name="labelgrove",
    help="Raw text in, the k best labels out, from label sets of thousands to millions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("update")(update.update)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("push")(push.push)
app.command("bench")(bench.bench)
app.command("tune")(tune.tune)
app.command("calibrate")(calibrate.calibrate)
app.command("report")(report.report)
app.command("serve")(serve.serve)
app.command("info")(info.info)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(data.data, name="data")
for command in (*app.registered_commands, *data.data.registered_commands):
    # Help is shown at any width: only empty lines of a docstring separate paragraphs.
    paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
    command.help = "\n\n".join(" ".join(lines.split("\n")) for lines in paragraphs)


@app.callback(invoke_without_command=True)
def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
) -> None:
    if version:
        from labelgrove import __version__

        typer.echo(f"labelgrove {__version__}")
        raise typer.Exit


def main() -> None:
    """Runs the command line; errors that are the user's to mend come without a traceback."""
    from labelgrove.errors import LabelgroveError

    for stream in (sys.stdout, sys.stderr):
        # Where the terminal cannot show a character, an escape is better than no answer.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app()
    except LabelgroveError as error:
        _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if (advice := _memory_advice(error)) is None:
            raise
        _fail(advice)


def _memory_advice(error: Exception) -> str | None:
    """What to say where memory ran out, None where it did not: torch has no MemoryError."""
    if type(error).__name__ == "OutOfMemoryError":
        return "out of the GPU's memory; lower training.batch_size or encoder.max_tokens"
    # Past the --memory budget not even a thread can be started.
    said = str(error)
    if isinstance(error, MemoryError) or "thread" in said or "allocate memory" in said:
        return "out of memory, or past the --memory budget"
    return None


def _fail(message: str) -> NoReturn:
    typer.secho(f"error: {message}", fg="red", err=True)
    sys.exit(common.USER_ERROR)
