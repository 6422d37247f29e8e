"""Flags that several commands share, declared once: single flags and groups of them.

A command takes a group as one keyword argument, such as ``inputs: options.Inputs``.
``add_command`` shows typer the flags of the group instead, in panels.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer import Argument, Option
from typer.models import OptionInfo

from labelgrove.cli import common
from labelgrove.core.processes import MAX_THREADS
from labelgrove.errors import ConfigError

if TYPE_CHECKING:
    from labelgrove.data.corpus import Corpus, LabelIndex
    from labelgrove.data.facts import TrainingFacts
    from labelgrove.data.formats import ReadOptions
    from labelgrove.engines import Engine
    from labelgrove.methods import base as methods
    from labelgrove.methods.requests import Threshold

# The panels of the help. Of the first one, a command with many flags shows the first six that it
# has; other flags, and all those of small commands, are in the others.
FIRST, MOST_FIRST, MANY = "Most used", 6, 14
PANELS = {
    FIRST: "out dev method k threshold text-field labels-field budget metric target intervals text "
    "train feedback allow deny against",
    "Data": "dev train test data features dense labels all-labels label-tree feedback report "
    "text text-field field labels-field id-field format read skip-bad filter stratify documents "
    "default",
    "Method": "method config set seed budget trials metric target allow deny label raw "
    "threshold k propensity intervals precision hub only against",
    "Output": "out force run resume plan no-estimate json quiet verbose by top settings verify",
    "Machine": "threads device memory batch host port host-header token-file",
    "More machines": "engine address workers",
}
METHODS = (
    "auto, linear, neighbours, matcher, dual, xtransformer, xrtransformer, lightxml, cascadexml, "
    "ensemble"
)

Model = Annotated[Path, Argument(metavar="MODEL", help="Model folder.")]
HubModel = Annotated[Path, Argument(metavar="MODEL", help="Model folder, or hub:owner/name.")]
ModelOrFile = Annotated[Path, Argument(metavar="MODEL", help="Model folder or predictions file.")]
TrainCorpus = Annotated[Path, Argument(metavar="TRAIN", help="Training corpus in any format.")]
Labelled = Annotated[Path, Argument(metavar="DATA", help="Corpus with labels.")]
Labels = Annotated[
    Path | None, Option(help="Label table (id, name, text). Default: labels.tsv beside the corpus.")
]
LabelTree = Annotated[Path | None, Option(help="Thesaurus (TSV: id, broader ids) for the tree.")]
Given = Annotated[
    Path | None,
    Option(
        "--features",
        help="Sparse matrix with a row per document (.npz, or a repository or svmlight file).",
    ),
]
Dense = Annotated[Path | None, Option(help="NumPy file (.npy) with one vector per document.")]
Set = Annotated[list[str] | None, Option("--set", help="One setting, KEY=VALUE. Repeatable.")]
Seed = Annotated[int, Option(min=0, help="Random seed.")]
Documents = Annotated[int, Option("--documents", "-n", min=1, help="Number of documents.")]
Top = Annotated[int, Option(min=0, help="Number of entries to show in each list.")]
RunFolder = Annotated[
    Path | None, Option("--run", help="Folder that keeps finished work for other runs.")
]
Threads = Annotated[
    int | None, Option(min=0, max=MAX_THREADS, help="Number of threads. Default: all cores.")
]
Device = Annotated[str, Option(help="Where to compute: auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print the result as one JSON object.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
Force = Annotated[bool, Option("--force", help="Replace existing output.")]
SkipBad = Annotated[
    bool, Option("--skip-bad", help="Count and report bad lines instead of stopping.")
]


Tables = dict[str, Any]  # settings of a method, as in a TOML file


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

    def worker_threads(self, given: int | None) -> int:
        """The threads of one worker: a Ray worker has one core, unless the user says more."""
        return given or (1 if self.engine == "ray" else 0)


@dataclass(frozen=True)
class Work(Where, Machine):
    """Where the work is done, and what to compute with."""


@dataclass(frozen=True)
class Output:
    """What is printed."""

    as_json: Json = False
    quiet: Quiet = False
    verbose: Annotated[
        bool, Option("--verbose", help="Also print all metrics, stage times and memory.")
    ] = False


@dataclass(frozen=True)
class LabelFacts:
    """The names of labels, and where the propensities of PSP come from."""

    labels: Labels = None
    train_corpus: Annotated[
        Path | None, Option("--train", help="Training corpus. PSP of a predictions file needs it.")
    ] = None
    propensity: Annotated[
        tuple[float, float], Option(metavar="A B", help="A and B of the propensity model.")
    ] = (0.55, 1.5)

    def read(self, how: ReadOptions) -> tuple[LabelIndex | None, TrainingFacts | None]:
        """The labels of the training corpus and their frequencies, if the corpus is given."""
        from labelgrove.data.facts import TrainingFacts

        if self.train_corpus is None:
            return None, None
        how = replace(how, part="train", features=False)
        corpus = common.read_corpus(self.train_corpus, how, labels=self.labels)
        return corpus.index, TrainingFacts.of(corpus)


READ_OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("encoding", "part", "delimiter", "label_separator"), str),
    "column_names": lambda value: value.split(","),
    **dict.fromkeys(("quoted", "features"), lambda value: value == "true"),
    "n_features": int,
}


@dataclass(frozen=True)
class CorpusOptions:
    """How to read a corpus."""

    skip_bad: SkipBad = False
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

    def flags(self) -> str:
        """What another command must be told to read documents as these are read."""
        told = {"text": self.text_field, "labels": self.labels_field, "id": self.id_field}
        words = [w for name, f in told.items() if f != name for w in (f"--{name}-field", f)]
        for flag, values in (("--field", self.field), ("--read", self.read)):
            words += [word for value in values or [] for word in (flag, value)]
        return "".join(f" {shlex.quote(word)}" for word in words)

    def options(self, part: str = "train") -> ReadOptions:
        """All flags as one object; ``part`` is the default part of a data set folder."""
        from labelgrove.core.params import unknown_key
        from labelgrove.data.formats import ReadOptions

        values: dict[str, Any] = {"part": part}
        for setting in self.read or []:
            key, _, value = setting.partition("=")
            if not value:
                raise ConfigError(f"--read {setting}: must look like delimiter=;")
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
class Inputs(CorpusOptions, Machine):
    """Documents, what belongs to them besides texts, what to compute with and how to answer."""

    features: Given = None
    dense: Dense = None
    as_json: Json = False

    def load(self, model: Path) -> methods.Model:
        """The model, on the device."""
        return common.load_model(model, self.device, self.dense, self.features)

    def corpus(self, model: methods.Model, path: Path, part: str, **given: Any) -> Corpus:
        """The documents, with what the model reads besides texts."""
        files = {"dense": self.dense, "features": self.features}
        return common.read_for(model, path, self.options(part), **files, **given)

    @property
    def has_files(self) -> bool:
        """Whether the documents come with a file of features or vectors."""
        return self.features is not None or self.dense is not None


@dataclass(frozen=True)
class Request:
    """Which labels to predict."""

    k: Annotated[
        int | None,
        Option("--k", "-k", min=1, help="Labels per document. Default: 5, or a set's (auto)."),
    ] = None
    threshold: Annotated[
        str | None,
        Option(help="Minimum score. auto: the sets of calibrate."),
    ] = None
    raw: Annotated[bool, Option("--raw", help="Return uncalibrated scores.")] = False
    allow: Annotated[
        list[str] | None,
        Option(help="Allow only this id, name, group or @FILE of them. Repeatable."),
    ] = None
    deny: Annotated[list[str] | None, Option(help="Exclude this label. Like --allow.")] = None
    label_tree: Annotated[
        Path | None, Option(help="Thesaurus (TSV: id, broader ids). Its concepts become groups.")
    ] = None

    def __post_init__(self) -> None:
        _ = self.minimum  # refuses a word before a model is loaded

    def resolved(self) -> Request:
        """The same with the labels of files and a whole path, for workers in other folders."""
        tree = self.label_tree and self.label_tree.resolve()
        allow, deny = map(common.given_labels, (self.allow, self.deny))
        return replace(self, allow=allow, deny=deny, label_tree=tree)

    @property
    def minimum(self) -> Threshold:
        """The threshold as ``predict`` takes it."""
        if self.threshold is None:
            return None
        if self.threshold == "auto":
            return "auto"
        return common.number(self.threshold, "--threshold", " or auto")


@dataclass(frozen=True)
class Settings:
    """The method to train and its settings."""

    method: Annotated[
        str | None,
        Option(help=f"{METHODS}. Default: auto (tune: linear), or as in --config."),
    ] = None
    config: Annotated[Path | None, Option(help="TOML file with settings.")] = None
    settings: Set = None
    seed: Annotated[int | None, Option(min=0, help="Random seed.")] = None

    def tables(self, threads: int | None, default: str) -> tuple[str, Tables]:
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


class Without(str):
    """Leaves the flag of this name out of a group."""


def add_command(app: typer.Typer, name: str, command: Callable[..., None]) -> None:
    """Adds a function as a command; its docstring is the help."""
    app.command(name, help=help_text(command))(_with_flags(command))


def help_text(command: Callable[..., None]) -> str:
    """The docstring of a command."""
    # Help is shown at any width: only empty lines of a docstring separate paragraphs.
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the flags of its groups in place of the groups."""
    groups: dict[str, tuple[type, list[str]]] = {}
    flags: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, *marks = get_args(parameter.annotation) or [parameter.annotation]
        members = [parameter]
        if is_dataclass(group) and isinstance(group, type):
            types = get_type_hints(group, include_extras=True)  # also those of base classes
            members = [
                flag.replace(annotation=types[flag.name])
                for flag in inspect.signature(group).parameters.values()
                if flag.name not in marks
            ]
            groups[parameter.name] = (group, [flag.name for flag in members])
        flags += [flag.replace(kind=inspect.Parameter.KEYWORD_ONLY) for flag in members]
    flags = _in_panels(flags)

    @wraps(command)
    def flat(**values: Any) -> None:
        for name, (group, members) in groups.items():
            values[name] = group(**{member: values.pop(member) for member in members})
        command(**values)

    flat.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    flat.__annotations__ = {flag.name: flag.annotation for flag in flags}
    return flat


