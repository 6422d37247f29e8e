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
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labelgrove.core import jsonio
from labelgrove.core.params import to_toml
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.read import source_files
from labelgrove.disk.atomic import write_file
from labelgrove.disk.bundle import library_versions, read_manifest
from labelgrove.disk.hashing import content_hash, file_hash
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref
from labelgrove.errors import ConfigError, LabelgroveError
from labelgrove.exchange.loading import load
from labelgrove.experiments.bench.config import Bench, Row, create_row
from labelgrove.experiments.bench.costs import Costs, model_costs, training_story
from labelgrove.experiments.bench.files import Files, corpus_file
from labelgrove.experiments.bench.table import METRICS, add_gains
from labelgrove.experiments.bench.training import (
    Training,
    events_in,
    stage_seconds,
    train,
    train_elsewhere,
)
from labelgrove.methods.base import Model
from labelgrove.nn.encoders.files import EncoderContent

WARM_UP = 5  # documents predicted before the measurement


def encoders_of(row: Row) -> list[EncoderContent]:
    """The encoders of a row by content, because files can change under the same name."""
    if row.settings is None:
        return []
    contents = []
    for encoder in create_row(row).encoders():
        with suppress(LabelgroveError):  # training the row reports a missing encoder
            encoder.folder()
            contents.append(EncoderContent(encoder))
    return contents


