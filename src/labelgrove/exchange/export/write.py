"""``labelgrove.export`` writes a neural model that needs neither torch nor transformers."""

from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args

from labelgrove.core.params import to_toml
from labelgrove.core.part import Part
from labelgrove.disk.model_folder import save_model
from labelgrove.errors import ConfigError, MissingExtraError, UnsupportedError
from labelgrove.evaluation.predictions import check_fitted
from labelgrove.exchange.export.model import CONFIG, RUNTIME, ExportedModel
from labelgrove.exchange.export.onnx_encoder import GRAPH, TOKENIZER
from labelgrove.exchange.loading import load
from labelgrove.methods.base import Model

Precision = Literal["fp32", "int8"]


def export(
    model: Model | str | Path,
    folder: str | Path,
    *,
    precision: Precision = "fp32",
    overwrite: bool = False,
) -> None:
    """Writes ``model`` (or the model of a folder) for use without torch and transformers.

    ``labelgrove.load(folder)`` reads it with only onnxruntime and the ``tokenizers`` package.
    ``fp32`` gives the same labels as torch; ``int8`` stores most weights of the encoder as bytes.
    See docs/models.md for the costs and savings of both.

    >>> export("model", "exported", precision="int4")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: precision: must be fp32 or int8, got 'int4'
    """
    if precision not in get_args(Precision):
        raise ConfigError(f"precision: must be fp32 or int8, got {precision!r}")
    if isinstance(model, (str, Path)):
        model = load(model)
    if isinstance(model, ExportedModel):
        raise UnsupportedError("this model is already exported; export the original model")
    if not isinstance(model, Model):
        raise ConfigError(f"export: needs a model or a model folder, got {type(model).__name__}")
    check_fitted(model)
    pieces = model.exported_parts()
    if model.facts_.given:
        raise UnsupportedError(
            f"this model reads a matrix of {model.facts_.given:,} columns that comes with the "
            "texts, and an exported model reads texts alone; train it with features=own"
        )
    for library in ("torch", "onnx", "onnxruntime", "onnxscript"):
        try:
            import_module(library)
        except ImportError as error:
            raise MissingExtraError("export", "exporting a model") from error
    from labelgrove.exchange.export.encoder_graph import some_tokens, write_graph
    from labelgrove.exchange.export.int8 import write_int8

    encoder, params = pieces.encoder, model.trained_config()
    config = to_toml({"method": model.method} | params)

    def write_files(target: Path) -> None:
        (target / CONFIG).write_text(config, encoding="utf-8")
        (target / TOKENIZER).write_text(encoder.tokenizer.to_str(), encoding="utf-8")
        with tempfile.TemporaryDirectory() as temporary:
            graph = (target if precision == "fp32" else Path(temporary)) / GRAPH
            write_graph(encoder, graph, layers=pieces.layers, mean=pieces.mean, scale=pieces.scale)
            if precision == "int8":
                write_int8(graph, target / GRAPH, some_tokens(encoder))

    parts = {"labels": model.index_.state(), "training": model.facts_.state()} | pieces.parts
    if model.calibration_ is not None:
        parts["calibration"] = model.calibration_.state()
    about = {
        "layers": len(pieces.layers),
        "width": encoder.width,
        "max_tokens": encoder.max_tokens,
        "pad_id": encoder.pad_id,
        "pad_left": encoder.pad_left,
        "markup": encoder.markup,
        "lowercase": encoder.lowercase,
        "fields": list(encoder.fields),
        "report": dict(model.report_) or None,
    }
    save_model(
        folder,
        method=model.method,
        params=params,
        metadata={"precision": precision, "timings": {}, "runtime": RUNTIME},
        parts=parts | {"encoder": Part(about)},
        extra=write_files,
        overwrite=overwrite,
    )
