"""Corpora in shards, and models compared by their bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.methods import create
from support.small_models import QUICK, VARIANTS

# Every setting of the linear method that the contract suite has, and some of its parts.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, QUICK.get(name, {}))
        for name in ("linear", "xr-linear", "xr-linear-cost", "parabel", "bonsai", "ova")
    },
    **{name: VARIANTS[name] for name in ("two trees", "mined")},
}
SMALL = {"branching": 2, "max_leaf_size": 3}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "label names": ("linear", {"label_texts": "names", "tree": SMALL}),
    "labels by text": ("linear", {"tree": SMALL | {"label_features": "pifa+text"}}),
    "smoothed sums": ("linear", {"tree": SMALL | {"label_features": "smoothed-sums"}}),
    "kway": ("linear", {"tree": {"kind": "kway", "branching": 3, "max_leaf_size": 2}}),
    "characters": ("linear", {"tfidf": {"analyzer": "char_wb", "ngram_range": [2, 3]}}),
    "words and pairs": ("linear", {"tfidf": {"ngram_range": [1, 2]}, "tree": SMALL}),
    "names alone": ("linear", {"tree": SMALL | {"label_features": "text"}}),
    "few features": ("linear", {"tree": SMALL | {"features_per_label": 3}}),
    "propensity": ("linear", {"tree": SMALL, "ranker": {"label_weights": "propensity"}}),
    "few terms": ("linear", {"tfidf": {"max_features": 9, "min_df": 2, "max_df": 0.9}}),
}


def made(name: str) -> Any:
    """A model with these settings, not fitted."""
    method, settings = (SETTINGS | PARTS)[name]
    return create(method, settings)


def rows(count: int = 120) -> list[dict[str, Any]]:
    """Documents with words beyond ASCII, and a label that occurs in one shard only."""
    random = np.random.default_rng(0)
    colours = ["red", "bläu", "Grün", "café", "cafe\u0301"]
    things = ["shoe", "hat", "lamp", "chair", "table", "ΣΟΦΟΣ"]
    made = []
    for number in range(count):
        colour, thing = random.choice(colours), random.choice(things)
        labels = [f"colour {colour}", f"kind {thing}"] + (["rare"] if number == count - 1 else [])
        text = f"item {number} is a {colour} {thing} that we sell"
        made.append({"id": f"d{number}", "text": text, "labels": labels})
    return made


def write_shards(folder: Path, count: int = 120, size: int = 50) -> tuple[Path, Path]:
    """A corpus as one file, and as a folder of shards."""
    lines = [(json.dumps(row) + "\n").encode() for row in rows(count)]
    return cut_into_shards(folder, lines, size)


def cut_into_shards(folder: Path, lines: list[bytes], size: int) -> tuple[Path, Path]:
    """Lines as one file, and as a folder of shards of so many lines."""
    whole, shards = folder / "whole.jsonl", folder / "shards"
    whole.write_bytes(b"".join(lines))
    shards.mkdir()
    for number, first in enumerate(range(0, len(lines), size)):
        (shards / f"part-{number:02}.jsonl").write_bytes(b"".join(lines[first : first + size]))
    return whole, shards


def assert_same_bits(one: Any, other: Any) -> None:
    """All parts of two models and their members, their labels and what they remember."""
    mine = one.parts() | {"index": one.index_.state(), "facts": one.facts_.state()}
    others = other.parts() | {"index": other.index_.state(), "facts": other.facts_.state()}
    assert mine.keys() == others.keys()
    for name, part in mine.items():
        assert part.config == others[name].config, name
        assert part.arrays.keys() == others[name].arrays.keys()
        for key, array in part.arrays.items():
            assert array.dtype == others[name].arrays[key].dtype, f"{name} {key}"
            np.testing.assert_array_equal(array, others[name].arrays[key], err_msg=f"{name} {key}")
    for member, twin in zip(one.submodels(), other.submodels(), strict=True):
        assert_same_bits(member, twin)
