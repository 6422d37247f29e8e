"""Folders with any content and right checksums: an answer or one of our errors, nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import labelgrove
from labelgrove import LabelIndex, Linear
from labelgrove.errors import DataError, LabelgroveError, ModelFormatError
from support.forging import forge_arrays, forge_manifest, forge_settings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Linear().fit(["red hat", "blue lamp"], [["hats"], ["lamps"]]).save(tmp_path / "model")
    return tmp_path / "model"


def test_the_damaged_part_is_named(model: Path) -> None:
    forge_settings(model, "ranker", {"levels": None})
    with pytest.raises(ModelFormatError, match=r"the part 'ranker' is damaged.*copy the folder"):
        labelgrove.load(model)


@pytest.mark.parametrize("count", [1, 3])
def test_labels_that_are_not_those_of_the_tree(model: Path, count: int) -> None:
    index = LabelIndex([f"label {number}" for number in range(count)])
    forge_arrays(model, "labels", index.state().arrays)
    with pytest.raises(ModelFormatError, match=f"{count} labels, but counts of another number"):
        labelgrove.load(model)
    forge_arrays(model, "training", {"frequencies": np.ones(count, np.int64)})
    with pytest.raises(ModelFormatError, match=rf"the tree has 2 labels, but .* {count};"):
        labelgrove.load(model)


@pytest.mark.timeout(60)
def test_a_number_of_trees_without_end(model: Path) -> None:
    params = json.loads((model / "manifest.json").read_text())["params"]
    forge_manifest(model, {"params": params | {"n_trees": 2**40}})
    with pytest.raises(ModelFormatError, match="the part 'ranker-1' is damaged"):
        labelgrove.load(model)


@pytest.mark.parametrize("name", ["features", "width"])
@pytest.mark.parametrize("count", [2**31, 2**60, -1])
def test_numbers_of_features_that_kernels_cannot_count(model: Path, name: str, count: int) -> None:
    forge_settings(model, "ranker", {name: count})
    with pytest.raises((DataError, ModelFormatError), match=r"a ranker cannot have"):
        labelgrove.load(model)


def test_threads_have_a_bound(model: Path) -> None:
    with pytest.raises(LabelgroveError, match="up to 1024"):
        labelgrove.load(model).predict(["a hat"], threads=2**31 - 1)
    with pytest.raises(LabelgroveError, match="n_jobs: must be at least 1 and at most 1024"):
        Linear(n_jobs=2**31 - 1).fit(["red hat", "blue lamp"], [["hats"], ["lamps"]])
