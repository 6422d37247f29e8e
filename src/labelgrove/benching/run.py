"""Several methods on one corpus, measured alike: what ``labelgrove bench`` does.

Each row of the table is trained by a process of its own, so that its memory can be told, and all
share one run folder of stages. A finished row is kept, and a repeated bench takes it as it is. In
the bench's folder::

    cache/              the run folder that rows share
    configs/ROW.toml    the settings of a row
    models/ROW/         its model
    rows/ROW.json       what was measured
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import labelgrove
from labelgrove.benching.config import Bench, BenchParams, Row, create_row
from labelgrove.benching.table import METRICS, add_gains
from labelgrove.disk import jsonio
from labelgrove.disk.atomic import write_file
from labelgrove.disk.bundle import library_versions
from labelgrove.disk.hashing import content_hash, file_hash
from labelgrove.errors import ConfigError, LabelgroveError
from labelgrove.formats.read import source_files
from labelgrove.nn.encoder_files import EncoderContent, EncoderParams, find_encoder
from labelgrove.params import to_toml

WARM_UP = 5  # documents before the clock runs


@dataclass(frozen=True)
class Files:
    """The corpora of a bench, and what stands for their content in a row's key."""

    train: Path
    test: Path
    held_out: Path | None
    digest: str

    @classmethod
    def of(cls, params: BenchParams, data: Path) -> Files:
        """Finds the files of a bench in the data folder."""
        train = _file(data, params.train, ("train",))
        test = _file(data, params.test, ("test", "dev"))
        held_out = _file(data, params.held_out, ()) if params.held_out else None
        paths = [path for path in (train, test, held_out) if path is not None]
        contents = [[file_hash(file) for file in source_files(path)] for path in paths]
        if held_out is not None and contents[2][:1] in (contents[0][:1], contents[1][:1]):
            raise ConfigError(
                f"held_out: {held_out} must hold other documents than rows are trained or measured "
                "on"
            )
        if params.labels:
            contents.append([file_hash(_file(data, params.labels, ()))])
        return cls(train, test, held_out, content_hash(contents))


def _file(data: Path, given: str, stems: Sequence[str]) -> Path:
    if given:
        if not (data / given).exists():
            raise ConfigError(f"{data / given}: no such file")
        return data / given
    for stem in stems:
        found = sorted(data.glob(f"{stem}.*"))
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(f"{data}: has several files {stem}.*; name one as {stems[0]} = ...")
    raise ConfigError(f"{data}: has no file {' or '.join(f'{stem}.*' for stem in stems)}")


def encoders_of(row: Row) -> list[EncoderContent]:
    """The encoders of a row, whose files may change under the same name.

    >>> encoders_of(Row("linear", {"method": "linear"}))
    []
    """
    if row.settings is None:
        return []
    model = create_row(row)
    readers = [one for one in (model, *getattr(model, "members", ())) if hasattr(one, "encoder")]
    wanted = [reader.encoder for reader in readers]
    for reader in readers:
        own = getattr(getattr(reader, "indexing", None), "text_encoder", None)
        if own is not None:  # reads the labels' names
            wanted.append(EncoderParams(**reader.encoder.get_params() | {"encoder": own}))
    found = []
    for encoder in wanted:
        with suppress(LabelgroveError):  # what is missing is told when the row is trained
            find_encoder(encoder.encoder)
            found.append(EncoderContent(encoder))
    return found


