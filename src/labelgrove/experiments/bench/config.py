"""What a bench has: the rows of its config, its files, and its results as one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeAlias

from labelgrove.core.params import (
    Params,
    Settings,
    overridden,
    param,
    parse_setting,
    read_toml,
    unknown_key,
    with_setting,
)
from labelgrove.data.formats.read import detect_format, source_files
from labelgrove.disk.hashing import content_hash, file_hash
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.methods import create, method_class
from labelgrove.methods.ensemble.members import check_kinds
from labelgrove.methods.ensemble.method import check_rule

Record: TypeAlias = dict[str, Any]  # what a bench measured of a row, as in its JSON file

METRICS = (*("P@1", "P@3", "P@5", "R@1", "R@3", "R@5"), *("nDCG@5", "PSP@1", "PSP@3", "PSP@5"))
GAINS = ("P@1", "P@3", "P@5")


def add_gains(records: list[Record], baseline: str) -> None:
    """Add gains over the baseline in percent, for measured and published numbers."""
    base = next((record for record in records if record["row"] == baseline), {})
    for record in records:
        for kind in ("metrics", "published"):
            ours, theirs = record.get(kind, {}), base.get(kind, {})
            gains = {
                name: round(100 * (ours[name] - theirs[name]) / theirs[name], 2)
                for name in GAINS
                if name in ours and theirs.get(name)
            }
            if gains:
                record["gain" if kind == "metrics" else "published_gain"] = gains


def bench_table(records: Sequence[Record]) -> str:
    """The records as one Markdown table; published numbers are below measured ones."""
    from labelgrove.core.memory import format_size

    intervals = any(record.get("intervals") for record in records)
    heads = ["", *METRICS, "gain P@1/3/5", "training s", "ms p50/p99", "docs/s", "model", "memory"]
    lines: list[list[str]] = []
    for record in records:
        if "metrics" in record:
            cost = [
                f"{record['train_seconds']:.1f}",
                "{p50:.2f}/{p99:.2f}".format(**record["latency_ms"]),
                f"{record['documents_per_second']:,.0f}",
                format_size(record["model_bytes"]),
                format_size(record["peak_memory_bytes"] or 0),
            ]
            values = [_value(record, name) for name in METRICS]
            lines.append([record["row"], *values, _gain(record.get("gain")), *cost])
        elif "error" in record:
            lines.append([f"{record['row']}: failed", *[""] * (len(heads) - 1)])
        elif not record.get("published"):
            lines.append([f"{record['row']}: not measured", *[""] * (len(heads) - 1)])
        if record.get("published"):
            numbers = record["published"]
            values = [f"{numbers[name]:.2f}" if name in numbers else "" for name in METRICS]
            gain = _gain(record.get("published_gain"))
            where = f" ({record['source']})" if record.get("source") else ""
            seconds = f"{3600 * numbers['hours']:.0f}" if "hours" in numbers else ""
            lines.append([f"{record['row']}, published{where}", *values, gain, seconds, *[""] * 4])
    note = "\n\n± half of the 95 % bootstrap interval" if intervals else ""
    return markdown([heads, *lines]) + note


def markdown(table: Sequence[Sequence[str]]) -> str:
    """A Markdown table of cells, the first line its head; numbers are on the right."""
    widths = [max(3, *(len(line[c]) for line in table)) for c in range(len(table[0]))]

    def joined(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([joined(table[0]), rule, *map(joined, table[1:])])


def _value(record: Record, name: str) -> str:
    pair = record.get("intervals", {}).get(name)
    half = f" ±{(pair[1] - pair[0]) / 2:.2f}" if pair else ""
    return f"{record['metrics'][name]:.2f}{half}"


def _gain(gains: Mapping[str, float] | None) -> str:
    if not gains:
        return ""
    return "/".join(f"{gains[name]:+.1f}" if name in gains else "-" for name in GAINS) + " %"


@dataclass
class BenchParams(Params):
    """What all rows share: files (in the data folder), and how to read and measure them."""

    train: str = param("", help="training corpus; default train.*")
    test: str = param("", help="corpus to measure on; default test.*, else dev.*")
    labels: str = param("", help="label table; default the one beside the corpus")
    filter: str = param("", help="pairs that do not count, such as filter_labels_test.txt")
    format: str = param("", help="input format; default by content and name")
    text_field: str = param("text", help="field(s) with the text")
    fields: list[str] = param([], help="catalogue fields")
    labels_field: str = param("labels", help="field with the labels")
    baseline: str = param("parabel", help="row that gains are relative to")
    intervals: int = param(200, ge=0, help="bootstrap resamples for 95 % intervals")
    latency_documents: int = param(200, ge=1, help="documents predicted one at a time")
    propensity_a: float = param(0.55, ge=0, help="A of the propensity model")
    propensity_b: float = param(1.5, ge=0, help="B of the propensity model")


@dataclass(frozen=True)
class BenchRow:
    """One row of the table: a method, an ensemble of other rows, or only published numbers."""

    name: str
    settings: Settings | None = None
    of: tuple[str, ...] = ()
    published: dict[str, float] = field(default_factory=dict)
    source: str = ""  # of the published numbers

    @property
    def slug(self) -> str:
        """The name of the row's files, such as ``xr-linear-c-2`` for "XR-Linear, C = 2"."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "row"


