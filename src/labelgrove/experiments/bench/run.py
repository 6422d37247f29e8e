"""Train and measure several methods on one corpus: what ``labelgrove bench`` does.

Each row is trained in its own process, so that its memory can be measured. All rows share one run
folder. With an engine, its workers start these processes, several at a time; all machines must see
the bench's folder. A repeated bench reuses finished rows. In the bench's folder::

    cache/              the run folder that rows share
    configs/ROW.toml    the settings of a row
    models/ROW/         its model
    rows/ROW.json       its measurements
    results.jsonl       all rows, one line each
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from labelgrove.core import jsonio
from labelgrove.core.params import to_toml
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats import ReadOptions, read_corpus, read_filter_pairs
from labelgrove.data.formats.read import source_files
from labelgrove.disk.atomic import write_file
from labelgrove.disk.bundle import library_versions, read_manifest
from labelgrove.disk.hashing import content_hash, file_hash
from labelgrove.disk.run_folder import RunFolder, process_name, run_status
from labelgrove.engines import Engine
from labelgrove.errors import LabelgroveError
from labelgrove.evaluation.measures import Measures
from labelgrove.evaluation.metrics import Propensity
from labelgrove.exchange.loading import load
from labelgrove.experiments.attempts import measure, read_lines
from labelgrove.experiments.bench.config import Bench, BenchRow, Files, corpus_file, create_row
from labelgrove.experiments.bench.costs import Costs, latency, machine, model_costs
from labelgrove.experiments.bench.table import METRICS, Record, add_gains
from labelgrove.methods.base import Model
from labelgrove.nn.encoders.files import EncoderContent


class BenchFolder:
    """A bench on the corpora in ``data``, with the results in ``folder``.

    ``flags`` go to ``labelgrove train``; models are measured on ``device``.
    """

    def __init__(
        self,
        bench: Bench,
        data: Path,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        device: str = "auto",
    ) -> None:
        self.bench, self.params, self.files = bench, bench.params, Files.of(bench.params, data)
        self.data, self.folder, self.flags, self.device = data, folder, flags, device
        self.rows = {row.name: row for row in bench.rows}
        for name in ("configs", "models", "rows"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._corpora: dict[tuple[Path, int | None], Corpus] = {}
        self._trainings: dict[str, TrainedRow] = {}  # by workers, under the rows' names

    def run(
        self,
        *,
        only: Sequence[str] = (),
        costs: Costs | None = None,
        engine: Engine | None = None,
        say: Callable[[str], None] = lambda _: None,
        done: Callable[[Record], None] = lambda _: None,
    ) -> list[Record]:
        """Train and measure every row that is not finished; one record per row, in their order.

        With ``only``, train only these rows and those that they join. With ``costs``, each record
        has the costs of ``prediction``, too. ``done`` is called with each record. A row that fails
        has an ``error``, does not stop the others, and is tried again next time. With an
        ``engine``, rows are trained at the same time, and measured when all are trained.
        """
        chosen = self.bench.chosen(only)
        rows = [row for row in self.rows.values() if row.settings and row.name in chosen]
        if engine is not None:
            self._train_all([r for r in rows if not r.of and self._record(r) is None], engine, say)
        records: list[Record] = []
        for row in self.rows.values():
            record = self._record(row)
            if record is not None:
                say(f"{row.name}: measured before")
            elif row in rows:
                say(f"{row.name}: training and measuring")
                record = self._measure(row)
            if costs and row in rows and record and "error" not in record:
                record = self._price(row, record, costs, say)
            published = {"published": row.published, "source": row.source}
            whose = {"row": row.name, "corpus": self.data.name}
            records.append(whose | (record or {}) | published)
            add_gains(records, self.params.baseline)
            done(records[-1])
            lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
            write_file(self.folder / "results.jsonl", lines.encode(), exclusive=False)
        return records

    def _train_all(
        self, rows: Sequence[BenchRow], engine: Engine, say: Callable[[str], None]
    ) -> None:
        """Lets the workers of an engine train rows."""
        cache = self.folder.resolve() / "cache"
        with RunFolder(cache) as run, run.shared():
            refs = {}
            for row in rows:
                say(f"{row.name}: a worker trains it")
                gpu = bool(create_row(row).encoders())
                refs[row.name] = engine.call(train, self._arguments(row), cache, True, gpu=gpu)
            for name, ref in refs.items():
                try:
                    training = engine.get(ref)
                except LabelgroveError as error:  # the worker was lost
                    training = TrainedRow({}, str(error))
                sys.stderr.write(training.messages)
                self._trainings[name] = training

    def key(self, row: BenchRow) -> str:
        """A hash of everything that a row's record depends on."""
        members = [self.key(self.rows[name]) for name in row.of]
        shared = self.params.get_params() | {"baseline": None}
        parts = [self.files.digest, shared, row.settings, members, encoders_of(row)]
        return content_hash(VERSION, *parts)

    def _record(self, row: BenchRow) -> Record | None:
        """The finished record of a row with the same settings and data, or None."""
        if row.settings is None or not self._file(row).exists():
            return None  # without asking for its encoders, which --only may not need
        record = read_record(self._file(row), self.key(row))
        return None if record is None or "error" in record else record

    def _file(self, row: BenchRow) -> Path:
        return self.folder / "rows" / f"{row.slug}.json"

    def _model(self, row: BenchRow) -> Path:
        return self.folder / "models" / row.slug

    def _measure(self, row: BenchRow) -> Record:
        """Train the model of a row, or join those of other rows, and measure it."""
        record: Record = {"key": self.key(row), "data": self.files.digest}
        record["versions"] = library_versions()
        try:
            model, costs = self._joined(row) if row.of else self._trained(row)
            if self.device != "auto":
                model.use_device(self.device)
            record |= costs | self._measured(model)
        except LabelgroveError as error:
            record["error"] = str(error)
        return write_record(self._file(row), record)

    def _price(
        self, row: BenchRow, record: Record, costs: Costs, say: Callable[[str], None]
    ) -> Record:
        """The record of a trained row, with the costs of its prediction."""
        if record.get("costs") == asdict(costs):
            return record
        say(f"{row.name}: measuring the costs of prediction")
        try:
            model = load(self._model(row))
            prices = costs.record(model, self._corpus(self.files.test, model))
        except LabelgroveError as error:  # not stored: the row itself is measured
            return record | {"error": str(error)}
        return write_record(self._file(row), record | prices | {"costs": asdict(costs)})

    def _arguments(self, row: BenchRow) -> list[str]:
        """What ``labelgrove train`` is given for a row."""
        params, train_file = self.params, self.files.train.resolve()
        place = self.folder.resolve()
        config = place / "configs" / f"{row.slug}.toml"
        config.write_text(to_toml(row.settings or {}), encoding="utf-8")
        options = {
            "--config": config,
            "--out": place / "models" / row.slug,
            "--run": place / "cache",
            "--labels": params.labels and train_file.parent / params.labels,
            "--format": params.format,
            "--text-field": params.text_field,
            "--labels-field": params.labels_field,
        }
        command = ["train", train_file, "--json", "--force", "--no-estimate"]
        command += [part for flag, value in options.items() if value for part in (flag, value)]
        command += [part for name in params.fields for part in ("--field", name)]
        return [*map(str, command), *self.flags]

    def _trained(self, row: BenchRow) -> tuple[Model, Record]:
        training = self._trainings.pop(row.name, None)
        if training is None:
            training = train(self._arguments(row), self.folder / "cache")
        if training.error:
            raise LabelgroveError(training.error)
        return load(self._model(row)), training.costs

    def _joined(self, row: BenchRow) -> tuple[Model, Record]:
        members, records = [], []
        for member in (self.rows[name] for name in row.of):
            record = self._record(member)
            if record is None:
                raise LabelgroveError(f"its member {member.name} failed; see its error above")
            records.append(record)
            members.append(load(self._model(member)))
        model = create_row(row)
        model.members = members
        held_out = None
        if self.files.held_out is not None and model.rule == "learnt":
            widest = max(members, key=lambda member: member.facts_.given)
            held_out = self._corpus(self.files.held_out, widest)
        start = time.perf_counter()
        model.join(held_out)
        joining = time.perf_counter() - start
        model.save(self._model(row), overwrite=True)
        stages: dict[str, float] = {}
        for record in records:
            stages |= record["stages"]  # shared stages count once
        return model, {
            "stages": stages,
            "train_seconds": sum(stages.values()) + joining,
            "spent_seconds": joining,
            "model_bytes": sum(record["model_bytes"] for record in records),
            "peak_memory_bytes": max(record["peak_memory_bytes"] or 0 for record in records),
        }

    def _corpus(self, path: Path, model: Model) -> Corpus:
        """A corpus over the labels and the columns of a model; most rows have the same."""
        place = (path, model.facts_.given or None)
        if place not in self._corpora or self._corpora[place].index != model.index_:
            params = self.params
            options = ReadOptions(
                format=params.format or None,
                part="test",
                text_field=params.text_field,
                fields=params.fields or None,
                labels_field=params.labels_field,
                n_features=model.facts_.given or None,
            )
            self._corpora[place] = read_corpus(path, index=model.index_, options=options)
        return self._corpora[place]

    def _measured(self, model: Model) -> Record:
        params, corpus = self.params, self._corpus(self.files.test, model)
        milliseconds = latency(model, corpus, params.latency_documents)
        start = time.perf_counter()
        pairs = self.files.filter and read_filter_pairs(self.files.filter)
        k = Measures.of(list(METRICS), None).labels_needed(filtered=pairs is not None)
        predictions = model.predict(corpus, k=k, threads=0)
        seconds = time.perf_counter() - start
        options = {
            "propensity": Propensity(params.propensity_a, params.propensity_b),
            "intervals": params.intervals or None,
            "filter_pairs": pairs,
        }
        result = measure(model, predictions, corpus, METRICS, **options)
        return {
            "metrics": {name: round(100 * result[name], 4) for name in METRICS},
            "intervals": {
                name: [round(100 * bound, 4) for bound in pair]
                for name, pair in result.intervals.items()
            },
            "documents": len(corpus),
            "labels": len(model.index_),
            "documents_per_second": len(corpus) / max(seconds, 1e-9),
            "latency_ms": milliseconds,
            "machine": machine(),
        }


