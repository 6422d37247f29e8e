"""Small problems that any sound method solves, and settings with which every method is quick.

``QUICK`` has settings that make a method quick enough for tests, or let little data exercise it.
``VARIANTS`` are further settings of methods that must keep all promises, too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import labelgrove
from labelgrove.core.callbacks import Event
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods import METHODS, create

# Methods that learn from ready-made feature matrices as well as from text.
FROM_FEATURES = {"linear", "xr-linear", "xr-linear-cost", "parabel", "bonsai", "ova"}
FROM_FEATURES |= {"two trees", "mined"}
QUICK: dict[str, dict[str, Any]] = {
    "parabel": {"tree": {"max_leaf_size": 2}},
    "bonsai": {"tree": {"branching": 3, "max_leaf_size": 2}},
    "ensemble": {"members": [{"method": "linear"}, {"method": "ova", "ranker": {"C": 0.5}}]},
}
FROM_FEATURES |= {"ensemble", "auto", "neighbours"}
BY_NAME = {"matcher", "dual"}  # they read texts alone, and what labels are called
NEVER_GROW = {"lightxml", "cascadexml", "neighbours"}
SMALL_LEAVES = {"branching": 2, "max_leaf_size": 3}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "two trees": ("linear", {"n_trees": 2, "tree": SMALL_LEAVES}),
    "mined": (
        "linear",
        {
            "tree": SMALL_LEAVES | {"label_features": "smoothed-pifa"},
            "ranker": {"negatives": "tfn+man", "mined_levels": "all", "relevance": "induce"},
        },
    ),
}

FEW_STEPS = {"max_steps": 24, "batch_size": 32, "lr": 3e-3, "head_lr": 3e-2}

# Methods with an encoder: a tiny random one, and as many updates as a small problem needs.
FEW_UPDATES = {"max_steps": 40, "batch_size": 32, "lr": 3e-3, "head_lr": 3e-2}
NEURAL: dict[str, dict[str, Any]] = {
    "xtransformer": {"heads": {"dropout": 0.0}, "training": FEW_UPDATES},
    "linear-vectors": {"encoder": {"pooling": "mean"}},
    "parabel-pretrained": {"ranker": {"C": 5.0}, "encoder": {"pooling": "mean"}},
    "parabel-pretrained-tfidf": {"tree": {"max_leaf_size": 3}},
    "parabel-finetuned-tfidf": {"training": FEW_UPDATES, "n_trees": 1},
    "dual": {"training": {"max_steps": 160, "batch_size": 32, "lr": 1e-2}},
    "lightxml": {"heads": {"dropout": 0.0}},
    "cascadexml": {"heads": {"dropout": 0.0, "mix_dropout": 0.0}},
    # Its ranker reads tf-idf, too; what its encoder learns is tested elsewhere.
    "xrtransformer": {"heads": {"dropout": 0.0}, "training": FEW_STEPS},
}
NEURAL_VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "xtransformer by label text": (
        "xtransformer",
        {
            "heads": {"dropout": 0.0},
            "training": FEW_UPDATES,
            "indexing": {"vectors": "text-emb"},
            "ranking": {"scale": "blocks"},
            "ranker": {"negatives": "man"},
        },
    ),
    "lightxml in groups": (
        "lightxml",
        {
            "heads": {"dropout": 0.0, "one_head_up_to": 1, "bottleneck": 16, "groups_kept": 2},
            "tree": SMALL_LEAVES,
        },
    ),
    "lightxml with a full head": (
        "lightxml",
        {
            "heads": {"dropout": 0.0, "full": True, "chunk": 4},
            "rerank": {"enabled": True, "shortlist": 4},
        },
    ),
    "cascadexml in three levels": (
        "cascadexml",
        {
            "heads": {"dropout": 0.0, "mix_dropout": 0.0, "clusters": [2, 4], "kept": 2},
            "rerank": {"enabled": True, "shortlist": 4},
        },
    ),
    "xrtransformer in three levels": (
        "xrtransformer",
        {
            "heads": {"dropout": 0.0, "kept": 2},
            "training": FEW_STEPS,
            "tree": SMALL_LEAVES | {"top_width": None},
            "refined": SMALL_LEAVES,
        },
    ),
}
# They have an encoder, and train nothing.
UNTRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "neighbours by vectors": ("neighbours", {"vectors": "encoder", "encoder": {"pooling": "mean"}}),
    "neighbours by both": ("neighbours", {"vectors": "both"}),
}

# One name per class, and one for each way to make vectors; the other names are settings of these.
CLASSES = [
    "auto",
    "linear",
    "neighbours",
    "matcher",
    "linear-vectors",
    "parabel-finetuned-tfidf",
    "dual",
    "lightxml",
    "cascadexml",
    "xtransformer",
    "xrtransformer",
    "ensemble",
]

COLOURS = ["red", "blue", "green", "black", "white"]
THINGS = ["shoe", "hat", "lamp", "chair", "table", "bottle"]
STRANGE_NAMES = ["tab\there", "line\nbreak", "emoji 🌳", "'\"quotes\"'", " spaces "]


def planted(
    n: int = 120, seed: int = 0, things: Sequence[str] = THINGS
) -> tuple[list[str], list[list[str]]]:
    """Documents whose words name their labels: any sound method solves it."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for number in range(n):
        colour, thing = random.choice(COLOURS), random.choice(things)
        texts.append(f"item {number} is a {colour} {thing} that we sell")
        labels.append([f"colour {colour}", f"kind {thing}"])
    return texts, labels