@dataclass(frozen=True)
class Bench:
    """The rows of a bench, checked before anything is trained."""

    params: BenchParams
    rows: tuple[BenchRow, ...]

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, object],
        *,
        settings: Sequence[str] = (),
        folder: str | Path = ".",
        only: Sequence[str] = (),
    ) -> Bench:
        """Read the ``[[methods]]`` tables and the keys that they share.

        A row starts from the settings of the row that ``base`` names, or of the file that
        ``config`` names (relative to ``folder``). ``settings`` are ``--set`` flags for all rows
        whose method has them. With ``only``, other rows are not checked: they may need an encoder
        or an extra that is not here.

        >>> rows = [{"method": "parabel"}, {"name": "one tree", "base": "parabel", "n_trees": 1}]
        >>> Bench.from_config({"methods": rows}).rows[1].settings
        {'method': 'parabel', 'n_trees': 1}
        """
        shared = {key: value for key, value in config.items() if key != "methods"}
        tables = config.get("methods", [])
        if not isinstance(tables, list) or not tables:
            raise ConfigError("methods: a bench needs at least one [[methods]] table")
        rows: list[BenchRow] = []
        for number, table in enumerate(tables, 1):
            if not isinstance(table, Mapping):
                raise ConfigError(f"methods: number {number} is not a table")
            row = _row(table, number, rows, Path(folder))
            if row.slug in {other.slug for other in rows}:
                raise ConfigError(f"methods: two rows are called {row.name!r}; rename one")
            rows.append(row)
        bench = cls(BenchParams.from_dict(shared), tuple(rows))
        chosen = bench.chosen(only)
        bench = replace(bench, rows=tuple(_with_flags(rows, settings, chosen)))
        bench.check(chosen, named_baseline="baseline" in shared)
        return bench

    def chosen(self, only: Sequence[str]) -> set[str]:
        """These rows, by name or pattern, and those that they join; without names, all."""
        names = [row.name for row in self.rows]
        chosen = set() if only else set(names)
        for pattern in only:
            found = {name for name in names if name == pattern or fnmatchcase(name, pattern)}
            if not found:
                raise ConfigError(f"--only {pattern}: no such row; there are {', '.join(names)}")
            chosen |= found
        for row in reversed(self.rows):  # members are above
            chosen.update(row.of if row.name in chosen else ())
        return chosen

    def check(self, chosen: set[str], *, named_baseline: bool) -> None:
        """Refuse what could not be trained or joined."""
        rows = {row.name: row for row in self.rows}
        if named_baseline and self.params.baseline not in rows:
            raise ConfigError(unknown_key(self.params.baseline, list(rows), "baseline"))
        for row in self.rows:
            if row.settings is None or row.name not in chosen:
                continue
            model = create_row(row)
            if not row.of:
                continue
            try:
                check_rule(model.rule, model.weights, len(row.of))
                check_kinds([create_row(rows[name]) for name in row.of], model.rule)
            except ConfigError as error:
                raise ConfigError(f"{row.name}: {error}") from error


