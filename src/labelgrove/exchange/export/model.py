"""An exported model, as ``labelgrove.load`` reads it from a folder of ``labelgrove.export``.

Nothing here imports torch or transformers.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn, Self

from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.inputs import texts_only
from labelgrove.disk.bundle import regular_size
from labelgrove.disk.model_folder import StoredModel, save_model
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.predictions import Predictions
from labelgrove.exchange.export.engines import Engine, make_engine
from labelgrove.exchange.export.onnx_encoder import GRAPH, TOKENIZER, WEIGHTS, OnnxEncoder
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.base import Model
from labelgrove.methods.explaining.explanation import Question

RUNTIME = "onnx"
CONFIG = "config.toml"  # for people


class ExportedModel(Model):
    """A trained model whose encoder runs in onnxruntime; it predicts and cannot be trained.

    ``method``, ``params`` and the kind of scores are those of the original model; ``precision`` is
    fp32 or int8.
    """

    params: dict[str, Any]
    precision: str
    stored: dict[str, Part]
    folder: Path
    metadata: dict[str, Any]
    engine: Engine

    def __init__(self, *, n_jobs: int | None = None) -> None:
        self.n_jobs = n_jobs

    @classmethod
    def _from_stored(cls, stored: StoredModel) -> Self:
        path = stored.path
        if stored.metadata.get("runtime") != RUNTIME:
            raise ConfigError(f"{path} is not an exported model; load it with labelgrove.load")
        for name in (GRAPH, TOKENIZER, WEIGHTS):
            if name != WEIGHTS or os.path.lexists(path / name):
                regular_size(path, name)  # refuses links that lead out of the folder
        model, parts = cls(), stored.parts
        model.__dict__["method"] = stored.method  # a class constant in other models
        model.params, model.stored = stored.params, parts
        model.folder, model.metadata = stored.path, stored.metadata
        model.precision = stored.metadata["precision"]
        model.index_ = LabelIndex.from_state(parts["labels"])
        model.facts_ = TrainingFacts.from_state(parts["training"])
        encoder = OnnxEncoder(stored.path, parts["encoder"].config)
        model.engine = make_engine(stored.method, stored.params, parts, encoder, model.index_)
        model.report_ = parts["encoder"].config.get("report") or {}
        if "calibration" in parts:
            model.calibration_ = Calibration.from_state(parts["calibration"])
        return model

    def __repr__(self) -> str:
        return f"ExportedModel({self.method}, {self.precision}, {str(self.folder)!r})"

    def trees(self) -> dict[str, LabelTree]:
        """The label tree that is searched, if there is one."""
        return {} if self.engine.tree is None else {"tree": self.engine.tree}

    def _best_labels(
        self, X: Any, k: int, *, dense: Any, mask: LabelMask | None, threads: int | None
    ) -> Predictions:
        return self.engine.predict(texts_only(self.method, X), k, mask, threads)

    def paths(self, question: Question) -> NoReturn:
        """Refused: gradients need the network itself."""
        raise UnsupportedError(
            "an exported model has no gradients to explain it with; explain the original model"
        )

    def growth(self) -> NoReturn:
        """Refused: only the original model learns."""
        raise UnsupportedError(
            "an exported model cannot learn; update the original model and export it again"
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the folder again, with the current calibration."""
        parts = {name: part for name, part in self.stored.items() if name != "calibration"}
        if self.calibration_ is not None:
            parts["calibration"] = self.calibration_.state()
        parts["labels"] = self.index_.state()

        def copy_files(folder: Path) -> None:
            for name in (GRAPH, WEIGHTS, TOKENIZER, CONFIG):
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, folder / name)

        save_model(
            path,
            method=self.method,
            params=self.params,
            metadata=self.metadata,
            parts=parts,
            extra=copy_files,
            overwrite=overwrite,
        )