class TrainedRow(NamedTuple):
    """What a training cost, or why it failed, and the messages of one that a worker started."""

    costs: Record
    error: str = ""
    messages: str = ""


def train(arguments: Sequence[str], cache: Path, by_worker: bool = False) -> TrainedRow:
    """Trains a row in a process of its own.

    Its stages are those that it used in the run folder ``cache``, computed by it or by an earlier
    row.
    """
    log = cache / "log.jsonl"
    before = len(read_lines(log))
    code, output, messages, name = run_command(arguments, subprocess.PIPE if by_worker else None)
    events = read_lines(log)[before:]
    if by_worker:  # others may train at the same time
        events = [event for event in events if event.get("by") == name]
    if code:
        reasons = [event["why"] for event in events if event["kind"] == "run_failed"]
        reason = reasons[-1] if reasons else "see its messages above"
        return TrainedRow({}, f"labelgrove train ended with {code}: {reason}", messages)
    kinds = ("stage_reused", "stage_stored")
    used = {(event["stage"], event["key"]) for event in events if event["kind"] in kinds}
    stages = {
        f"{stage.name} {stage.key}": float(stage.seconds or 0.0)
        for stage in run_status(cache).stages
        if (stage.name, stage.key) in used
    }
    summary = json.loads(output)
    costs = {
        "stages": stages,
        "train_seconds": sum(stages.values()),
        "spent_seconds": summary["train_seconds"],
        "model_bytes": summary["model_bytes"],
        "peak_memory_bytes": summary["peak_memory_bytes"],
    }
    return TrainedRow(costs, messages=messages)


