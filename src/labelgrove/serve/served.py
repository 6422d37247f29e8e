"""The model behind the service: loads it, asks it, and replaces it when its folder changes.

A request keeps the model it began with, so no request is lost; the old model goes with its last
request. Arrays are mapped from files that all processes share: a private copy of the model folder,
or the folder itself (see ``copies.py``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from labelgrove.data.corpus import Corpus
from labelgrove.disk.bundle import MANIFEST, read_manifest
from labelgrove.errors import ConfigError, LabelgroveError, ModelFormatError
from labelgrove.evaluation.prediction_files import SCORE_DIGITS
from labelgrove.evaluation.predictions import COMPARED, Predictions, ScoreKind
from labelgrove.exchange.card import without_paths
from labelgrove.exchange.loading import load
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.base import Model
from labelgrove.methods.explaining import explain as explaining
from labelgrove.methods.fitted import held_out_metrics
from labelgrove.serve import schema
from labelgrove.serve.browse import LabelSearch, TreeWalk, found_label
from labelgrove.serve.copies import Copies, OpenFiles
from labelgrove.serve.metrics import ModelMetrics
from labelgrove.serve.problems import Problem

log = logging.getLogger(__name__)
_LARGEST = 3.4e38
# Texts that are predicted before the service looks whether anybody still waits for them.
PIECE = 64
# Cached masks of allow and deny lists: at most this many, and at most this many bytes.
_MASKS, _MASK_BYTES = 32, 64 << 20
FileState = tuple[str, int, int, int]


@dataclass(frozen=True)
class Options:
    """The fields of a request besides its texts; requests with equal options can share a batch."""

    k: int
    threshold: schema.Threshold = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    explain: bool = False

    @classmethod
    def of(cls, request: schema.PredictRequest) -> Options:
        """The options of a request."""
        allow, deny = (
            None if labels is None else tuple(labels) for labels in (request.allow, request.deny)
        )
        return cls(request.k, request.threshold, allow, deny, request.explain)


@dataclass(frozen=True)
class Answering:
    """The model that gave an answer, and the kind of its scores."""

    model: str
    score_kind: ScoreKind


class LabelRow(list[schema.Label]):
    """The labels of one text; ``unknown`` if no word of the text made a difference to them."""

    unknown = False


class Served:
    """A loaded model with what the service needs to know about it."""

    def __init__(self, model: Model, manifest: dict[str, Any], *, threads: int | None) -> None:
        self._model = model  # read it through `reading` only
        self.id = str(manifest["checksum"])[-12:]
        self.method = str(manifest["method"])
        self.manifest = manifest
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self._threads = threads
        self.score_kind: ScoreKind = "product"
        self._of_silence: Predictions | None = None  # the best labels of an empty text
        self.files: OpenFiles | None = None  # if they are mapped in place
        self.copy: Path | None = None
        self.documents: Corpus | None = None  # explanations name similar ones among these
        self._labels = model.index_, model.facts_.frequencies
        self._search_lock = threading.Lock()
        masks = 1 + _MASK_BYTES // (16 * max(1, len(model.index_)))
        self._mask = lru_cache(min(_MASKS, masks))(partial(LabelMask.of, model.index_))

    @contextmanager
    def reading(self) -> Iterator[Model]:
        """The model; raises a Problem if somebody has written to its files, before or meanwhile.

        All that is asked of the model goes through here: a mapped file that was cut ends the
        process when it is read, and what was read of one that changed looks like any answer.
        """
        self._check_files()
        try:
            yield self._model
        finally:
            self._check_files()

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        copies: Copies | None = None,
    ) -> Served:
        """Loads a model folder and warms the model up; refuses a model that cannot read texts."""
        manifest = read_manifest(path, kind="model")
        copy = None if copies is None else copies.make(path, manifest)
        files = OpenFiles(path, manifest["files"]) if copy is None else None
        try:
            model = load(copy or path)
            facts = model.facts_
            # Methods that do not read dense rows make the vectors of a text by themselves.
            if not facts.from_text or facts.given or ("dense" in model.takes and facts.width):
                raise ConfigError(
                    f"{path}: the model was trained on features, but the service has only texts; "
                    "train it on texts alone (features=own, without dense rows)"
                )
            if device != "auto":
                model.use_device(device)
            served = cls(model, manifest, threads=threads)
            # An empty text, which also wakes the model up.
            served._of_silence = served._predict(Options(COMPARED), [""])
        except BaseException as error:
            if copies is not None and copy is not None:
                copies.remove(copy)
                if isinstance(error, ConfigError | ModelFormatError):  # users know only the folder
                    raise type(error)(str(error).replace(str(copy), str(path))) from error
            raise
        served.score_kind = served._of_silence.score_kind
        served.files, served.copy = files, copy
        return served

    def answer(
        self, options: Options, texts: list[str], wanted: Callable[[], bool] = lambda: True
    ) -> tuple[Answering, list[LabelRow]]:
        """The labels of each text as the service shows them; the batcher calls this.

        It stops between two pieces of work if the answer is no longer ``wanted``.
        """
        rows: list[LabelRow] = []
        explain = partial(explaining.explain, self._model, corpus=self.documents, bounded=True)
        with self.reading():
            for start in range(0, len(texts), PIECE):
                check_wanted(wanted)
                piece = texts[start : start + PIECE]
                predictions = self._predict(options, piece)
                rows += self._labelled(predictions, options)
            for text, row in zip(texts, rows, strict=True) if options.explain else ():
                for label in row:
                    check_wanted(wanted)
                    label["why"] = explain(text, label["id"]).to_dict()
        return Answering(self.id, predictions.score_kind), rows

    def _labelled(self, predictions: Predictions, options: Options) -> Iterator[LabelRow]:
        # Among few labels, or those above a threshold, texts with known words may look the same as
        # an empty text. Looking all words up would be slow.
        limited = (options.threshold, options.allow, options.deny) != (None, None, None)
        silence = None if limited else self._of_silence
        same = [False] * len(predictions) if silence is None else predictions.same_as(silence)
        for labels, unknown in zip(predictions, same, strict=True):
            row = LabelRow(
                {"id": one.id, "name": one.name, "score": round(one.score, SCORE_DIGITS)}
                for one in labels
            )
            row.unknown = bool(unknown)
            yield row

    def _predict(self, options: Options, texts: list[str]) -> Predictions:
        allow, deny, least = options.allow, options.deny, options.threshold
        if least == "auto" and self._model.calibration_ is None:
            detail = "threshold: auto needs a calibrated model; see labelgrove calibrate"
            raise Problem("not-supported", detail)
        if isinstance(least, int | float):
            # Scores have single precision; a threshold beyond its range must stay a number.
            least = max(-_LARGEST, min(_LARGEST, least))
        return self._model.predict(
            texts,
            k=options.k,
            allow=None if allow is None and deny is None else self._mask(allow, deny),
            threshold=least,
            threads=self._threads,
        )

    def _check_files(self) -> None:
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

    def facts(self) -> schema.Facts:
        """The answer to GET /v1/model."""
        with self.reading() as model:
            return self._facts(model)

    def _facts(self, model: Model) -> schema.Facts:
        fields, calibration = model.facts_.fields, model.calibration_
        facts: schema.CalibrationFacts | None = None
        if calibration is not None:
            threshold = float(calibration.threshold)
            facts = {"kind": calibration.kind, "threshold": threshold, "report": calibration.report}
        return {
            **self.summary(),
            "groups": sorted(model.index_.groups),
            "versions": self.manifest.get("versions") or {},
            "params": without_paths(self.manifest.get("params") or {}),
            "supports": {"allow": True, "deny": True},
            "calibration": facts,
            "fields": None if fields is None else fields.to_dict(),
            "trees": list(self._trees),
            "held_out": held_out_metrics(model.report_),
            "dev": model.dev_metrics_ or {},
            "training_seconds": {name: round(t.wall, 3) for name, t in model.timings_.items()},
        }

    def summary(self) -> schema.Summary:
        """An entry of the answer to GET /v1/models; it reads no mapped file."""
        return {
            "id": self.id,
            "method": self.method,
            "labels": len(self._model.index_),
            "training_documents": self._model.facts_.documents,
            "score_kind": self.score_kind,
            "created": self.manifest.get("created"),
            "loaded": self.loaded,
        }

    def find_labels(self, query: str, limit: int) -> list[schema.FoundLabel]:
        """The answer to GET /v1/labels."""
        with self.reading():
            with self._search_lock:  # the first search builds what the others use
                search = self._search
            columns = search.find(query, limit=limit).tolist()
            return [found_label(*self._labels, column) for column in columns]

    def tree_page(
        self, tree: int, node: str, *, label: str | None, offset: int, limit: int
    ) -> schema.TreeResponse:
        """The answer to GET /v1/tree."""
        with self.reading():
            if tree >= len(self._trees):
                has = f"has {len(self._trees)}" if self._trees else "has no label tree"
                detail = f"tree: there is no tree {tree}; this {self.method} model {has}"
                raise Problem("no-tree", detail)
            walk = list(self._trees.values())[tree]
            page = walk.page(node, label=label, offset=offset, limit=limit)
        return {"model": self.id, "tree": tree, **page}

    @cached_property
    def _trees(self) -> dict[str, TreeWalk]:
        trees = self._model.trees()
        return {name: TreeWalk(tree, *self._labels) for name, tree in trees.items()}

    @cached_property
    def _search(self) -> LabelSearch:
        return LabelSearch(*self._labels)


def check_wanted(wanted: Callable[[], bool]) -> None:
    """Ends work that nobody waits for any more; nobody sees the Problem."""
    if not wanted():
        raise Problem("disconnected", "nobody waits for this answer any more")


class ModelFolder:
    """The current model of a folder; ``watch`` loads new ones.

    ``train`` is a corpus file: explanations name its documents that are most similar to a text.
    With ``copies`` the model is loaded from a private copy of the folder; ``how`` is its device and
    its threads.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        train: str | Path | None = None,
        copies: Copies | None = None,
        **how: Any,
    ) -> None:
        self.path = Path(path)
        self._copies = copies
        self._load = partial(Served.load, self.path, copies=copies, **how)
        self._seen = self._signature()
        self._failed: list[FileState] | None = None  # the files that could not be loaded
        self.current = self._load()
        if train is not None:
            from labelgrove.data.formats import ReadOptions, read_corpus

            options = ReadOptions()
            with self.current.reading() as model:
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
                loaded = await asyncio.to_thread(self._load)
            except Exception as error:
                self._failed = files
                metrics.failed.inc()
                # Our own errors say everything in a sentence.
                trace = None if isinstance(error, LabelgroveError) else error
                why = f"cannot load the new model, keeping the old one: {error}"
                log.error("%s: %s", self.path, why, exc_info=trace)
                continue
            self._failed = None
            loaded.documents = self.current.documents
            before, self.current = self.current, loaded
            if self._copies is not None and before.copy not in (None, loaded.copy):
                await asyncio.to_thread(self._copies.remove, before.copy)
            metrics.loaded.inc()
            took = time.perf_counter() - started
            log.info("%s: model %s loaded in %.2f s", self.path, loaded.id, took)

    def _file_states(self) -> list[FileState]:
        return [state for name in sorted(self.path.rglob("*")) if (state := _state(name))]

    def _signature(self) -> FileState | None:
        # Folders are replaced as a whole, and the manifest has the checksums of all files.
        return _state(self.path / MANIFEST)


def _state(file: Path) -> FileState | None:
    """What changes when a file is written or replaced; None if it is not there."""
    try:
        status = file.stat()
    except OSError:
        return None
    return str(file), status.st_mtime_ns, status.st_ino, status.st_size
