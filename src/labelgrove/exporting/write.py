"""``labelgrove.export``: a trained neural model as a folder that needs neither torch nor
transformers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from labelgrove.disk.part import Part
from labelgrove.errors import ConfigError, MissingExtraError, UnsupportedError
from labelgrove.exporting.model import RUNTIME, ExportedModel, write_exported
from labelgrove.exporting.onnx_encoder import GRAPH, TOKENIZER
from labelgrove.methods.base import check_fitted, to_config

Precision = Literal["fp32", "int8"]
EXPORTABLE = ("lightxml", "cascadexml", "xtransformer", "xrtransformer", "linear-vectors")


def export(
    model: Any,
    folder: str | Path,
    *,
    precision: Precision = "fp32",
    format: str = "onnx",
    overwrite: bool = False,
) -> None:
    """Writes ``model`` (or the model of a folder) for use without torch and transformers.

    ``labelgrove.load(folder)`` reads it with onnxruntime and the ``tokenizers`` package alone.
    ``fp32`` gives the labels that torch gives; ``int8`` keeps most weights of the encoder in a
    byte each. See docs/export.md for what both cost and save.

    >>> export(None, "somewhere", format="pickle")
    Traceback (most recent call last):
    labelgrove.errors.ConfigError: format: only onnx can be written, got 'pickle'
    """
    if format != "onnx":
        raise ConfigError(f"format: only onnx can be written, got {format!r}")
    if precision not in get_args(Precision):
        raise ConfigError(f"precision: must be fp32 or int8, got {precision!r}")
    if isinstance(model, (str, Path)):
        from labelgrove.methods.base import load

        model = load(model)
    _check_exportable(model)
    check_fitted(model)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("export", "exporting a model") from error
    from labelgrove.exporting.encoder_graph import some_tokens, write_graph
    from labelgrove.exporting.int8 import write_int8

    taken = _taken_apart(model)
    encoder = taken.encoder

    def write_files(target: Path) -> None:
        (target / TOKENIZER).write_text(encoder.tokenizer.to_str(), encoding="utf-8")
        states: dict[str, Any] = {"layers": taken.layers, "mean": taken.mean, "scale": taken.scale}
        if precision == "fp32":
            write_graph(encoder, target / GRAPH, **states)
            return
        with tempfile.TemporaryDirectory() as aside:
            write_graph(encoder, Path(aside) / GRAPH, **states)
            write_int8(Path(aside) / GRAPH, target / GRAPH, some_tokens(encoder))

    parts = {"labels": model.index_.state(), "training": model.facts_.state()} | taken.parts
    if getattr(model, "calibration_", None) is not None:
        parts["calibration"] = model.calibration_.state()
    about = {
        "layers": len(taken.layers),
        "width": encoder.width,
        "max_tokens": encoder.max_tokens,
        "pad_id": encoder.pad_id,
        "pad_left": encoder.pad_left,
        "report": getattr(model, "report_", None),
    }
    write_exported(
        folder,
        method=model.method,
        params=to_config(model),
        metadata={"precision": precision, "timings": {}},
        parts=parts | {"encoder": Part(about)},
        files=write_files,
        overwrite=overwrite,
    )


@dataclass(frozen=True)
class _Pieces:
    """A model taken apart: what goes into the graph, and what stays beside it."""

    encoder: Any
    layers: Sequence[int]
    mean: Any
    scale: Any
    parts: dict[str, Part]


def _check_exportable(model: Any) -> None:
    method = getattr(model, "method", None)
    if isinstance(model, ExportedModel):
        raise UnsupportedError("this model is exported already; export the one that it came from")
    if method is None:
        raise ConfigError(f"export: wants a model or a model folder, got {type(model).__name__}")
    if hasattr(model, "members"):
        raise UnsupportedError(
            "an ensemble cannot be exported as a whole; export its neural members one by one"
        )
    words = getattr(getattr(model, "vectors", None), "kind", None) == "word2vec"
    if words or (method not in EXPORTABLE and not hasattr(model, "encoder")):
        raise UnsupportedError(
            f"a {method} model has no encoder to export: its model folder needs no "
            f"{'transformers' if words else 'torch'} as it is"
        )
    if method not in EXPORTABLE:
        raise UnsupportedError(
            f"{method} models cannot be exported; these can: {', '.join(EXPORTABLE)}"
        )


def _taken_apart(model: Any) -> _Pieces:
    if model.method == "xrtransformer":
        return _xr_pieces(model)
    if model.method == "linear-vectors":
        return _vector_pieces(model)
    network = model.network_
    parts = {"heads": _heads_part(network.heads)}
    if model.method == "xtransformer":
        learnt = model.ranker_.learnt
        parts["tfidf"] = model.vectorizer_.state()
        parts["ranker"] = model.ranker_.ranker.state()
        parts["score"] = Part({"learnt": None if learnt is None else asdict(learnt)})
    else:
        tree = getattr(network.heads, "tree", None) or model.tree_
        if tree is not None and parts["heads"].config["kept"] is not None:
            parts["tree"] = _searched_tree(network.heads, tree).state()
        if model.reranker_ is not None:
            parts |= model.reranker_.parts()
    return _network_pieces(network, parts)


def _network_pieces(network: Any, parts: dict[str, Part]) -> _Pieces:
    mean, scale = (_numpy(value) for value in (network.mean, network.scale))
    return _Pieces(network.encoder, network.layers, mean, scale, parts)


def _xr_pieces(model: Any) -> _Pieces:
    parts = {"ranker-0": model.ranker_.state()}
    if model.ranker_input == "both":
        parts["tfidf"] = model.vectorizer_.state()
    standard = model.standard_
    mean, scale = (None, None) if standard is None else (standard.mean, standard.scale)
    return _Pieces(model.encoder_, (-1,), mean, scale, parts)


def _vector_pieces(model: Any) -> _Pieces:
    from labelgrove.nn.network import Network

    rankers = model.linear_.rankers_
    parts = {f"ranker-{number}": ranker.state() for number, ranker in enumerate(rankers)}
    if model.vectorizer_ is not None:
        parts["tfidf"] = model.vectorizer_.state()
    if isinstance(model.embedder_, Network):
        return _network_pieces(model.embedder_, parts)
    return _Pieces(model.embedder_, (-1,), None, None, parts)


def _heads_part(heads: Any) -> Part:
    """The heads of a network as ``labelgrove.exporting.heads`` reads them."""
    from labelgrove.methods.cascadexml.net import CascadeNet
    from labelgrove.methods.lightxml.net import LightXmlNet

    config = {"reads": "single", "sigmoid": False, "probabilities": True, "kept": None}
    arrays: dict[str, Any] = {}
    if isinstance(heads, CascadeNet):
        config |= {"reads": "mixed", "weighted": heads.params.score == "weighted"}
        arrays |= _layer("read", heads.mix)
        if len(heads.tables) > 1:
            config["kept"] = list(heads.kept)
            for level, table in enumerate(heads.tables):
                arrays |= _layer(f"tables/{level}", table)
            return Part(config, arrays)
    elif isinstance(heads, LightXmlNet):
        config["reads"] = "joined"
        if heads.index is not None:
            config |= {
                "reads": "bottleneck",
                "sigmoid": heads.params.bottleneck_sigmoid,
                "kept": [heads.params.groups_kept],
                "weighted": heads.params.score == "weighted",
            }
            arrays |= _layer("read", heads.bottleneck) | _layer("tables/0", heads.groups)
            return Part(config, arrays | _layer("tables/1", heads.table))
    else:
        config["probabilities"] = False  # the margins of X-Transformer's clusters
    weight, bias = heads.output_layer()
    return Part(config, arrays | {"tables/0/weight": weight, "tables/0/bias": bias})


def _layer(name: str, layer: Any) -> dict[str, Any]:
    found = {"weight": layer.weight, "bias": layer.bias}
    return {f"{name}/{key}": _numpy(value) for key, value in found.items() if value is not None}


def _searched_tree(heads: Any, tree: Any) -> Any:
    """The levels that heads go down: LightXML knows the labels and the level above."""
    from labelgrove.labels.tree import LabelTree

    levels = len(heads.index.widths)
    if levels == len(tree.widths):
        return tree
    groups = np.zeros(tree.widths[-levels], np.int32)
    return LabelTree([groups, *tree.parents[len(tree.parents) - levels + 1 :]], tree.leaf_labels)


def _numpy(values: Any) -> Any:
    return values.detach().float().cpu().numpy()


__all__ = ["EXPORTABLE", "RUNTIME", "Precision", "export"]