def _row(
    table: Mapping[str, object], number: int, above: Sequence[BenchRow], folder: Path
) -> BenchRow:
    settings: Settings = dict(table)
    published, source = _published(settings.pop("published", {}), number)
    of: list[str] = settings.pop("of", [])
    if not (isinstance(of, list) and all(isinstance(name, str) for name in of)):
        raise ConfigError(f"methods: number {number}: of must be a list of names of rows")
    name = str(settings.pop("name", settings.get("method", "")))
    if not name:
        raise ConfigError(f"methods: number {number} has neither a method nor a name")
    trained = {row.name: row for row in above if row.settings is not None}
    base, file = settings.pop("base", None), settings.pop("config", None)
    for other in (*of, *([] if base is None else [base])):
        if other not in trained:
            raise ConfigError(f"{name}: names {other!r}, which is not a row above it")
    if file is not None:
        settings = overridden(read_toml(folder / str(file)), settings)
    if base is not None:
        settings = overridden(trained[base].settings or {}, settings)
    if of:
        return BenchRow(name, settings | {"method": "ensemble"}, tuple(of), published, source)
    if "method" not in settings:
        if settings or not published:
            raise ConfigError(f"{name}: needs a method, or only published numbers")
        return BenchRow(name, None, (), published, source)
    return BenchRow(name, settings, (), published, source)


def _published(table: object, number: int) -> tuple[dict[str, float], str]:
    """The published numbers of a row (percent, and hours of training), and where they are from."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"methods: number {number}: published must be a table of numbers")
    numbers = dict(table)
    source = str(numbers.pop("source", ""))
    for key, value in numbers.items():
        if key not in (*METRICS, "hours"):
            raise ConfigError(unknown_key(key, [*METRICS, "hours", "source"], "published"))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"published.{key}: must be a number, got {value!r}")
    return {key: float(value) for key, value in numbers.items()}, source


def _with_flags(rows: Sequence[BenchRow], flags: Sequence[str], chosen: set[str]) -> list[BenchRow]:
    """Rows with those of the ``--set`` flags that they know; one that no row knows is an error."""
    given = [parse_setting(flag) for flag in flags]
    known: set[str] = set()
    result = []
    for row in rows:
        if given and row.settings is not None and not row.of:
            try:
                model = method_class(row.settings["method"])()
            except MissingExtraError:
                if row.name in chosen:
                    raise
                result.append(row)
                continue
            names = {name.replace("__", ".") for name in model.get_params()}
            passes_on = "members" in names  # an ensemble's members know more
            known |= set() if passes_on else names
            settings = row.settings
            for key, value in given:
                if passes_on or key in names:
                    settings = with_setting(settings, key, value)
            row = replace(row, settings=settings)
        result.append(row)
    for key, _ in given:
        if known and key not in known:
            raise ConfigError(f"--set {unknown_key(key, sorted(known))}")
    return result


def create_row(row: BenchRow) -> Any:
    """The unfitted model of a row. An ensemble of rows has no members yet."""
    settings = dict(row.settings or {})
    try:
        return create(settings.pop("method"), settings)
    except ConfigError as error:
        raise ConfigError(f"{row.name}: {error}") from error


@dataclass(frozen=True)
class Files:
    """The corpora of a bench, and a hash of their content."""

    train: Path
    test: Path
    filter: Path | None
    digest: str

    @classmethod
    def of(cls, params: BenchParams, data: Path) -> Files:
        """Find the files of a bench in the data folder."""
        train = corpus_file(data, params.train, ("train",))
        test = corpus_file(data, params.test, ("test", "dev"))
        pairs = corpus_file(data, params.filter, ()) if params.filter else None
        contents = [[file_hash(file) for file in source_files(path)] for path in (train, test)]
        if params.labels:
            contents.append([file_hash(corpus_file(data, params.labels, ()))])
        if pairs is not None:
            contents.append([file_hash(pairs)])
        return cls(train, test, pairs, content_hash(contents))


def _is_data_set(folder: Path) -> bool:
    """Whether it has the layout of a public data set, so that reading it finds the parts."""
    try:
        return detect_format(folder) in ("pecos", "attentionxml", "lf", "xc")
    except DataError:
        return False


def corpus_file(data: Path, given: str, stems: Sequence[str]) -> Path:
    """The file of this name in a folder, or the only one with one of these stems."""
    if given:
        if not (data / given).exists():
            raise ConfigError(f"{data / given}: no such file")
        return data / given
    if data.is_dir() and _is_data_set(data):
        return data  # with all its parts
    for stem in stems:
        files = sorted(data.glob(f"{stem}.*"))
        if len(files) == 1:
            return files[0]
        if files:
            raise ConfigError(f"{data}: has several files {stem}.*; name one as {stems[0]} = ...")
    raise ConfigError(f"{data}: has no file {' or '.join(f'{stem}.*' for stem in stems)}")
