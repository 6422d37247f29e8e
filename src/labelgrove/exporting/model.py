"""An exported model: what ``labelgrove.load`` gives for a folder that ``labelgrove.export`` wrote.

Nothing here, and nothing that it calls, imports torch or transformers.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labelgrove.corpus import LabelIndex
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.exporting.engines import Engine, make_engine
from labelgrove.exporting.onnx_encoder import GRAPH, TOKENIZER, WEIGHTS, OnnxEncoder
from labelgrove.features import Features
from labelgrove.methods.base import TrainingFacts, checked_inputs
from labelgrove.methods.requests import MinScore, Request, score_given
from labelgrove.part import Part
from labelgrove.predictions import Predictions
from labelgrove.store import load_model, save_model

RUNTIME = "onnx"
SHARED = ("labels", "training", "calibration")


@dataclass
class ExportedModel:
    """A trained model whose encoder onnxruntime runs; it predicts, and cannot be trained.

    ``method`` and ``params`` are those of the model that was exported, ``precision`` is fp32 or
    int8. ``labelgrove.load`` makes one.
    """

    method: str
    params: dict[str, Any]
    precision: str
    index_: LabelIndex
    facts_: TrainingFacts
    calibration_: Any
    parts: dict[str, Part]
    folder: Path
    metadata: dict[str, Any]
    engine: Engine

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> ExportedModel:
        """Reads a folder that ``labelgrove.export`` wrote; ``options`` as for any model."""
        stored = load_model(path, **options)
        if stored.metadata.get("runtime") != RUNTIME:
            raise ConfigError(f"{path} is not an exported model; load it with labelgrove.load")
        parts = stored.parts
        try:
            index = LabelIndex.from_state(parts["labels"])
            facts = TrainingFacts.from_state(parts["training"])
            encoder = OnnxEncoder(stored.path, parts["encoder"].config)
            engine = make_engine(stored.method, stored.params, parts, encoder, index)
        except KeyError as error:
            raise ModelFormatError(f"{path}: the exported model lacks {error}") from error
        calibration = None
        if "calibration" in parts:
            from labelgrove.calibration import Calibration

            calibration = Calibration.from_state(parts["calibration"])
        return cls(
            stored.method,
            stored.params,
            stored.metadata["precision"],
            index,
            facts,
            calibration,
            parts,
            stored.path,
            stored.metadata,
            engine,
        )

    @property
    def tree_(self) -> Any:
        """The label tree that is searched, where there is one."""
        return self.engine.tree

    @property
    def report_(self) -> dict[str, Any]:
        """How the method did beside the linear one on held-out documents, before the export."""
        return self.parts["encoder"].config.get("report") or {}

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        allow: Any = None,
        deny: Any = None,
        min_score: MinScore = None,
        diversity: float = 0.0,
        raw: bool = False,
        threads: int | None = None,
    ) -> Predictions:
        """The k best labels of each text; arguments and scores are the exported method's."""
        asked = Request.of(
            self,
            k,
            allow=allow,
            deny=deny,
            min_score=min_score,
            diversity=diversity,
            raw=raw,
        )
        texts = checked_inputs(X)
        if isinstance(texts, Features):
            raise DataError(f"{self.method} reads text and cannot predict from features")
        return asked.answer(self.engine.predict(texts, asked.places, asked.mask, threads))

    def score_labels(
        self, X: Any, labels: Any, *, raw: bool = False, threads: int | None = None
    ) -> Any:
        """Scores of given labels, the numbers that :meth:`predict` gives them.

        ``labels`` is a list of ids, names or group names, for a documents x labels array; or a
        sparse documents x labels pattern, for a sparse matrix.
        """
        return score_given(self, X, labels, raw=raw, threads=threads)

    def score(self, X: Any, y: Any) -> float:
        """P@1."""
        from labelgrove.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the folder again, with the calibration that it may have got."""
        parts = {name: part for name, part in self.parts.items() if name != "calibration"}
        if self.calibration_ is not None:
            parts["calibration"] = self.calibration_.state()
        write_exported(
            path,
            method=self.method,
            params=self.params,
            metadata=self.metadata,
            parts=parts | {"labels": self.index_.state()},
            files=lambda folder: _copy_files(self.folder, folder),
            overwrite=overwrite,
        )


def write_exported(
    path: str | Path,
    *,
    method: str,
    params: dict[str, Any],
    metadata: dict[str, Any],
    parts: dict[str, Part],
    files: Callable[[Path], None],
    overwrite: bool = False,
) -> None:
    """Writes an exported model's folder; ``files`` writes graph and tokenizer into it."""
    from labelgrove.params import to_toml

    def write(folder: Path) -> None:
        text = to_toml({"method": method} | params)
        (folder / "config.toml").write_text(text, encoding="utf-8")
        files(folder)

    save_model(
        path,
        method=method,
        params=params,
        metadata=metadata | {"runtime": RUNTIME},
        parts=parts,
        extra=write,
        overwrite=overwrite,
    )


def _copy_files(source: Path, target: Path) -> None:
    for name in (GRAPH, WEIGHTS, TOKENIZER):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
