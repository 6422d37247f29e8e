"""The methods by name. A method's module is imported only when somebody asks for it."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from labelgrove.core.aliases import Table, TableView
from labelgrove.errors import ConfigError, needing_torch

if TYPE_CHECKING:  # the names alone must come quickly, for the command line's help
    from labelgrove.methods.base import Model


@dataclass(frozen=True)
class MethodEntry:
    """Where a method lives and which settings its name stands for."""

    module: str
    class_name: str
    summary: str
    preset: TableView = field(default_factory=dict)


# As published: negatives are the documents that bear the parent. Their solvers must then go further
# than with mined negatives, which forgive more.
_PUBLISHED: Table = {
    "ranker": {"negatives": "tfn", "eps": 0.3},
    "search": {"post_processor": "l3-hinge", "beam": 10},
}

_PARABEL: Table = {
    "ranker": {"negatives": "tfn", "eps": 0.1},
    "search": {"post_processor": "l2-hinge", "beam": 10},  # the loss of its classifiers
    "n_trees": 3,
    "tree": {"branching": 2, "max_leaf_size": 100, "label_features": "pifa-plain"},
}


def _entry_of(class_name: str, summary: str, **preset: Any) -> MethodEntry:
    """A class in the folder that has its name."""
    return MethodEntry(
        f"labelgrove.methods.{class_name.lower()}.method", class_name, summary, preset
    )


_linear = partial(_entry_of, "Linear")


def _parabel_on(kind: str, what: str, *, beside_tfidf: bool = True) -> MethodEntry:
    """Parabel on text vectors: baselines of the neural methods' papers."""
    preset = {**_PARABEL, "vectors": {"kind": kind, "beside_tfidf": beside_tfidf}}
    summary = f"parabel on {what}{' and tf-idf' if beside_tfidf else ' alone'}"
    return MethodEntry("labelgrove.methods.linear.vectors", "LinearVectors", summary, preset)


METHODS: dict[str, MethodEntry] = {
    "auto": _entry_of(
        "Auto",
        "tries linear and, on a GPU, a network with it; keeps what held-out documents prefer",
    ),
    "linear": _linear("tf-idf and a tree of linear classifiers (XR-Linear)"),
    "xr-linear": _linear(
        "linear with the negatives and the stopping rule of PECOS",
        **{**_PUBLISHED, "ranker": {"negatives": "tfn", "eps": 0.1}},
    ),
    "xr-linear-cost": _linear(
        "xr-linear with cost-sensitive weights (relevance as in XR-Transformer's paper)",
        **{**_PUBLISHED, "ranker": {"negatives": "tfn", "eps": 0.1, "relevance": "induce"}},
    ),
    "parabel": _linear("three deep binary trees (Parabel)", **_PARABEL),
    "bonsai": _linear(
        "three shallow, wide, unbalanced trees (Bonsai)",
        **_PUBLISHED,
        n_trees=3,
        tree={"kind": "kway", "branching": 100, "max_depth": 3, "label_features": "pifa-plain"},
    ),
    "neighbours": _entry_of(
        "Neighbours", "the nearest training documents vote for labels; nothing is trained"
    ),
    "matcher": _entry_of(
        "Matcher",
        "labels whose names the text has, also those without documents; how far is learnt",
    ),
    "dual": _entry_of(
        "Dual", "an encoder reads documents and labels' texts; also finds labels without documents"
    ),
    "linear-vectors": MethodEntry(
        "labelgrove.methods.linear.vectors",
        "LinearVectors",
        "linear on text vectors that it makes itself by an encoder",
    ),
    "parabel-pretrained": _parabel_on(
        "pretrained", "vectors of a pretrained encoder", beside_tfidf=False
    ),
    "parabel-pretrained-tfidf": _parabel_on("pretrained", "vectors of a pretrained encoder"),
    "parabel-finetuned-tfidf": _parabel_on("fine-tuned", "vectors of a fine-tuned encoder"),
    "xtransformer": _entry_of(
        "XTransformer",
        "a fine-tuned encoder finds clusters of labels, linear rankers order their labels",
    ),
    "ova": _linear(
        "one classifier per label over all documents; for small label sets",
        ranker={"eps": 0.3},
        tree={"max_leaf_size": 2**31 - 1},
    ),
    "ensemble": _entry_of("Ensemble", "several methods whose lists of labels become one"),
    "lightxml": _entry_of("LightXML", "a fine-tuned encoder, groups propose labels"),
    "cascadexml": _entry_of(
        "CascadeXML", "a fine-tuned encoder, one layer per resolution of the label tree"
    ),
    "xrtransformer": _entry_of(
        "XRTransformer",
        "an encoder fine-tuned from coarse to fine clusters, then a ranker on tf-idf and vectors",
    ),
}


def method_class(name: str) -> type[Model]:
    """The estimator class behind a method's name."""
    entry = _entry(name)
    with needing_torch(f"the method {name}"):
        module = importlib.import_module(entry.module)
    return cast("type[Model]", vars(module)[entry.class_name])


def create(name: str, config: TableView | None = None) -> Any:
    """An unfitted model from a method's name and config tables laid over its preset.

    >>> create("linear", {"random_state": 3}).random_state
    3
    """
    from labelgrove.core.params import overridden  # late: names must come quickly

    return method_class(name).from_config(overridden(_entry(name).preset, config or {}))


def load_folder(path: str | Path, **options: Any) -> Model:
    """The model of a folder that a method wrote; ``labelgrove.load`` also reads exported ones."""
    from labelgrove.disk.model_folder import model_manifest  # late, too

    return method_class(model_manifest(path)["method"]).load(path, **options)


def _entry(name: str) -> MethodEntry:
    if not isinstance(name, str) or name not in METHODS:
        near = difflib.get_close_matches(str(name), METHODS, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else f"methods: {', '.join(METHODS)}"
        raise ConfigError(f"unknown method {name!r}; {advice}")
    return METHODS[name]