def run_bench(
    bench: Bench,
    data: Path,
    folder: Path,
    *,
    only: Sequence[str] = (),
    flags: Sequence[str] = (),
    settle: Callable[[Any], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Trains and measures every row that is not there yet; one record per row, in their order.

    ``only`` names the rows to train; others are shown if they are there. ``flags`` go to
    ``labelgrove train``; ``settle`` is called with a model before it is measured. A row that fails
    has an ``error``, does not stop the others, and is tried again next time.
    """
    names = [row.name for row in bench.rows]
    for name in only:
        if name not in names:
            raise ConfigError(f"--only {name}: no such row; there are {', '.join(names)}")
    files = Files.of(bench.params, data)
    place = _Place(bench, files, folder, tuple(flags))
    records = []
    for row in bench.rows:
        record = place.record(row)
        if record is None and row.settings is not None and (not only or row.name in only):
            say(f"{row.name}: training and measuring")
            record = place.measure(row, settle)
        elif record is not None:
            say(f"{row.name}: measured before")
        records.append({"row": row.name, **(record or {}), "published": row.published})
        add_gains(records, bench.params.baseline)
        lines = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records)
        write_file(folder / "results.jsonl", lines.encode(), exclusive=False)
    return records


class _Place:
    """A bench's folder: what is there already, and how the rest is made."""

    def __init__(self, bench: Bench, files: Files, folder: Path, flags: tuple[str, ...]) -> None:
        self.params, self.files, self.folder, self.flags = bench.params, files, folder, flags
        self.rows = {row.name: row for row in bench.rows}
        for name in ("configs", "models", "rows"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._corpora: dict[Path, Any] = {}

    def key(self, row: Row) -> str:
        """Stands for everything that a row's record depends on."""
        members = [self.key(self.rows[name]) for name in row.of]
        shared = self.params.get_params() | {"baseline": None}
        return content_hash(
            labelgrove.__version__,
            self.files.digest,
            shared,
            row.settings,
            members,
            encoders_of(row),
        )

    def record(self, row: Row) -> dict[str, Any] | None:
        """What was measured before with the same settings on the same data."""
        file = self.folder / "rows" / f"{row.slug}.json"
        if row.settings is None or not file.exists():
            return None
        record = jsonio.parse(file.read_bytes(), file=file)
        same = isinstance(record, dict) and record.get("key") == self.key(row)
        return record if same and "error" not in record else None

    def measure(self, row: Row, settle: Callable[[Any], None]) -> dict[str, Any]:
        """Trains a row's model, or joins those of other rows, and measures it."""
        record: dict[str, Any] = {
            "key": self.key(row),
            "data": self.files.digest,
            "versions": library_versions(),
        }
        try:
            model, costs = self._joined(row) if row.of else self._trained(row)
            settle(model)
            record |= costs | self._measured(model)
        except LabelgroveError as error:
            record["error"] = str(error)
        content = jsonio.dump(record)
        write_file(self.folder / "rows" / f"{row.slug}.json", content, exclusive=False)
        return record

    def _trained(self, row: Row) -> tuple[Any, dict[str, Any]]:
        assert row.settings is not None
        config = self.folder / "configs" / f"{row.slug}.toml"
        config.write_text(to_toml(row.settings), encoding="utf-8")
        out, cache = self.folder / "models" / row.slug, self.folder / "cache"
        log = cache / "log.jsonl"
        before = log.stat().st_size if log.exists() else 0
        reading = {
            "--labels": self.params.labels and str(self.files.train.parent / self.params.labels),
            "--format": self.params.format,
            "--text-field": self.params.text_field,
            "--labels-field": self.params.labels_field,
        }
        given = [part for flag, value in reading.items() if value for part in (flag, value)]
        command = [sys.executable, "-m", "labelgrove", "train", self.files.train, "--json"]
        command += ["--config", config, "--out", out, "--run", cache, "--force", "--no-estimate"]
        # What goes wrong is told on standard error, which is ours.
        done = subprocess.run(
            [*map(str, command), *given, *self.flags], stdout=subprocess.PIPE, check=False
        )
        if done.returncode:
            why = [e["why"] for e in _events(cache, before) if e["kind"] == "run_failed"]
            said = why[-1] if why else "what it said is above"
            raise LabelgroveError(f"labelgrove train ended with {done.returncode}: {said}")
        told = json.loads(done.stdout)
        stages = _stage_seconds(cache, before)
        costs = {
            "stages": stages,
            "train_seconds": sum(stages.values()),
            "spent_seconds": told["train_seconds"],
            "model_bytes": told["model_bytes"],
            "peak_memory_bytes": told["peak_memory_bytes"],
        }
        return labelgrove.load(out), costs

    def _joined(self, row: Row) -> tuple[Any, dict[str, Any]]:
        members, records = [], []
        for name in row.of:
            record = self.record(self.rows[name])
            if record is None:
                raise LabelgroveError(
                    f"its member {name} has not been trained: name it with --only, too, or see why "
                    "it failed"
                )
            records.append(record)
            members.append(labelgrove.load(self.folder / "models" / self.rows[name].slug))
        model = create_row(row)
        model.members = members
        held_out = None
        if self.files.held_out is not None:
            held_out = self._corpus(self.files.held_out, members[0].index_)
        start = time.perf_counter()
        model.join(held_out if model.rule == "learnt" else None)
        joining = time.perf_counter() - start
        model.save(self.folder / "models" / row.slug, overwrite=True)
        stages: dict[str, float] = {}
        for record in records:
            stages |= record["stages"]  # what members share counts once
        costs = {
            "stages": stages,
            "train_seconds": sum(stages.values()) + joining,
            "spent_seconds": joining,
            "model_bytes": sum(record["model_bytes"] for record in records),
            "peak_memory_bytes": max(record["peak_memory_bytes"] or 0 for record in records),
        }
        return model, costs

    def _corpus(self, path: Path, index: Any) -> Any:
        """A corpus over the labels of the models; all rows have the same, so it is read once."""
        from labelgrove.formats import ReadOptions, read_corpus

        if path not in self._corpora or self._corpora[path].index != index:
            params = self.params
            options = ReadOptions(
                format=params.format or None,
                part="test",
                text_field=params.text_field,
                labels_field=params.labels_field,
            )
            self._corpora[path] = read_corpus(path, index=index, options=options)
        return self._corpora[path]

    def _measured(self, model: Any) -> dict[str, Any]:
        from labelgrove.metrics import Propensity, evaluate

        corpus = self._corpus(self.files.test, model.index_)
        alone = latency(model, corpus, self.params.latency_documents)
        start = time.perf_counter()
        predictions = model.predict(corpus, k=5, threads=0)
        seconds = time.perf_counter() - start
        found = evaluate(
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
            "metrics": {name: round(100 * found[name], 4) for name in METRICS},
            "intervals": {
                name: [round(100 * bound, 4) for bound in pair]
                for name, pair in found.intervals.items()
            },
            "documents": len(corpus),
            "labels": len(model.index_),
            "documents_per_second": len(corpus) / max(seconds, 1e-9),
            "latency_ms": alone,
            "machine": _machine(),
        }


def _machine() -> dict[str, Any]:
    torch = sys.modules.get("torch")  # whoever used a GPU has imported it
    gpu = torch is not None and torch.cuda.is_available()
    return {
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch is not None and gpu else None,
    }


def latency(model: Any, corpus: Any, documents: int) -> dict[str, float]:
    """Milliseconds from one document to its labels by one thread: median and 99th percentile.

    >>> from labelgrove import Corpus, Linear
    >>> corpus = Corpus.from_lists(["red", "blue"], [["a"], ["b"]])
    >>> sorted(latency(Linear().fit(corpus), corpus, 9))
    ['p50', 'p99']
    """
    import numpy as np

    taken = []
    for number in range(min(documents, len(corpus)) + WARM_UP):
        one = corpus.inputs[number % len(corpus)] if corpus.texts is not None else None
        row = [one] if one is not None else corpus.features.take([number % len(corpus)])
        start = time.perf_counter()
        model.predict(row, k=5, threads=1)
        taken.append(1000 * (time.perf_counter() - start))
    middle, late = np.percentile(taken[WARM_UP:], [50, 99])
    return {"p50": round(float(middle), 4), "p99": round(float(late), 4)}


def _stage_seconds(cache: Path, before: int) -> dict[str, float]:
    """Seconds of all stages that the last run used, those that an earlier row had computed too."""
    from labelgrove.runs import run_status

    used = {
        (event["stage"], event["key"])
        for event in _events(cache, before)
        if event["kind"] in ("stage_reused", "stage_stored")
    }
    stages = [s for s in run_status(cache).stages if (s.name, s.key) in used]
    return {f"{stage.name} {stage.key}": float(stage.seconds or 0.0) for stage in stages}


def _events(cache: Path, before: int) -> list[dict[str, Any]]:
    """What a run folder's log has beyond so many bytes."""
    log = cache / "log.jsonl"
    if not log.exists():
        return []
    with log.open("rb") as lines:
        lines.seek(before)
        return [json.loads(line) for line in lines]
