"""What several commands do: print, read a corpus, load a model, check where the output goes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from labelgrove.errors import ConfigError, DataError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from labelgrove.data.corpus import Corpus
    from labelgrove.data.formats import ReadOptions, ReadReport
    from labelgrove.methods.base import Model

# Exit codes, besides 0 and the 2 of a wrong flag.
USER_ERROR, INTERRUPTED = 1, 130
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tabs and line ends


def stdout_console(**options: Any) -> Console:
    """For commands whose result is text for people; ``options`` are those of rich's Console."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(harmless(text), **options)

    # Paths and texts may contain square brackets, so markup is off.
    where = Plain(highlight=False, markup=False, **options)
    where.soft_wrap = True
    return where


def harmless(text: str) -> str:
    """The text without control characters, with which a label could rewrite the terminal.

    >>> harmless("hats\\x1b[2J")
    'hats\\\\x1b[2J'
    """
    return _CONTROL.sub(lambda char: f"\\x{ord(char[0]):02x}", text)


def stderr_console(*, quiet: bool = False) -> Console:
    """For messages to people; standard output is for results."""
    return stdout_console(stderr=True, quiet=quiet)


def new_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, **style: Any
) -> Table:
    """A table, whose columns are numbers except the first; an empty row begins a section."""
    from rich.table import Table

    table = Table(title=title, **style)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        if row:
            table.add_row(*row)
        else:
            table.add_section()
    return table


