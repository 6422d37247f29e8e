"""The command line: one file per verb; everything heavy is imported inside the verbs."""

from __future__ import annotations

import os
import sys

import typer

from labelgrove.cli import data, demo, doctor, evaluate, info, predict, train

USER_ERROR, INTERRUPTED = 1, 130

app = typer.Typer(
    name="labelgrove",
    help="Raw text in, the k best labels out, from label sets of thousands to millions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("evaluate")(evaluate.evaluate)
app.command("info")(info.info)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.add_typer(data.data, name="data")


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

    try:
        app()
    except LabelgroveError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(USER_ERROR)
    except MemoryError:
        typer.secho(
            "error: out of memory, or past the --memory budget; nothing was lost, see --resume",
            fg="red",
            err=True,
        )
        sys.exit(USER_ERROR)
    except BrokenPipeError:
        # The reader of our output has gone (| head); that is no fault. Keep the interpreter from
        # complaining when it flushes standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