def run_command(arguments: Sequence[str], stderr: int | None) -> tuple[int, str, str, str]:
    """Runs labelgrove: its exit code, output, messages and the name of its process."""
    command = [sys.executable, "-m", "labelgrove", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        try:
            output, messages = process.communicate()
        except BaseException:
            process.kill()
            raise
    return process.returncode, output, messages or "", process_name(process.pid)


def encoders_of(row: BenchRow) -> list[EncoderContent]:
    """The encoders of a row by content, because files can change under the same name."""
    contents = []
    for encoder in create_row(row).encoders() if row.settings else []:
        with suppress(LabelgroveError):  # training the row reports a missing encoder
            encoder.folder()
            contents.append(EncoderContent(encoder))
    return contents


def price_models(
    models: Sequence[Path],
    data: Path,
    folder: Path,
    *,
    costs: Costs,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """The costs of trained models, measured on a corpus; one record per model.

    A record that ``folder`` has for the same model, corpus, version and ``costs`` is reused.
    """
    test = corpus_file(data, "", ("test", "dev"))
    digest = content_hash(*(file_hash(file) for file in source_files(test)))
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    records = []
    for path in models:
        manifest = read_manifest(path, kind="model")
        key = content_hash(VERSION, digest, str(path), manifest, asdict(costs))
        place = content_hash(str(path.resolve()), str(data.resolve()))[:8]  # names may be the same
        file = folder / "rows" / f"{BenchRow(f'{path.name} {data.name}').slug}-{place}.json"
        record = read_record(file, key)
        if record is None:
            say(f"{path.name}: measuring the costs of prediction")
            model = load(path)
            options = ReadOptions(part="test", n_features=model.facts_.given or None)
            corpus = read_corpus(test, index=model.index_, options=options)
            record = {"key": key, "row": path.name, "corpus": data.name, **model_costs(model, path)}
            record = write_record(file, record | costs.record(model, corpus))
        records.append(record)
        done(record)
    return records


def read_record(file: Path, key: str) -> Record | None:
    """The record in a file, if it has this key."""
    record = jsonio.parse(file.read_bytes(), file=file) if file.exists() else None
    return record if isinstance(record, dict) and record.get("key") == key else None


def write_record(file: Path, record: Record) -> Record:
    """Writes a record to its file and returns it."""
    write_file(file, jsonio.dump(record), exclusive=False)
    return record