def run_bench(
    bench: Bench,
    data: Path,
    folder: Path,
    *,
    only: Sequence[str] = (),
    flags: Sequence[str] = (),
    costs: Costs | None = None,
    engine: Engine | None = None,
    settle: Callable[[Model], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Train and measure every row that is not finished; one record per row, in their order.

    With ``only``, train only these rows and those that they join. ``flags`` go to ``labelgrove
    train``. With ``costs``, each record has the costs of ``prediction``, too. ``settle`` is called
    with a model before it is measured, ``done`` with each record. A row that fails has an
    ``error``, does not stop the others, and is tried again next time. With an ``engine``, rows are
    trained at the same time, and measured when all are trained.
    """
    names = [row.name for row in bench.rows]
    for name in only:
        if name not in names:
            raise ConfigError(f"--only {name}: no such row; there are {', '.join(names)}")
    chosen = _with_members(bench.rows, only or names)
    files = Files.of(bench.params, data)
    place = _Place(bench, files, folder, tuple(flags))
    if engine is not None:
        wanted = [row for row in bench.rows if row.settings is not None and row.name in chosen]
        new = [row for row in wanted if not row.of and place.record(row) is None]
        place.train_all(new, engine, say)
    records = []
    for row in bench.rows:
        record = place.record(row)
        asked = row.settings is not None and row.name in chosen
        if record is None and asked:
            say(f"{row.name}: training and measuring")
            record = place.measure(row, settle)
        elif record is not None:
            say(f"{row.name}: measured before")
        priced = record is not None and costs is not None and record.get("costs") == asdict(costs)
        if costs is not None and asked and record and "error" not in record and not priced:
            say(f"{row.name}: measuring the costs of prediction")
            record = place.price(row, record, costs)
        whose = {"row": row.name, "corpus": data.name}
        published = {"published": row.published, "source": row.source}
        records.append(whose | (record or {}) | published)
        add_gains(records, bench.params.baseline)
        done(records[-1])
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
        write_file(folder / "results.jsonl", lines.encode(), exclusive=False)
    return records


def _with_members(rows: Sequence[Row], names: Sequence[str]) -> set[str]:
    """The named rows, and all rows that they join."""
    chosen = set(names)
    for row in reversed(rows):  # members are above
        if row.name in chosen:
            chosen.update(row.of)
    return chosen


def price_models(
    models: Sequence[Path],
    data: Path,
    folder: Path,
    *,
    costs: Costs,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The costs of trained models, measured on a corpus; one record per model.

    A record that ``folder`` has for the same model, corpus, version and ``costs`` is reused.
    """
    from labelgrove.data.formats import ReadOptions, read_corpus

    test = corpus_file(data, "", ("test", "dev"))
    digest = content_hash(*(file_hash(file) for file in source_files(test)))
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    records = []
    for path in models:
        name = path.name
        manifest = read_manifest(path, kind="model")
        key = content_hash(VERSION, digest, str(path), manifest, asdict(costs))
        place = content_hash(str(path.resolve()), str(data.resolve()))[:8]  # names may be the same
        file = folder / "rows" / f"{Row(f'{name} {data.name}').slug}-{place}.json"
        record = jsonio.parse(file.read_bytes(), file=file) if file.exists() else {}
        if not isinstance(record, dict) or record.get("key") != key:
            say(f"{name}: measuring the costs of prediction")
            model = load(path)
            options = ReadOptions(part="test", n_features=model.facts_.given or None)
            corpus = read_corpus(test, index=model.index_, options=options)
            record = {"key": key, "row": name, "corpus": data.name, **model_costs(model, path)}
            record |= {"story": training_story(model), "prediction": costs.of(model, corpus)}
            record["machine"] = _machine()
            write_file(file, jsonio.dump(record), exclusive=False)
        records.append(record)
        done(record)
    return records


class _Place:
    """The folder of a bench."""

    def __init__(self, bench: Bench, files: Files, folder: Path, flags: tuple[str, ...]) -> None:
        self.params, self.files, self.folder, self.flags = bench.params, files, folder, flags
        self.rows = {row.name: row for row in bench.rows}
        for name in ("configs", "models", "rows"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._corpora: dict[tuple[Path, int | None], Corpus] = {}
        self._trainings: dict[str, Training | LabelgroveError] = {}  # ended, by the rows' names

    def train_all(self, rows: Sequence[Row], engine: Engine, say: Callable[[str], None]) -> None:
        """Lets the workers of an engine train rows."""
        cache = self.folder / "cache"
        before = len(events_in(cache))
        with RunFolder(cache) as run, run.shared():
            begun: dict[str, Ref] = {}
            for row in rows:
                say(f"{row.name}: a worker trains it")
                gpu = bool(create_row(row).encoders())
                begun[row.name] = engine.call(train_elsewhere, self._arguments(row), gpu=gpu)
            for name, ref in begun.items():
                try:
                    training: Training = engine.get(ref)
                except LabelgroveError as error:  # the worker was lost
                    self._trainings[name] = error
                    continue
                sys.stderr.write(training.messages)
                own = [e for e in events_in(cache)[before:] if e.get("by") == training.process]
                self._trainings[name] = training._replace(events=own)

    def key(self, row: Row) -> str:
        """A hash of everything that a row's record depends on."""
        members = [self.key(self.rows[name]) for name in row.of]
        shared = self.params.get_params() | {"baseline": None}
        parts = [self.files.digest, shared, row.settings, members, encoders_of(row)]
        return content_hash(VERSION, *parts)

    def record(self, row: Row) -> dict[str, Any] | None:
        """The finished record of a row with the same settings and data, or None."""
        file = self.folder / "rows" / f"{row.slug}.json"
        if row.settings is None or not file.exists():
            return None
        record = jsonio.parse(file.read_bytes(), file=file)
        same = isinstance(record, dict) and record.get("key") == self.key(row)
        return record if same and "error" not in record else None

    def measure(self, row: Row, settle: Callable[[Model], None]) -> dict[str, Any]:
        """Train the model of a row, or join those of other rows, and measure it."""
        record: dict[str, Any] = {"key": self.key(row), "data": self.files.digest}
        record["versions"] = library_versions()
        try:
            model, costs = self._joined(row) if row.of else self._trained(row)
            settle(model)
            record |= costs | self._measured(model)
        except LabelgroveError as error:
            record["error"] = str(error)
        return self._store(row, record)

    def price(self, row: Row, record: dict[str, Any], costs: Costs) -> dict[str, Any]:
        """The record of a trained row, with the costs of its prediction."""
        try:
            model = load(self.folder / "models" / row.slug)
            prediction = costs.of(model, self._corpus(self.files.test, model))
        except LabelgroveError as error:  # not stored: the row itself is measured
            return record | {"error": str(error)}
        extra = {"story": training_story(model), "prediction": prediction, "machine": _machine()}
        return self._store(row, record | extra | {"costs": asdict(costs)})

    def _store(self, row: Row, record: dict[str, Any]) -> dict[str, Any]:
        content = jsonio.dump(record)
        write_file(self.folder / "rows" / f"{row.slug}.json", content, exclusive=False)
        return record

    def _arguments(self, row: Row) -> list[str]:
        """What ``labelgrove train`` is given for a row."""
        assert row.settings is not None
        place = self.folder.resolve()
        config = place / "configs" / f"{row.slug}.toml"
        config.write_text(to_toml(row.settings), encoding="utf-8")
        out, cache = place / "models" / row.slug, place / "cache"
        params, train = self.params, self.files.train.resolve()
        reading = {
            "--labels": params.labels and train.parent / params.labels,
            "--format": params.format,
            "--text-field": params.text_field,
            "--labels-field": params.labels_field,
        }
        command = ["train", train, "--json", "--config", config, "--out", out, "--run", cache]
        command += ["--force", "--no-estimate"]
        command += [part for flag, value in reading.items() if value for part in (flag, value)]
        command += [part for name in params.fields for part in ("--field", name)]
        return [*map(str, command), *self.flags]

    def _trained(self, row: Row) -> tuple[Model, dict[str, Any]]:
        out, cache = self.folder / "models" / row.slug, self.folder / "cache"
        training = self._trainings.pop(row.name, None)
        if isinstance(training, LabelgroveError):
            raise training
        if training is None:
            before = len(events_in(cache))
            training = train(self._arguments(row), stderr=None)
            training = training._replace(events=events_in(cache)[before:])
        if training.code:
            reasons = [event["why"] for event in training.events if event["kind"] == "run_failed"]
            reason = reasons[-1] if reasons else "see its messages above"
            raise LabelgroveError(f"labelgrove train ended with {training.code}: {reason}")
        summary = json.loads(training.output)
        stages = stage_seconds(cache, training.events)
        return load(out), {
            "stages": stages,
            "train_seconds": sum(stages.values()),
            "spent_seconds": summary["train_seconds"],
            "model_bytes": summary["model_bytes"],
            "peak_memory_bytes": summary["peak_memory_bytes"],
        }

    def _joined(self, row: Row) -> tuple[Model, dict[str, Any]]:
        members, records = [], []
        for name in row.of:
            record = self.record(self.rows[name])
            if record is None:
                raise LabelgroveError(f"its member {name} failed; see its error above")
            records.append(record)
            members.append(load(self.folder / "models" / self.rows[name].slug))
        model = create_row(row)
        model.members = members
        held_out = None
        if self.files.held_out is not None:
            held_out = self._corpus(
                self.files.held_out, max(members, key=lambda member: member.facts_.given)
            )
        start = time.perf_counter()
        model.join(held_out if model.rule == "learnt" else None)
        joining = time.perf_counter() - start
        model.save(self.folder / "models" / row.slug, overwrite=True)
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
        from labelgrove.data.formats import ReadOptions, read_corpus

        index, columns = model.index_, model.facts_.given or None
        place = (path, columns)
        if place not in self._corpora or self._corpora[place].index != index:
            params = self.params
            options = ReadOptions(
                format=params.format or None,
                part="test",
                text_field=params.text_field,
                fields=params.fields or None,
                labels_field=params.labels_field,
                n_features=columns,
            )
            self._corpora[place] = read_corpus(path, index=index, options=options)
        return self._corpora[place]

    def _measured(self, model: Model) -> dict[str, Any]:
        from labelgrove.evaluation.metrics import Propensity, evaluate

        corpus = self._corpus(self.files.test, model)
        milliseconds = latency(model, corpus, self.params.latency_documents)
        start = time.perf_counter()
        predictions = model.predict(corpus, k=5, threads=0)
        seconds = time.perf_counter() - start
        result = evaluate(
            predictions,
            corpus.labels,
            unknown=corpus.unknown,
            metrics=METRICS,
            train_frequencies=model.facts_.frequencies,
            n_train=model.facts_.documents,
            propensity=Propensity(self.params.propensity_a, self.params.propensity_b),
            intervals=self.params.intervals or None,
        )
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
            "machine": _machine(),
        }


def _machine() -> dict[str, Any]:
    torch = sys.modules.get("torch")  # imported if a GPU was used
    gpu = torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    return {"cores": os.cpu_count(), "gpu": gpu}


def latency(model: Model, corpus: Corpus, documents: int) -> dict[str, float]:
    """Milliseconds per document with one thread: median and 99th percentile."""
    import numpy as np

    from labelgrove.data.inputs import documents_of

    milliseconds = []
    for number in range(min(documents, len(corpus)) + WARM_UP):
        row = documents_of(corpus.take([number % len(corpus)])).plain
        start = time.perf_counter()
        model.predict(row, k=5, threads=1)
        milliseconds.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(milliseconds[WARM_UP:], [50, 99])
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4)}