def _in_panels(flags: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """The flags in the order of the help, each with its panel; arguments come first."""
    given = {_option_name(flag) for flag in flags}
    first = [name for name in PANELS[FIRST].split() if name in given]
    panels = {name: panel for panel, names in PANELS.items() for name in names.split()}
    panels |= dict.fromkeys(first[:MOST_FIRST] if len(flags) > MANY else (), FIRST)

    def placed(flag: inspect.Parameter) -> tuple[int, int, inspect.Parameter]:
        name = _option_name(flag)
        if name is None:
            return -1, 0, flag
        kind, option = get_args(flag.annotation)
        option = copy(option)  # commands share it
        option.rich_help_panel = panel = option.rich_help_panel or panels[name]
        rank = first.index(name) if panel == FIRST else 0
        flag = flag.replace(annotation=Annotated[kind, option])
        return list(PANELS).index(panel), rank, flag

    return [flag for *_, flag in sorted(map(placed, flags), key=lambda each: each[:2])]


def _option_name(flag: inspect.Parameter) -> str | None:
    """The name without dashes, None for an argument."""
    option = get_args(flag.annotation)[-1]
    if not isinstance(option, OptionInfo):
        return None
    # typer takes the name of an annotated option for its default until it makes the command.
    name = str(option.default)
    return name.removeprefix("--") if name.startswith("--") else flag.name.replace("_", "-")