def spinner(console: Console, text: str) -> AbstractContextManager[object]:
    """A spinner on a terminal; elsewhere nothing, since a spinner needs a thread."""
    from rich.markup import escape

    return console.status(escape(text)) if console.is_terminal else nullcontext()


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """After Ctrl-C, says that the same command continues with the folder."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. Run the same command again to continue: {folder}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def read_corpus(
    path: Path,
    how: ReadOptions,
    *,
    console: Console | None = None,
    report: ReadReport | None = None,
    **given: Any,
) -> Corpus:
    """Reads a corpus, and prints or reports what it contains.

    ``given`` is what else the reader takes: labels, index, all_labels, scratch.
    """
    from labelgrove.data.formats import ReadReport, read_corpus

    console = console or stderr_console(quiet=report is not None)
    report = report or ReadReport()
    with spinner(console, f"reading {path}"):
        corpus = read_corpus(path, options=how, report=report, **given)
    console.print(f"{path}: {report}")
    return corpus


def with_dense(corpus: Corpus, dense: Path | None, path: Path) -> Corpus:
    """The corpus of ``path`` with the vectors of its documents, if there is a file of them."""
    from labelgrove.data.formats.matrices import read_dense

    if dense is None:
        return corpus
    rows = read_dense(dense)
    if len(rows) != len(corpus):
        raise DataError(
            f"has {len(rows):,} rows, but {path} has {len(corpus):,} documents", file=dense
        )
    return corpus.with_dense(rows)


def read_for(
    model: Model,
    path: Path,
    how: ReadOptions,
    *,
    features: Path | None = None,
    dense: Path | None = None,
    **given: Any,
) -> Corpus:
    """Reads a corpus for a model: with the matrix that came with the texts, if the model reads it.

    The number of columns of an svmlight file, which has no header, is that of the model.
    """
    facts, how = model.facts_, with_fields_of(model, path, how)
    wide = how.n_features or facts.given or None
    reads = bool(how.features) and (not facts.from_text or facts.given > 0)
    how = replace(how, features=reads if features is None else features, n_features=wide)
    return with_dense(read_corpus(path, how, **given), dense, path)


def with_fields_of(model: Model, path: Path | str, options: ReadOptions) -> ReadOptions:
    """Options that read the fields that the model was trained on, unless they name others."""
    names = model.facts_.fields
    if names is None:
        return options
    from labelgrove.data.formats.read import WITH_FIELDS, format_of

    if format_of(path, options) not in WITH_FIELDS:
        return options
    texts = names.texts if options.text_field == "text" else options.text_field
    fields = names.fields if options.fields is None else options.fields
    return replace(options, text_field=texts, fields=fields)


def given_document(text: str, model: Model) -> str:
    """A document that was typed: a text, or a JSON object of the fields that the model reads."""
    if model.facts_.fields is None or not text.lstrip().startswith("{"):
        return text
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise DataError(f"the document begins like a JSON object, but is none: {error}") from error
    return str(model.documents([fields])[0])


def given_labels(values: list[str] | None) -> list[str] | None:
    """Labels from a repeated flag: the values, or for @FILE the first field of every line."""
    if values is None:
        return None
    from labelgrove.data.formats.files import existing, read_all

    labels: list[str] = []
    for value in values:
        if not value.startswith("@"):
            labels.append(value)
            continue
        lines = (line.partition("\t")[0].strip() for _, line in read_all(existing(value[1:])))
        labels.extend(line for line in lines if line)
    return labels


def local_model(model: Path) -> Path:
    """The model folder itself, or for ``hub:owner/name`` a local copy of the model."""
    if not str(model).startswith("hub:"):
        return model
    from labelgrove.exchange.hub import fetch

    name, _, revision = str(model).removeprefix("hub:").partition("@")
    return fetch(name, revision=revision or None)


def check_device(device: str) -> None:
    """Raises an error for a device that this machine does not have."""
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: must be auto, cpu or cuda")
    if kind == "cuda":
        try:
            import torch
        except ImportError:
            raise MissingExtraError("torch", "--device cuda") from None
        if not torch.cuda.is_available():
            raise ConfigError("--device cuda: torch finds no CUDA device; see labelgrove doctor")


def check_features(model: Model, features: Path | None) -> None:
    """Raises an error for a matrix that the model would not read."""
    if features is not None and model.facts_.from_text and not model.facts_.given:
        raise UnsupportedError(
            "--features: this model reads texts alone; leave the flag out, or train it with "
            "features=given or both"
        )


def use_device(model: Model, device: str) -> None:
    """Makes a model compute on the device; methods without a network ignore it."""
    check_device(device)
    if device != "auto":
        model.use_device(device)


def asks_for_gpu(model: Model, device: str) -> bool:
    """Whether a worker with this model should have a GPU, if a cluster has any."""
    return device != "cpu" and bool(model.encoders())


def load_model(
    path: Path, device: str, dense: Path | None = None, features: Path | None = None
) -> Model:
    """Loads a model onto the device, and checks that it can read features if there are any."""
    from labelgrove.exchange.loading import load

    check_device(device)
    model = load(path)
    use_device(model, device)
    if dense is not None and "dense" not in model.takes:
        raise UnsupportedError(
            f"--dense: the method {model.method} reads only text; leave the flag out"
        )
    check_features(model, features)
    return model


def number(text: str, flag: str, otherwise: str = "") -> float:
    """The number that a flag was given; ``otherwise`` says what else it takes."""
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{flag} {text}: must be a number{otherwise}") from None


def refuse_existing(paths: Iterable[Path], *, force: bool) -> None:
    """Raises an error for the first path that exists, unless forced."""
    for path in paths:
        if path.exists() and not force:
            raise ConfigError(f"{path} already exists; add --force to replace it")


def check_model_folder(out: Path, *, force: bool) -> None:
    """Raises an error, before the work, if a model cannot be written there."""
    from labelgrove.disk.model_folder import check_replaceable

    refuse_existing([out], force=force)
    if out.exists():
        check_replaceable(out)


def command_name() -> str:
    """How to call labelgrove again: by name, or by path if the shell would not find it."""
    called = Path(sys.argv[0])
    if called.name != "labelgrove" or shutil.which("labelgrove"):
        return "labelgrove"
    return os.path.relpath(called)


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
