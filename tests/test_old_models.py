"""Model folders that an earlier release wrote still load and still predict the same.

``tests/fixtures/models`` has one tiny folder per method, zipped, as release 0.1.0 wrote it before
its modules moved, and what those models predicted then.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import labelgrove

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


def test_the_fixtures_stay_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 100_000
