"""The model that answers: loaded, asked, and replaced when a new one lies in its folder.

A request keeps the model it began with, so a change of models drops nothing; the old one goes when
its last request is done. Arrays are maps of the model folder's files, which all processes share.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

from labelgrove.calibrating.calibration import Calibration
from labelgrove.data.corpus import Corpus
from labelgrove.disk.bundle import MANIFEST, read_manifest
from labelgrove.errors import ConfigError
from labelgrove.explaining import explain as explaining
from labelgrove.labels.masks import LabelMask
from labelgrove.loading import load
from labelgrove.methods.estimator import Estimator
from labelgrove.model.held_out import held_out_metrics
from labelgrove.publishing.files import without_paths
from labelgrove.scores.files import SCORE_DIGITS
from labelgrove.scores.predictions import Predictions
from labelgrove.serve.metrics import Metrics
from labelgrove.serve.problems import Problem
from labelgrove.serve.search import LabelSearch
from labelgrove.serve.trees import TreeWalk

log = logging.getLogger(__name__)
_LARGEST = 3.4e38
# Masks of allow and deny lists that are kept: so many, or as many as fit into so many bytes.
_MASKS, _MASK_BYTES = 32, 64 << 20


@dataclass(frozen=True)
class Options:
    """What a request asks for besides its texts; equal options can share a batch."""

    k: int
    threshold: float | Literal["auto"] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    explain: bool = False


@dataclass(frozen=True)
class Answering:
    """Which model gave an answer, and what its scores are."""

    model: str
    score_kind: str


class Served:
    """A loaded model with what the service needs to know of it."""

    def __init__(self, model: Estimator, manifest: dict[str, Any], *, threads: int | None) -> None:
        self.model = model
        self.id = str(manifest["checksum"])[-12:]
        self.method = str(manifest["method"])
        self.manifest = manifest
        self.loaded = datetime.now(UTC).isoformat(timespec="seconds")
        self._threads = threads
        self.supports = {"allow": True, "deny": True}
        self.score_kind = "product"
        self.documents: Corpus | None = None  # among which explanations look for similar ones
        self._search_lock = threading.Lock()
        kept = _MASK_BYTES // (16 * max(1, len(model.index_)))
        self._mask = lru_cache(min(_MASKS, 1 + kept))(partial(_mask, model))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", threads: int | None = None) -> Served:
        """Reads a model folder and warms the model up; one that cannot read texts is refused."""
        manifest = read_manifest(path, kind="model")
        model = load(path)
        facts = model.facts_
        # Methods that do not read dense rows make the vectors of a text by themselves.
        if not facts.from_text or (model.reads_dense and facts.width):
            raise ConfigError(
                f"{path}: was trained on features; the service sends texts and nothing beside them"
            )
        if device != "auto":
            model.use_device(device)
        served = cls(model, manifest, threads=threads)
        answering, _ = served.answer(Options(1), ["a text to wake the model up"])
        served.score_kind = answering.score_kind
        return served

    def answer(self, options: Options, texts: list[str]) -> tuple[Answering, list[Any]]:
        """For each text its labels as the service shows them; the batcher calls it."""
        given: dict[str, Any] = {}
        if options.allow is not None or options.deny is not None:
            given["allow"] = self._mask(options.allow, options.deny)
        least = options.threshold
        if least == "auto":
            if self.model.calibration_ is None:
                raise Problem(
                    422,
                    "not-supported",
                    "threshold: auto needs a calibrated model; labelgrove calibrate makes one",
                )
            given["min_score"] = least
        elif least is not None:
            # Scores are of single precision, and no label can be told from beyond its range.
            least = max(-_LARGEST, min(_LARGEST, least))
            given["min_score"] = least
        found = self.model.predict(texts, k=options.k, threads=self._threads, **given)
        rows = labelled(found)
        if options.explain:
            self._add_reasons(texts, rows)
        return Answering(self.id, found.score_kind), rows

    def _add_reasons(self, texts: list[str], rows: list[list[dict[str, Any]]]) -> None:
        with_neighbours: dict[str, Any] = (
            {} if self.documents is None else {"corpus": self.documents}
        )
        for text, row in zip(texts, rows, strict=True):
            for label in row:
                why = explaining.explain(self.model, text, label["id"], **with_neighbours)
                label["why"] = why.to_dict()

    def facts(self) -> dict[str, Any]:
        """What GET /v1/model tells."""
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
            "calibration": _calibration_facts(self.model.calibration_),
            "trees": list(self._trees),
            "held_out": held_out_metrics(self.model.report_),
            "dev": self.model.dev_metrics_ or {},
            "training_seconds": {
                stage: round(timing.wall, 3) for stage, timing in self.model.timings_.items()
            },
        }

    def find_labels(self, query: str, limit: int) -> list[dict[str, Any]]:
        """What GET /v1/labels tells."""
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
        """What GET /v1/tree tells."""
        if tree >= len(self._trees):
            has = f"has {len(self._trees)}" if self._trees else "searches its labels without a tree"
            raise Problem(
                404, "no-tree", f"tree: there is no tree {tree}; this {self.method} {has}"
            )
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


def _mask(model: Estimator, allow: Any, deny: Any) -> LabelMask | None:
    return LabelMask.of(model.index_, allow, deny)


def labelled(found: Predictions) -> list[list[dict[str, Any]]]:
    """Predictions as lists of id, name and score.

    >>> from labelgrove.data.corpus import LabelIndex
    >>> labelled(Predictions.from_scores([[0.25, 0.5]], k=1, index=LabelIndex("ab")))
    [[{'id': 'b', 'name': 'b', 'score': 0.5}]]
    """
    return [
        [
            {"id": label.id, "name": label.name, "score": round(label.score, SCORE_DIGITS)}
            for label in row
        ]
        for row in found
    ]


class ModelFolder:
    """The current model of a folder; ``watch`` loads what is put in its place.

    With ``train``, a corpus file, explanations name its documents that are most like a text.
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
            # Taken before loading: should the folder change meanwhile, the next look sees that.
            self._seen = signature
            started = time.perf_counter()
            try:
                loaded = await asyncio.to_thread(Served.load, self._path, **self._how)
            except Exception:
                metrics.reloads.labels("failed").inc()
                log.exception("%s: keeping the old model, the new one fails", self._path)
                continue
            loaded.documents = self.current.documents
            self.current = loaded
            metrics.reloads.labels("loaded").inc()
            took = time.perf_counter() - started
            log.info("%s: model %s loaded in %.2f s", self._path, loaded.id, took)

    def _signature(self) -> tuple[int, ...] | None:
        # Folders are replaced whole, and the manifest names every file with its checksum.
        with contextlib.suppress(OSError):
            found = (self._path / MANIFEST).stat()
            return found.st_mtime_ns, found.st_ino, found.st_size
        return None
