"""``labelgrove.export`` writes a neural model that needs neither torch nor transformers.

``labelgrove.load`` reads it as an :class:`ExportedModel`. Only writing imports torch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import numpy as np

from labelgrove.core.arrays import Float32, csr_parts
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.params import Settings, to_toml
from labelgrove.core.part import Part
from labelgrove.data.corpus import LabelIndex, Strings
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.features import DenseBlock, Features
from labelgrove.data.inputs import Documents, texts_only
from labelgrove.disk.bundle import regular_size
from labelgrove.disk.model_folder import StoredModel, reading_parts, save_model
from labelgrove.errors import ConfigError, ModelFormatError, UnsupportedError, needing
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.predictions import Predictions, check_fitted
from labelgrove.exchange.export import runtime
from labelgrove.exchange.export.runtime import GRAPH, TOKENIZER, WEIGHTS, OnnxEncoder
from labelgrove.labels.features import l2_normalised
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree
from labelgrove.methods import load_folder
from labelgrove.methods.base import Model
from labelgrove.methods.dual.search import label_vectors, search
from labelgrove.methods.folders import check_trees, without_gone
from labelgrove.methods.inputs import beside_terms
from labelgrove.methods.neighbours.memory import Memory, Queries, VotingParams
from labelgrove.methods.reranking import Reranker, RerankParams
from labelgrove.methods.xtransformer import ranking
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, search_trees
from labelgrove.text.tfidf import Tfidf

Precision = Literal["fp32", "int8"]
RUNTIME = "onnx"
CONFIG = "config.toml"  # for people
UNPICKLED = ("onnx", "engine")


class ExportedModel(Model):
    """A trained model whose encoder runs in onnxruntime; it predicts and cannot be trained.

    ``method``, ``params`` and the kind of scores are those of the original model; ``precision`` is
    fp32 or int8.
    """

    params: Settings
    precision: str
    stored: dict[str, Part]
    folder: Path
    metadata: JsonObject
    onnx: OnnxEncoder
    engine: Predictor

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
        model.facts_.check_fits(len(model.index_))
        model.onnx = OnnxEncoder(path, parts["encoder"].config)
        if stored.method not in ENGINES:
            raise ModelFormatError(f"an exported {stored.method!r} model is not known here")
        model.engine = ENGINES[stored.method](stored, model.index_, model.onnx)
        check_trees(model.trees(), model.index_, path)
        model.report_ = parts["encoder"].config.get("report") or {}
        if "calibration" in parts:
            model.calibration_ = Calibration.from_state(parts["calibration"])
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        # Sessions and functions cannot be pickled; another process opens the files again.
        state = {key: value for key, value in vars(self).items() if key not in UNPICKLED}
        return type(self).load, (self.folder,), state

    def __repr__(self) -> str:
        return f"ExportedModel({self.method}, {self.precision}, {str(self.folder)!r})"

    def trees(self) -> dict[str, LabelTree]:
        return {} if self.engine.tree is None else {"tree": self.engine.tree}

    def _best_labels(self, X: Any, k: int, *, dense: Any, mask: LabelMask | None) -> Predictions:
        texts = texts_only(self.method, X)
        # What the graph gives fits the other parts, or not, only when it has run.
        with reading_parts(self.folder):
            return self.engine.predict(texts, k, mask)

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


class Predictor(NamedTuple):
    """How texts become predictions, and the label tree that is searched, if there is one."""

    tree: LabelTree | None
    predict: Callable[[Strings, int, LabelMask | None], Predictions]


def _network(stored: StoredModel, index: LabelIndex, encoder: OnnxEncoder) -> Predictor:
    """LightXML and CascadeXML: heads on the encoder's states, perhaps a ranker over their list."""
    parts = stored.parts
    tree = LabelTree.from_state(parts["tree"]) if "tree" in parts else None
    reranker = Reranker.from_parts(parts, RerankParams(**stored.params["rerank"]))
    heads = runtime.Heads(parts["heads"], tree)
    check_trees({"network": heads.tree}, index, stored.path)

    def predict(texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        tokens = encoder.tokens(texts)
        runner: Any = runtime.OnnxRunner(encoder, heads)
        k = min(k, len(index if mask is None else mask))
        if reranker is None:
            columns, scores, _ = runner.read(tokens, k, mask=mask)
        else:
            columns, scores = reranker.best_labels(runner, Documents(texts), tokens, k, mask=mask)
        counts = (columns >= 0).sum(axis=1).astype(np.int32)
        return Predictions(columns, scores, counts, index, "product")

    return Predictor(tree, predict)


def _clusters(stored: StoredModel, index: LabelIndex, encoder: OnnxEncoder) -> Predictor:
    """X-Transformer: a head over clusters, and a ranker for the labels of the best clusters."""
    parts = stored.parts
    params = ranking.RankingParams.from_dict(without_gone(stored.params)["ranking"], "ranking")
    ranker = ranking.ClusterRanker(
        Ranker.from_state(parts["ranker"]), params, parts["score"].config["learnt"]
    )
    runner = runtime.OnnxRunner(encoder, runtime.Heads(parts["heads"], None))
    vectorizer = Tfidf.from_state(parts["tfidf"])

    def predict(texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        most = min(ranker.clusters_for(k, mask), ranker.tree.widths[0])
        within, tokens = ranker.cluster_mask(mask), encoder.tokens(texts)
        clusters, margins, vectors = runner.read(tokens, most, vectors=True, mask=within)
        matched = ranking.Matched(clusters, margins, unit_vectors(vectors))
        best = ranker.best_labels(vectorizer.transform(texts), matched, k, mask=mask)
        return Predictions(*best, index, ranker.score_kind)

    return Predictor(ranker.tree, predict)


def _vectors(stored: StoredModel, index: LabelIndex, encoder: OnnxEncoder) -> Predictor:
    """XR-Transformer, and the linear method on text vectors: rankers read vectors and tf-idf."""
    numbers = range(stored.params.get("n_trees", 1))
    rankers = [Ranker.from_state(stored.parts[f"ranker-{number}"]) for number in numbers]
    params, vectorizer = SearchParams(**stored.params["search"]), _vectorizer(stored)

    def predict(texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        terms = None if vectorizer is None else vectorizer.transform(texts)
        vectors = encoder.vectors(texts)
        # The linear method stores vectors of unit length in half precision.
        linear = stored.method == "linear-vectors"
        dense = unit_vectors(vectors) if linear else beside_terms(vectors, "l2")
        best = search_trees(rankers, Features(terms, dense), k=k, params=params, allow=mask)
        return Predictions(*best, index, params.score_kind)

    return Predictor(rankers[0].tree, predict)


def _neighbours(stored: StoredModel, index: LabelIndex, encoder: OnnxEncoder) -> Predictor:
    """Neighbours by text vectors, or by these and tf-idf; scores are shares of the votes."""
    vectorizer, voting = _vectorizer(stored), VotingParams(**stored.params["voting"])
    memory = Memory.from_state(stored.parts["memory"], terms=vectorizer is not None, vectors=True)
    memory.check_fits(len(index), encoder.width)

    def predict(texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        terms = None if vectorizer is None else csr_parts(vectorizer.transform(texts))
        queries = Queries(terms, l2_normalised(encoder.vectors(texts)).dense)
        return Predictions(*memory.best_labels(queries, k, voting, mask=mask), index)

    return Predictor(None, predict)


def _towers(stored: StoredModel, index: LabelIndex, encoder: OnnxEncoder) -> Predictor:
    """Two towers: the nearest labels."""
    labels = label_vectors(stored.parts["towers"], len(index), encoder.width)
    temperature = stored.params["towers"]["temperature"]

    def predict(texts: Strings, k: int, mask: LabelMask | None) -> Predictions:
        documents = np.asarray(l2_normalised(encoder.vectors(texts)).dense, np.float32)
        return Predictions(*search(documents, labels, k, temperature, mask=mask), index)

    return Predictor(None, predict)


ENGINES = {"lightxml": _network, "cascadexml": _network, "xtransformer": _clusters}
ENGINES |= {"xrtransformer": _vectors, "linear-vectors": _vectors}
ENGINES |= {"neighbours": _neighbours, "dual": _towers}


def _vectorizer(stored: StoredModel) -> Tfidf | None:
    return Tfidf.from_state(stored.parts["tfidf"]) if "tfidf" in stored.parts else None


def unit_vectors(vectors: Float32) -> DenseBlock:
    """Unit vectors in half precision, which is enough for them."""
    return np.asarray(l2_normalised(vectors).dense, np.float16)


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
        model = load_folder(model)
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
        with needing("export", "exporting a model"):
            import_module(library)
    from labelgrove.exchange.export.encoder_graph import some_tokens, write_graph, write_int8

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
