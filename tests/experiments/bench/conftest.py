"""A small corpus in a folder, as a bench reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.small_models import planted


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shop"
    folder.mkdir()
    rows = [{"text": t, "labels": y} for t, y in zip(*planted(150), strict=True)]
    for name, part in (("train", rows[:100]), ("dev", rows[100:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder
