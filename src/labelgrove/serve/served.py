"""The model behind the service: loads it, asks it, and replaces it when its folder changes.

A request keeps the model it began with, so no request is lost; the old model goes with its last
request. Arrays are mapped from the model folder's files, which all processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from labelgrove import explain as explaining
from labelgrove.corpus import Corpus
from labelgrove.disk.bundle import MANIFEST, read_manifest
from labelgrove.errors import ConfigError
from labelgrove.held_out import held_out_metrics
from labelgrove.hub_files import without_paths
from labelgrove.masks import LabelMask
from labelgrove.predictions import Predictions
from labelgrove.predictions_file import SCORE_DIGITS
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.search import LabelSearch
from labelgrove.serve.trees import TreeWalk, label_trees

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


class Served:
    """A loaded model with what the service needs to know about it."""

    def __init__(self, model: Any, manifest: dict[str, Any], *, threads: int | None) -> None:
        self.model = model
        self.id = str(manifest["checksum"])[-12:]
        self.method = str(manifest["method"])
        self.manifest = manifest
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self._threads = threads
        self._takes = frozenset(inspect.signature(model.predict).parameters)
        self.supports = {name: name in self._takes for name in ("allow", "deny")}
        self.score_kind = "product"
        self.documents: Corpus | None = None  # explanations name similar ones among these
        self._search_lock = threading.Lock()
        kept = _MASK_BYTES // (16 * max(1, len(model.index_)))
        self._mask = lru_cache(min(_MASKS, 1 + kept))(partial(_mask, model))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", threads: int | None = None) -> Served:
        """Loads a model folder and warms the model up; refuses a model that cannot read texts."""
        from labelgrove.methods.base import load

        manifest = read_manifest(path, kind="model")
        model = load(path)
        facts = getattr(model, "facts_", None)
        # Other methods make the dense block of a text by themselves.
        takes_dense = "dense" in inspect.signature(model.predict).parameters
        if facts is not None and (not facts.from_text or (takes_dense and facts.width)):
            raise ConfigError(
                f"{path}: the model was trained on features, but the service has only texts"
            )
        if device != "auto" and hasattr(model, "device"):
            model.device = device
        served = cls(model, manifest, threads=threads)
        answering, _ = served.answer(Options(1), ["a text to wake the model up"])
        served.score_kind = answering.score_kind
        return served

    def answer(self, options: Options, texts: list[str]) -> tuple[Answering, list[Any]]:
        """The labels of each text as the service shows them; the batcher calls this."""
        for name, given_list in (("allow", options.allow), ("deny", options.deny)):
            if given_list is not None and not self.supports[name]:
                detail = f"{name}: the method {self.method} does not support it; leave it out"
                raise Problem(422, "not-supported", detail)
        given: dict[str, Any] = {}
        if options.allow is not None or options.deny is not None:
            given["allow"] = self._mask(options.allow, options.deny)
        least = options.threshold
        if least == "auto":
            if getattr(self.model, "calibration_", None) is None:
                detail = "threshold: auto needs a calibrated model; see labelgrove calibrate"
                raise Problem(422, "not-supported", detail)
            given["min_score"] = least
        elif least is not None:
            # Scores have single precision; a threshold beyond its range must stay a number.
            least = max(-_LARGEST, min(_LARGEST, least))
            if "min_score" in self._takes:
                given["min_score"] = least
        predictions = self.model.predict(texts, k=options.k, threads=self._threads, **given)
        if isinstance(least, float) and "min_score" not in given:
            predictions = predictions.above(least)
        rows = labelled(predictions)
        if options.explain:
            self._add_reasons(texts, rows)
        return Answering(self.id, predictions.score_kind), rows

    def _add_reasons(self, texts: list[str], rows: list[list[dict[str, Any]]]) -> None:
        for text, row in zip(texts, rows, strict=True):
            for label in row:
                why = explaining.explain(self.model, text, label["id"], corpus=self.documents)
                label["why"] = why.to_dict()

    def facts(self) -> dict[str, Any]:
        """The answer to GET /v1/model."""
        facts = getattr(self.model, "facts_", None)
        return {
            "id": self.id,
            "method": self.method,
            "labels": len(self.model.index_),
            "groups": sorted(self.model.index_.groups),
            "training_documents": None if facts is None else facts.documents,
            "created": self.manifest.get("created"),
            "loaded": self.loaded,
            "versions": self.manifest.get("versions") or {},
            "params": without_paths(self.manifest.get("params") or {}),
            "supports": self.supports,
            "score_kind": self.score_kind,
            "calibration": _calibration_facts(getattr(self.model, "calibration_", None)),
            "trees": list(self._trees),
            "held_out": held_out_metrics(getattr(self.model, "report_", None)),
            "dev": getattr(self.model, "dev_metrics_", None) or {},
            "training_seconds": {
                stage: round(timing.wall, 3)
                for stage, timing in getattr(self.model, "timings_", {}).items()
            },
        }

    def find_labels(self, query: str, limit: int) -> list[dict[str, Any]]:
        """The answer to GET /v1/labels."""
        index, counts = self.model.index_, self._frequencies
        with self._search_lock:  # the first search builds what the others use
            search = self._search
        return [
            {
                "id": index.ids[column],
                "name": index.names[column],
                "training_documents": None if counts is None else int(counts[column]),
            }
            for column in search.find(query, limit=limit).tolist()
        ]

    def tree_page(self, tree: int, node: str, **which: Any) -> dict[str, Any]:
        """The answer to GET /v1/tree."""
        if tree >= len(self._trees):
            has = f"has {len(self._trees)}" if self._trees else "has no label tree"
            detail = f"tree: there is no tree {tree}; this {self.method} model {has}"
            raise Problem(404, "no-tree", detail)
        walk = list(self._trees.values())[tree]
        return {"model": self.id, "tree": tree} | walk.page(node, **which)

    @cached_property
    def _trees(self) -> dict[str, TreeWalk]:
        return {
            name: TreeWalk(tree, self.model.index_, self._frequencies)
            for name, tree in label_trees(self.model).items()
        }

    @property
    def _frequencies(self) -> Any:
        facts = getattr(self.model, "facts_", None)
        return None if facts is None else facts.frequencies

    @cached_property
    def _search(self) -> LabelSearch:
        return LabelSearch(self.model.index_, self._frequencies)


def _calibration_facts(calibration: Any) -> dict[str, Any] | None:
    if calibration is None:
        return None
    return {
        "kind": calibration.kind,
        "threshold": float(calibration.threshold),
        "report": calibration.report,
    }


def _mask(model: Any, allow: Any, deny: Any) -> LabelMask | None:
    return LabelMask.of(model.index_, allow, deny)


def labelled(predictions: Predictions) -> list[list[dict[str, Any]]]:
    """Predictions as lists of id, name and score."""
    return [
        [{"id": x.id, "name": x.name, "score": round(x.score, SCORE_DIGITS)} for x in row]
        for row in predictions
    ]


class ModelFolder:
    """The current model of a folder; ``watch`` loads new ones.

    ``train`` is a corpus file: explanations name its documents that are most similar to a text.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        train: str | Path | None = None,
    ) -> None:
        self._path = Path(path)
        self._how: dict[str, Any] = {"device": device, "threads": threads}
        self._seen = self._signature()
        self.current = Served.load(self._path, **self._how)
        if train is not None:
            from labelgrove.formats import read_corpus

            self.current.documents = read_corpus(train, index=self.current.model.index_)

    async def watch(self, seconds: float, metrics: Metrics) -> None:
        """Looks for a new model every ``seconds`` (0: never); keeps the old one if that fails."""
        while seconds:
            await asyncio.sleep(seconds)
            signature = self._signature()
            if signature is None or signature == self._seen:
                continue
            # Set before loading: if the folder changes meanwhile, the next check sees it.
            self._seen = signature
            started = time.perf_counter()
            try:
                loaded = await asyncio.to_thread(Served.load, self._path, **self._how)
            except Exception:
                metrics.reloads.labels("failed").inc()
                log.exception("%s: cannot load the new model, keeping the old one", self._path)
                continue
            loaded.documents = self.current.documents
            self.current = loaded
            metrics.reloads.labels("loaded").inc()
            took = time.perf_counter() - started
            log.info("%s: model %s loaded in %.2f s", self._path, loaded.id, took)

    def _signature(self) -> tuple[int, ...] | None:
        # Folders are replaced as a whole, and the manifest has the checksums of all files.
        with contextlib.suppress(OSError):
            status = (self._path / MANIFEST).stat()
            return status.st_mtime_ns, status.st_ino, status.st_size
        return None
