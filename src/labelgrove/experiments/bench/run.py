"""Train and measure several methods on one corpus: what ``labelgrove bench`` does.

Each row is trained in its own process, so that its memory can be measured. All rows share one run
folder. A repeated bench reuses finished rows. In the bench's folder::

    cache/              the run folder that rows share
    configs/ROW.toml    the settings of a row
    models/ROW/         its model
    rows/ROW.json       its measurements
    results.jsonl       all rows, one line each
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from labelgrove.core import jsonio
from labelgrove.core.params import Settings, to_toml
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats import ReadOptions, read_corpus, read_filter_pairs
from labelgrove.data.inputs import documents_of
from labelgrove.disk.atomic import replace_file
from labelgrove.disk.bundle import library_versions
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import run_status
from labelgrove.errors import LabelgroveError
from labelgrove.evaluation.measures import Measures
from labelgrove.evaluation.metrics import Propensity
from labelgrove.exchange.loading import load
from labelgrove.experiments.attempts import measure, read_lines
from labelgrove.experiments.bench.config import (
    METRICS,
    Bench,
    BenchRow,
    Files,
    Record,
    add_gains,
    create_row,
)
from labelgrove.methods.base import Model
from labelgrove.nn.encoders.files import EncoderContent

WARM_UP = 5  # calls


class BenchFolder:
    """A bench on the corpora in ``data``; ``flags`` go to ``labelgrove train``."""

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

    def run(
        self, *, only: Sequence[str] = (), say: Callable[[str], None] = lambda _: None
    ) -> list[Record]:
        """Train and measure every row that is not finished; one record per row, in their order.

        With ``only``, train only these rows and those that they join. A row that fails has
        an ``error``, does not stop the others, and is tried again next time.
        """
        chosen = self.bench.chosen(only)
        rows = [row for row in self.rows.values() if row.settings and row.name in chosen]
        records: list[Record] = []
        for row in self.rows.values():
            record = self._record(row)
            if record is not None:
                say(f"{row.name}: measured before")
            elif row in rows:
                say(f"{row.name}: training and measuring")
                record = self._measure(row)
            published = {"published": row.published, "source": row.source}
            whose = {"row": row.name, "corpus": self.data.name}
            records.append(whose | (record or {}) | published)
            add_gains(records, self.params.baseline)
            lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
            replace_file(self.folder / "results.jsonl", lines.encode())
        return records

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
        """Train the model of a row, and measure it."""
        record: Record = {"key": self.key(row), "data": self.files.digest}
        record["versions"] = library_versions()
        try:
            model, costs = self._trained(row)
            if self.device != "auto":
                model.use_device(self.device)
            record |= costs | self._measured(model)
        except LabelgroveError as error:
            record["error"] = str(error)
        replace_file(self._file(row), jsonio.dump(record))
        return record

    def _settings(self, row: BenchRow) -> Settings:
        """The settings of a row; an ensemble of rows has these as members."""
        members = [self._settings(self.rows[name]) for name in row.of]
        return (row.settings or {}) | ({"members": members} if members else {})

    def _arguments(self, row: BenchRow) -> list[str]:
        """What ``labelgrove train`` is given for a row."""
        params, train_file = self.params, self.files.train.resolve()
        place = self.folder.resolve()
        config = place / "configs" / f"{row.slug}.toml"
        config.write_text(to_toml(self._settings(row)), encoding="utf-8")
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
        """The model that a process of its own trains, and what that cost.

        Its stages are those that it used, computed by it or by an earlier row.
        """
        cache = self.folder / "cache"
        log = cache / "log.jsonl"
        before = len(read_lines(log))
        command = [sys.executable, "-m", "labelgrove", *self._arguments(row)]
        process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        events = read_lines(log)[before:]
        if process.returncode:
            reasons = [event["why"] for event in events if event["kind"] == "run_failed"]
            reason = reasons[-1] if reasons else "see its messages above"
            raise LabelgroveError(f"labelgrove train ended with {process.returncode}: {reason}")
        kinds = ("stage_reused", "stage_stored")
        used = {(event["stage"], event["key"]) for event in events if event["kind"] in kinds}
        stages = {
            f"{stage.name} {stage.key}": float(stage.seconds or 0.0)
            for stage in run_status(cache).stages
            if (stage.name, stage.key) in used
        }
        summary = json.loads(process.stdout)
        return load(self._model(row)), {
            "stages": stages,
            "train_seconds": sum(stages.values()),
            "spent_seconds": summary["train_seconds"],
            "model_bytes": summary["model_bytes"],
            "peak_memory_bytes": summary["peak_memory_bytes"],
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


def latency(model: Model, corpus: Corpus, documents: int) -> dict[str, float]:
    """Milliseconds per document with one thread: median and 99th percentile."""
    milliseconds = []
    for number in range(min(documents, len(corpus)) + WARM_UP):
        document = documents_of(corpus.take([number % len(corpus)])).plain
        start = time.perf_counter()
        model.predict(document, k=5, threads=1)
        milliseconds.append(1000 * (time.perf_counter() - start))
    p50, p99 = np.percentile(milliseconds[WARM_UP:], [50, 99])
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4)}


def machine() -> Record:
    """The cores, and the GPU if torch was imported to use it."""
    torch = sys.modules.get("torch")
    gpu = torch.cuda.get_device_name() if torch and torch.cuda.is_available() else None
    return {"cores": os.cpu_count(), "gpu": gpu}


def encoders_of(row: BenchRow) -> list[EncoderContent]:
    """The encoders of a row by content, because files can change under the same name."""
    contents = []
    for encoder in create_row(row).encoders() if row.settings else []:
        with suppress(LabelgroveError):  # training the row reports a missing encoder
            encoder.folder()
            contents.append(EncoderContent(encoder))
    return contents


def read_record(file: Path, key: str) -> Record | None:
    """The record in a file, if it has this key."""
    record = jsonio.parse(file.read_bytes(), file=file) if file.exists() else None
    return record if isinstance(record, dict) and record.get("key") == key else None
