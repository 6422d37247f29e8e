"""Flags that several commands share, declared once: single flags and groups of them.

A command takes a group as one keyword argument, such as ``reading: options.Reading``.
``add_commands`` shows typer the flags of the group instead.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer import Argument, Option

from labelgrove.cli import common
from labelgrove.core.processes import MAX_THREADS
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods import METHODS

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.core.scratch import Scratch
    from labelgrove.data.corpus import Corpus, LabelIndex
    from labelgrove.data.facts import TrainingFacts
    from labelgrove.data.formats import ReadOptions
    from labelgrove.engines import Engine

Model = Annotated[Path, Argument(metavar="MODEL", help="Model folder.")]
HubModel = Annotated[Path, Argument(metavar="MODEL", help="Model folder, or hub:owner/name.")]
ModelOrFile = Annotated[Path, Argument(metavar="MODEL", help="Model folder or predictions file.")]
TrainCorpus = Annotated[Path, Argument(metavar="TRAIN", help="Training corpus in any format.")]
Labels = Annotated[
    Path | None, Option(help="Label table (id, name, text). Default: labels.tsv beside the corpus.")
]
Given = Annotated[
    Path | None,
    Option(
        "--features",
        help="Sparse matrix with a row per document (.npz, or a repository or svmlight file).",
    ),
]
Dense = Annotated[Path | None, Option(help="NumPy file (.npy) with one vector per document.")]
Set = Annotated[list[str] | None, Option("--set", help="One setting, KEY=VALUE. Repeatable.")]
Neighbours = Annotated[
    Path | None, Option("--train", help="Training corpus, to show its documents most like a text.")
]
Seed = Annotated[int | None, Option(min=0, help="Random seed.")]
Threads = Annotated[
    int | None, Option(min=0, max=MAX_THREADS, help="Number of threads. Default: all cores.")
]
Device = Annotated[str, Option(help="Where to compute: auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print the result as one JSON object.")]
Force = Annotated[bool, Option("--force", help="Replace existing output.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]


@dataclass(frozen=True)
class Machine:
    """What to compute with."""

    threads: Threads = None
    device: Device = "auto"


@dataclass(frozen=True)
class Where:
    """Where the work is done."""

    engine: Annotated[
        str | None,
        Option(help="Workers, on a corpus in shards or on many models: local, or ray (a cluster)."),
    ] = None
    address: Annotated[
        str | None, Option(help="Ray cluster: host:port or auto. Default: start Ray here.")
    ] = None
    workers: Annotated[
        int | None, Option(min=1, help="Most Ray workers. Default: one per core, or GPU.")
    ] = None

    def check(self) -> None:
        """Raises an error for flags that need --engine ray."""
        if self.engine != "ray" and (self.address is not None or self.workers is not None):
            raise ConfigError("--address and --workers need --engine ray")

    def open(self) -> Engine:
        """The engine, once there is work for it: Ray takes seconds to start."""
        from labelgrove.engines import open_engine

        return open_engine(self.engine or "local", address=self.address, workers=self.workers)

    def threads(self, given: int | None) -> int:
        """The threads of one worker: a Ray worker has one core, unless the user says more."""
        return given or (1 if self.engine == "ray" else 0)


@dataclass(frozen=True)
class Frequencies:
    """Where the propensities of PSP come from."""

    train_corpus: Annotated[
        Path | None, Option("--train", help="Training corpus. PSP of a predictions file needs it.")
    ] = None
    a: Annotated[float, Option("--propensity-a", help="A of the propensity model.")] = 0.55
    b: Annotated[float, Option("--propensity-b", help="B of the propensity model.")] = 1.5

    def read(
        self, how: ReadOptions, labels: Path | None
    ) -> tuple[LabelIndex | None, TrainingFacts | None]:
        """The labels of the training corpus and their frequencies, if the corpus is given."""
        from labelgrove.data.facts import TrainingFacts

        if self.train_corpus is None:
            return None, None
        how = replace(how, part="train", features=False)
        corpus = common.read_corpus(self.train_corpus, how, labels=labels)
        return corpus.index, TrainingFacts.of(corpus)


@dataclass(frozen=True)
class Data:
    """A corpus by position; --data, as it was once given, still works but is not shown."""

    source: Annotated[Path | None, Argument(metavar="DATA", help="Corpus with labels.")] = None
    data: Annotated[Path | None, Option(hidden=True)] = None

    @property
    def path(self) -> Path | None:
        """The corpus, whichever way it was given."""
        if self.source is not None and self.data is not None:
            raise ConfigError(f"--data {self.data}: the corpus is {self.source} already; give one")
        return self.source or self.data

    def required(self) -> Path:
        """The corpus; it is an error to give none."""
        if self.path is None:
            raise typer.BadParameter("give a corpus with labels after the model", param_hint="DATA")
        return self.path


READ_OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("encoding", "part", "delimiter", "label_separator", "weights_field"), str),
    "column_names": lambda value: value.split(","),
    **dict.fromkeys(("quoted", "features"), lambda value: value == "true"),
    "n_features": int,
}


@dataclass(frozen=True)
class Reading:
    """How to read a corpus."""

    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Count and report bad lines instead of stopping.")
    ] = False
    input_format: Annotated[
        str | None, Option("--format", help="Input format. Default: by name and content.")
    ] = None
    text_field: Annotated[
        str, Option(help="Field with the text. Several fields are joined: title,content.")
    ] = "text"
    field: Annotated[
        list[str] | None,
        Option(help="Catalogue field, such as creator, with a weight of its own. Repeatable."),
    ] = None
    labels_field: Annotated[str, Option(help="Field with the labels.")] = "labels"
    id_field: Annotated[str, Option(help="Field with the document id.")] = "id"
    read: Annotated[
        list[str] | None,
        Option(
            help="Another reading option: encoding=latin-1, label_separator=;, delimiter=;, "
            "quoted=true, column_names=text,labels, part=test, features=false. Repeatable."
        ),
    ] = None

    def options(self, part: str = "train") -> ReadOptions:
        """All flags as one object; ``part`` is the default part of a data set folder."""
        from labelgrove.core.params import unknown_key
        from labelgrove.data.formats import ReadOptions

        values: dict[str, Any] = {"part": part}
        for setting in self.read or []:
            key, _, value = setting.partition("=")
            if key not in READ_OPTIONS:
                raise ConfigError(f"--read {unknown_key(key, list(READ_OPTIONS))}")
            if key in ("quoted", "features") and value not in ("true", "false"):
                raise ConfigError(f"--read {key}: must be true or false, got {value!r}")
            if key == "n_features" and not value.isdecimal():
                raise ConfigError(f"--read n_features: must be a whole number, got {value!r}")
            values[key] = READ_OPTIONS[key](value)
        return ReadOptions(
            format=self.input_format,
            text_field=self.text_field,
            fields=None if self.field is None else ",".join(self.field),
            labels_field=self.labels_field,
            id_field=self.id_field,
            skip_bad=self.skip_bad,
            **values,
        )


@dataclass(frozen=True)
class Settings:
    """The method to train and its settings."""

    method: Annotated[
        str | None,
        Option(help=f"{', '.join(METHODS)}. Default: auto (tune: linear), or as in --config."),
    ] = None
    config: Annotated[Path | None, Option(help="TOML file with settings.")] = None
    settings: Set = None
    seed: Seed = None

    def tables(self, threads: int | None, default: str) -> tuple[str, dict[str, Any]]:
        """The method and its parameters: config file, --set and flags, in rising precedence."""
        from labelgrove.core.params import merge_settings, read_toml

        tables = merge_settings(read_toml(self.config) if self.config else {}, self.settings or [])
        for setting in self.settings or []:
            key, _, value = setting.partition("=")
            if key.endswith(".analyzer") and ":" in value:
                from labelgrove.text.feeding import import_analyzer

                # Typed here, so it may be imported; a config file may come with a model folder.
                import_analyzer(value.strip("\"'"))
        method = tables.pop("method", "ensemble" if "members" in tables else None)
        if self.method is not None and method not in (None, self.method):
            raise ConfigError(f"--method {self.method}, but {self.config} has method = {method!r}")
        if self.seed is not None:
            tables["random_state"] = self.seed
        if threads is not None:
            tables["n_jobs"] = threads
        return self.method or method or default, tables


@dataclass(frozen=True)
class Documents:
    """What belongs to a training corpus: held-out documents, features and label names."""

    dev: Annotated[Path | None, Option(help="Held-out corpus to measure on.")] = None
    features: Given = None
    dev_features: Annotated[Path | None, Option(help="The matrix of the documents in --dev.")] = (
        None
    )
    dense: Dense = None
    dev_dense: Annotated[Path | None, Option(help="The vectors of the documents in --dev.")] = None
    labels: Labels = None
    all_labels: Annotated[
        bool,
        Option(
            "--all-labels",
            help="Also the labels of the label table that no document has. Methods that learn "
            "names can predict them.",
        ),
    ] = False

    def check(self) -> None:
        """Raises an error, before the work, if the flags do not fit each other."""
        if self.dev is not None and self.dense is not None and self.dev_dense is None:
            raise ConfigError("--dev-dense is missing: the documents of --dev need vectors too")
        if self.dev_dense is not None and (self.dev is None or self.dense is None):
            raise ConfigError("--dev-dense needs --dev and --dense")
        if self.dev is not None and self.features is not None and self.dev_features is None:
            raise ConfigError("--dev-features is missing: the documents of --dev need a matrix too")
        if self.dev_features is not None and self.dev is None:
            raise ConfigError("--dev-features needs --dev")
        if self.labels is not None and self.labels.suffix == ".npz":
            raise ConfigError(
                f"--labels {self.labels}: is a matrix, and --labels takes a table of label names; "
                "give the folder of X.trn.npz and Y.trn.npz: labelgrove train FOLDER"
            )

    def read(
        self, path: Path, reading: Reading, console: Console, scratch: Scratch | None = None
    ) -> tuple[Corpus, Corpus | None]:
        """The training corpus, with its texts in ``scratch``, and the held-out corpus."""
        from labelgrove.data.formats import ReadReport
        from labelgrove.data.records import empty_fields

        how, report = reading.options(), ReadReport()
        corpus = common.read_corpus(
            path,
            how,
            labels=self.labels,
            all_labels=self.all_labels,
            dense=self.dense,
            features=self.features,
            console=console,
            report=report,
            scratch=scratch,
        )
        if report.unused_names and not self.all_labels:
            console.print(
                f"labels: {report.unused_names:,} labels of the label table have no document and "
                "are left out; --all-labels lets a method learn them by their names"
            )
        if corpus.labels.nnz == 0:
            raise DataError(
                f"no document has a label in the field {reading.labels_field!r}; "
                "name the right field with --labels-field",
                file=path,
            )
        for name in empty_fields(corpus.texts) if how.fields and corpus.texts else ():
            raise DataError(
                f"no document has a value in the field {name!r}; correct --field, or leave it out",
                file=path,
            )
        if self.dev is None:
            return corpus, None
        if how.n_features is None and corpus.features is not None:
            how = replace(how, n_features=corpus.features.terms or None)
        return corpus, common.read_corpus(
            self.dev,
            how,
            index=corpus.index,
            dense=self.dev_dense,
            features=self.dev_features,
            console=console,
        )


class Without(str):
    """Leaves the flag of this name out of a group."""


def add_commands(app: typer.Typer, *commands: Callable[..., None]) -> None:
    """Adds functions as commands of the same names; their docstrings are the help."""
    for command in commands:
        # Help is shown at any width: only empty lines of a docstring separate paragraphs.
        paragraphs = (inspect.getdoc(command) or "").split("\n\n")
        text = "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)
        app.command(help=text)(_with_flags(command))


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the flags of its groups in place of the groups."""
    groups: dict[str, tuple[type, list[str]]] = {}
    flags: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, *marks = get_args(parameter.annotation) or [parameter.annotation]
        members = [parameter]
        if is_dataclass(group) and isinstance(group, type):
            signature = inspect.signature(group, eval_str=True)
            members = [flag for flag in signature.parameters.values() if flag.name not in marks]
            groups[parameter.name] = (group, [flag.name for flag in members])
        flags += [flag.replace(kind=inspect.Parameter.KEYWORD_ONLY) for flag in members]

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, (group, members) in groups.items():
            values[name] = group(**{member: values.pop(member) for member in members})
        command(**values)

    flat.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    flat.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return flat
