"""The model behind the service: loads it, asks it, and replaces it when its folder changes.

A request keeps the model it began with, so no request is lost; the old model goes with its last
request. Arrays are mapped from files that all processes share: a private copy of the model folder,
or the folder itself (see ``copies.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from labelgrove.data.corpus import Corpus
from labelgrove.disk.bundle import MANIFEST, read_manifest
from labelgrove.errors import ConfigError, LabelgroveError, ModelFormatError
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.prediction_files import SCORE_DIGITS
from labelgrove.evaluation.predictions import COMPARED, Predictions
from labelgrove.exchange.card import without_paths
from labelgrove.exchange.loading import load
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.base import Model
from labelgrove.methods.explaining import explain as explaining
from labelgrove.methods.held_out import held_out_metrics
from labelgrove.serve.copies import Copies, OpenFiles
from labelgrove.serve.examples import card_examples
from labelgrove.serve.metrics import ModelMetrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.search import LabelSearch
from labelgrove.serve.trees import TreeWalk

log = logging.getLogger(__name__)
_LARGEST = 3.4e38
# Cached masks of allow and deny lists: at most this many, and at most this many bytes.
_MASKS, _MASK_BYTES = 32, 64 << 20


@dataclass(frozen=True)
class Options:
    """The fields of a request besides its texts; requests with equal options can share a batch."""

    k: int
    threshold: float | Literal["auto"] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    explain: bool = False


@dataclass(frozen=True)
class Answering:
    """The model that gave an answer, and the kind of its scores."""

    model: str
    score_kind: str


class LabelRow(list[dict[str, Any]]):
    """The labels of one text; ``unknown`` if no word of the text made a difference to them."""

    unknown = False


class Served:
    """A loaded model with what the service needs to know about it."""

    def __init__(self, model: Model, manifest: dict[str, Any], *, threads: int | None) -> None:
        self.model = model
        self.id = str(manifest["checksum"])[-12:]
        self.method = str(manifest["method"])
        self.manifest = manifest
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self._threads = threads
        self.supports = {"allow": True, "deny": True}
        self.score_kind = "product"
        self._of_silence: Predictions | None = None  # the best labels of an empty text
        self.files: OpenFiles | None = None  # if they are mapped in place
        self.copy: Path | None = None
        self.examples: list[str] = []  # texts to try
        self.documents: Corpus | None = None  # explanations name similar ones among these
        self._search_lock = threading.Lock()
        kept = _MASK_BYTES // (16 * max(1, len(model.index_)))
        self._mask = lru_cache(min(_MASKS, 1 + kept))(partial(_mask, model))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        copies: Copies | None = None,
    ) -> Served:
        """Loads a model folder and warms the model up; refuses a model that cannot read texts."""
        manifest = read_manifest(path, kind="model")
        copy = None if copies is None else copies.make(Path(path), manifest)
        examples = card_examples(Path(path))
        if copies is None or copy is None:
            files = OpenFiles(Path(path), manifest["files"])
            served = cls._loaded(path, manifest, device=device, threads=threads)
            served.files, served.examples = files, examples
            return served
        try:
            served = cls._loaded(copy, manifest, device=device, threads=threads)
        except (ConfigError, ModelFormatError) as error:
            copies.remove(copy)
            # The user knows only the folder.
            raise type(error)(str(error).replace(str(copy), str(path))) from error
        except BaseException:
            copies.remove(copy)
            raise
        served.copy, served.examples = copy, examples
        return served

    @classmethod
    def _loaded(
        cls, path: str | Path, manifest: dict[str, Any], *, device: str, threads: int | None
    ) -> Served:
        model = load(path)
        facts = model.facts_
        # Methods that do not read dense rows make the vectors of a text by themselves.
        if not facts.from_text or facts.given or ("dense" in model.takes and facts.width):
            raise ConfigError(
                f"{path}: the model was trained on features, but the service has only texts; train "
                "it on texts alone (features=own, without dense rows)"
            )
        if device != "auto":
            model.use_device(device)
        served = cls(model, manifest, threads=threads)
        # An empty text, which also wakes the model up.
        served._of_silence = served._predict(Options(COMPARED), [""])
        served.score_kind = served._of_silence.score_kind
        return served

    def answer(self, options: Options, texts: list[str]) -> tuple[Answering, list[Any]]:
        """The labels of each text as the service shows them; the batcher calls this."""
        self.check_files()
        predictions = self._predict(options, texts)
        rows = labelled(predictions)
        self._mark_unknown(options, predictions, rows)
        if options.explain:
            self._add_reasons(texts, rows)
        self.check_files()  # again: an answer from half a file would look like any other
        return Answering(self.id, predictions.score_kind), rows

    def _predict(self, options: Options, texts: list[str]) -> Predictions:
        given: dict[str, Any] = {}
        if options.allow is not None or options.deny is not None:
            given["allow"] = self._mask(options.allow, options.deny)
        least = options.threshold
        if least == "auto":
            if self.model.calibration_ is None:
                detail = "threshold: auto needs a calibrated model; see labelgrove calibrate"
                raise Problem("not-supported", detail)
            given["threshold"] = least
        elif least is not None:
            # Scores have single precision; a threshold beyond its range must stay a number.
            least = max(-_LARGEST, min(_LARGEST, least))
            given["threshold"] = least
        return self.model.predict(texts, k=options.k, threads=self._threads, **given)

    def _mark_unknown(
        self, options: Options, predictions: Predictions, rows: list[LabelRow]
    ) -> None:
        """Marks texts that get the labels of an empty text; looking all words up would be slow.

        Among few labels, or those above a threshold, texts with known words may look the same.
        """
        if (options.threshold, options.allow, options.deny) == (None, None, None):
            assert self._of_silence is not None
            for row, same in zip(rows, predictions.same_as(self._of_silence), strict=True):
                row.unknown = bool(same)

    def check_files(self) -> None:
        """Raises a Problem if somebody has written to the files that are mapped."""
        if self.changed:
            raise Problem(
                "model-changed",
                "the model's files were overwritten while it was served; "
                "save the model again as a whole, or restart the service",
            )

    @property
    def changed(self) -> bool:
        """Whether the files are no longer those that were loaded."""
        return self.files is not None and self.files.changed()

    def _add_reasons(self, texts: list[str], rows: Sequence[list[dict[str, Any]]]) -> None:
        for text, row in zip(texts, rows, strict=True):
            for label in row:
                why = explaining.explain(self.model, text, label["id"], corpus=self.documents)
                label["why"] = why.to_dict()

    def facts(self) -> dict[str, Any]:
        """The answer to GET /v1/model."""
        self.check_files()
        fields = self.model.facts_.fields
        return {
            "id": self.id,
            "method": self.method,
            "labels": len(self.model.index_),
            "groups": sorted(self.model.index_.groups),
            "training_documents": self.model.facts_.documents,
            "created": self.manifest.get("created"),
            "loaded": self.loaded,
            "versions": self.manifest.get("versions") or {},
            "params": without_paths(self.manifest.get("params") or {}),
            "supports": self.supports,
            "score_kind": self.score_kind,
            "examples": self.examples,
            "calibration": _calibration_facts(self.model.calibration_),
            "fields": None if fields is None else fields.to_dict(),
            "trees": list(self._trees),
            "held_out": held_out_metrics(self.model.report_),
            "dev": self.model.dev_metrics_ or {},
            "training_seconds": {
                stage: round(timing.wall, 3) for stage, timing in self.model.timings_.items()
            },
        }

    def find_labels(self, query: str, limit: int) -> list[dict[str, Any]]:
        """The answer to GET /v1/labels."""
        self.check_files()
        index, counts = self.model.index_, self._frequencies
        with self._search_lock:  # the first search builds what the others use
            search = self._search
        return [
            {
                "id": index.ids[column],
                "name": index.names[column],
                "training_documents": int(counts[column]),
            }
            for column in search.find(query, limit=limit).tolist()
        ]

    def tree_page(self, tree: int, node: str, **which: Any) -> dict[str, Any]:
        """The answer to GET /v1/tree."""
        self.check_files()
        if tree >= len(self._trees):
            has = f"has {len(self._trees)}" if self._trees else "has no label tree"
            detail = f"tree: there is no tree {tree}; this {self.method} model {has}"
            raise Problem("no-tree", detail)
        walk = list(self._trees.values())[tree]
        return {"model": self.id, "tree": tree} | walk.page(node, **which)

    @cached_property
    def _trees(self) -> dict[str, TreeWalk]:
        return {
            name: TreeWalk(tree, self.model.index_, self._frequencies)
            for name, tree in self.model.trees().items()
        }

    @property
    def _frequencies(self) -> Any:
        return self.model.facts_.frequencies

    @cached_property
    def _search(self) -> LabelSearch:
        return LabelSearch(self.model.index_, self._frequencies)


def _calibration_facts(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "kind": calibration.kind,
        "threshold": float(calibration.threshold),
        "report": calibration.report,
    }


def _mask(model: Model, allow: Any, deny: Any) -> LabelMask | None:
    return LabelMask.of(model.index_, allow, deny)


def labelled(predictions: Predictions) -> list[LabelRow]:
    """Predictions as lists of id, name and score."""
    return [
        LabelRow({"id": x.id, "name": x.name, "score": round(x.score, SCORE_DIGITS)} for x in row)
        for row in predictions
    ]


class ModelFolder:
    """The current model of a folder; ``watch`` loads new ones.

    ``train`` is a corpus file: explanations name its documents that are most similar to a text.
    With ``copies`` the model is loaded from a private copy of the folder.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        train: str | Path | None = None,
        copies: Copies | None = None,
    ) -> None:
        self._path = Path(path)
        self._copies = copies
        self._how: dict[str, Any] = {"device": device, "threads": threads, "copies": copies}
        self._seen = self._signature()
        self._failed: list[tuple[Any, ...]] | None = None  # the files that could not be loaded
        self.current = Served.load(self._path, **self._how)
        if train is not None:
            from labelgrove.data.formats import ReadOptions, read_corpus

            model, options = self.current.model, ReadOptions()
            if (names := model.facts_.fields) is not None:
                options = ReadOptions(text_field=names.texts, fields=names.fields)
            self.current.documents = read_corpus(train, index=model.index_, options=options)

    async def watch(self, seconds: float, metrics: ModelMetrics) -> None:
        """Looks for a new model every ``seconds`` (0: never); keeps the old one if that fails."""
        while seconds:
            await asyncio.sleep(seconds)
            signature = self._signature()
            # Files that are copied one after another: the manifest may come before the others.
            files = self._file_states() if self._failed or self.current.changed else None
            if signature is None or (signature == self._seen and files == self._failed):
                continue
            # Set before loading: if the folder changes meanwhile, the next check sees it.
            self._seen = signature
            started = time.perf_counter()
            try:
                files = files or self._file_states()
                loaded = await asyncio.to_thread(Served.load, self._path, **self._how)
            except Exception as error:
                self._failed = files
                metrics.failed.inc()
                # Our own errors say everything in a sentence.
                trace = None if isinstance(error, LabelgroveError) else error
                message = "cannot load the new model, keeping the old one: %s"
                log.error(f"%s: {message}", self._path, error, exc_info=trace)
                continue
            self._failed = None
            loaded.documents = self.current.documents
            before, self.current = self.current, loaded
            if self._copies is not None and before.copy not in (None, loaded.copy):
                await asyncio.to_thread(self._copies.remove, before.copy)
            metrics.loaded.inc()
            took = time.perf_counter() - started
            log.info("%s: model %s loaded in %.2f s", self._path, loaded.id, took)

    def _file_states(self) -> list[tuple[Any, ...]]:
        states = []
        for name in sorted(self._path.rglob("*")):
            with contextlib.suppress(OSError):
                status = name.stat()
                states.append((str(name), status.st_mtime_ns, status.st_ino, status.st_size))
        return states

    def _signature(self) -> tuple[int, ...] | None:
        # Folders are replaced as a whole, and the manifest has the checksums of all files.
        with contextlib.suppress(OSError):
            status = (self._path / MANIFEST).stat()
            return status.st_mtime_ns, status.st_ino, status.st_size
        return None
