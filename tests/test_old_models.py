"""Model folders of an earlier release load and predict the same; forged ones do no harm.

``tests/fixtures/models`` has one tiny folder per method, zipped, as release 0.1.0 wrote it before
its modules moved, and what those models predicted then.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import LabelIndex, Linear
from labelgrove.errors import DataError, ModelFormatError
from support.forging import forge_arrays, forge_manifest, forge_settings

FOLDER = Path(__file__).parent / "fixtures" / "models"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
TEXTS = ["a red hat", "blue lamp"]


@pytest.mark.parametrize("method", sorted(EXPECTED))
def test_an_old_folder_predicts_what_it_did(method: str, tmp_path: Path) -> None:
    if method not in ("linear", "ensemble"):
        pytest.importorskip("torch")
    with zipfile.ZipFile(FOLDER / f"{method}.zip") as archive:
        archive.extractall(tmp_path / "model")
    model = labelgrove.load(tmp_path / "model")
    # Mined documents counted in full then; an update must not change that.
    for part in model.submodels() or [model]:
        if part.method in ("linear", "xrtransformer"):
            assert part.ranker.mined_weight == 1
    predictions = model.predict(TEXTS, k=3)
    assert predictions.names() == EXPECTED[method]["names"]
    np.testing.assert_allclose(predictions.scores, EXPECTED[method]["scores"], atol=2e-5)
    model.save(tmp_path / "again")
    again = labelgrove.load(tmp_path / "again").predict(TEXTS, k=3)
    assert again.names() == EXPECTED[method]["names"]


def test_an_old_model_of_features_reads_rows_as_they_are(tmp_path: Path) -> None:
    with zipfile.ZipFile(FOLDER / "linear-features.zip") as archive:
        archive.extractall(tmp_path / "model")
    rows = sparse.csr_array(np.array([[3, 0, 1, 0, 0, 0], [0, 0.25, 0, -0.5, 0, 0.125]]))
    labelgrove.load(tmp_path / "model").save(tmp_path / "again")
    for name in ("model", "again"):
        predictions = labelgrove.load(tmp_path / name).predict(rows, k=3)
        assert predictions.names()[1] == ["group 1", "group 0", "group 2"]  # 1, 2, 0 if scaled
        expected = [[1, 0, 0], [0.289513, 0.024865, 0.016856]]
        np.testing.assert_allclose(predictions.scores, expected, atol=2e-5)


def test_the_fixtures_stay_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 100_000


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


def test_settings_that_no_longer_predict_are_refused(model: Path) -> None:
    params = json.loads((model / "manifest.json").read_text())["params"]
    params["ranker"]["storage"] = "int8"
    forge_manifest(model, {"params": params})
    with pytest.raises(
        ModelFormatError, match=r"has ranker\.storage=int8, which has gone .* again"
    ):
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