def hidden_words() -> tuple[list[str], list[list[str]]]:
    """Documents whose fifth word or a later one names their label, for readers of four tokens."""
    words = ["chair", "table", "bottle", "lamp"]
    kinds = np.random.default_rng(0).integers(0, 4, 160)
    texts = [f"item {n} is a that we sell {words[k]}" for n, k in enumerate(kinds)]
    return texts, [[f"kind {words[k]}"] for k in kinds]


class Messages(list[str]):
    """A callback that collects what is said."""

    def __call__(self, event: Event) -> None:
        if event.kind == "message":
            self.append(event.values["text"])


def learnable(method: str, labels: list[list[str]]) -> list[list[str]]:
    """Labels of ``planted()`` that the method can find: a matcher needs names that texts have."""
    if method not in BY_NAME:
        return labels
    return [[label.split()[-1] for label in row] for row in labels]


# Names whose code the classes and variants run as well: only their settings can be wrong.
PRESETS = {name for name in METHODS if name not in CLASSES}
ALL = [*METHODS, *VARIANTS, *NEURAL_VARIANTS, *UNTRAINED]


def new(method: str, **settings: Any) -> Any:
    variants = NEURAL_VARIANTS | UNTRAINED
    if method in NEURAL or method in variants:
        name, variant = variants.get(method, (method, NEURAL.get(method, {})))
        shared = tiny_training()
        if method in UNTRAINED:
            shared = {key: shared[key] for key in ("encoder", "device")}
        if "encoder" in variant:  # only what differs
            variant = variant | {"encoder": shared["encoder"] | variant["encoder"]}
        return create(name, shared | variant | settings)
    name, variant = VARIANTS.get(method, (method, QUICK.get(method, {})))
    return create(name, variant | settings)


def shortened(model: Any, updates: int = 2) -> Any:
    """The model, whose next training is short: for tests where what it learns plays no part."""
    if hasattr(model, "training"):
        model.training.max_steps = updates
    return model


@cache
def tiny_training() -> dict[str, Any]:
    from support.tiny_encoders import make_encoder

    words = [
        *COLOURS,
        *THINGS,
        *["item", "is", "a", "that", "we", "sell", "one", "two", "text", "some"],
    ]
    words += [f"word{n}" for n in range(len(STRANGE_NAMES))]
    folder = make_encoder(
        Path(tempfile.mkdtemp()) / "encoder",
        "bert",
        words=words,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return {
        "encoder": {"encoder": str(folder), "max_tokens": 24, "pooling": "first"},
        "training": {"max_steps": 70, "batch_size": 32, "lr": 3e-3, "head_lr": 3e-2},
        "held_out": 0.0,
        "device": "cpu",
    }


def same(first: Predictions, second: Predictions) -> bool:
    return (
        np.array_equal(first.columns, second.columns)
        and first.scores.tobytes() == second.scores.tobytes()
        and np.array_equal(first.counts, second.counts)
    )


def made_small(method: str, config: dict[str, Any]) -> dict[str, Any]:
    """The same setting for a problem of a few documents; precision is what a CPU does well."""
    tiny = tiny_training()
    small = {name: dict(v) if isinstance(v, dict) else v for name, v in config.items()}
    small["encoder"] |= {"encoder": tiny["encoder"]["encoder"], "max_tokens": 24}
    small["training"] |= {"max_steps": 10, "batch_size": 8, "precision": "fp32"}
    if "indexing" in small:
        small["indexing"]["clusters"] = 4
    heads = small["heads"]
    levels = heads.get("level_weights", [])[1:] or heads.get("clusters") or heads.get("kept")
    if isinstance(levels, list):
        heads["clusters"] = [2**n for n in range(1, len(levels) + 1)]
    if isinstance(heads.get("layers"), list):  # the tiny encoder has three
        heads["layers"] = [[1, 2], *range(4 - len(heads["layers"]) + 1, 4)]
    if "one_head_up_to" in small["heads"]:
        small["tree"] = small["tree"] | {"max_leaf_size": 3, "branching": 2}
    if method == "xrtransformer":
        leaves = {"max_leaf_size": 3, "branching": 2, "top_width": 2}
        small |= {"tree": leaves, "refined": leaves}
        small["heads"] |= {"steps": [], "row_table_from": 3}
    return small | {"held_out": 0.1, "device": "cpu"}


def stored(model: Any, folder: Path) -> Any:
    """The model as its folder gives it back."""
    model.save(folder)
    return labelgrove.load(folder)
