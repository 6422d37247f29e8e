"""Damaged files by the thousand, many in one process: a result or an error of ours for each."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from support.damage import ADDRESSES, MEMORY, ROW, SANITIZED, TEXTS
from support.mutations import json_text
from support.zygote import HANG, Zygote

pytestmark = pytest.mark.slow
LONG = "LABELGROVE_ATTACK" in os.environ
# How each sample is read, and how many damaged copies the long form reads: 100,000 in all.
SAMPLES: dict[str, tuple[int, str, tuple[str, ...]]] = {
    **{name: (4_000, task, rest) for name, (_, task, rest) in TEXTS.items()},
    "table.parquet": (4_000, "read_file", ("parquet",)),
    "table.xlsx": (2_000, "read_file", ("xlsx",)),
    "pecos": (4_000, "read_file", ("pecos",)),
    "model": (10_000, "use_model", ()),
}


@pytest.fixture(scope="module")
def samples(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    for name, (content, _, _) in TEXTS.items():
        (folder / name).write_text(content)
    (folder / "corpus.jsonl").write_text(json_text(ROW) + "\n")
    shutil.copytree(calibrated, folder / "model")
    (folder / "pecos").mkdir()
    (folder / "pecos" / "X.trn.txt").write_text("a red hat\nblue shoes\na hat\n")
    matrix = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32))
    for name in ("X.trn.npz", "Y.trn.npz"):
        sparse.save_npz(folder / "pecos" / name, matrix)
    return folder


def write_table(folder: Path, name: str) -> None:
    """The samples that need a library."""
    if name == "table.parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        columns = {"text": ["a hat", "shoes", "7"], "labels": [["red", "hats"], ["blue"], []]}
        parquet.write_table(pytest.importorskip("pyarrow").table(columns), folder / name)
    elif name == "table.xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in (["text", "labels"], ["a hat", "red|hats"], [7, 1984.5]):
            book.worksheets[0].append(row)
        book.save(folder / name)
    elif name.startswith("things."):
        pytest.importorskip("rdflib")


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_copies(
    samples: Path, zygote: Zygote, chosen: Any, tally: Counter[str], name: str
) -> None:
    write_table(samples, name)
    number, task, rest = SAMPLES[name]
    files = 200 if LONG and not SANITIZED else 20
    draw = random.Random(None if LONG else name)
    seeds = [draw.randrange(1 << 40) for _ in range(number // files)]
    share = 0.3 if name == "model" else 0.02  # of the time under sanitizers; without, try all
    for seed in chosen(seeds, 1, share if SANITIZED else None):
        outcome = zygote(
            "read_damaged",
            *(seed, seed + files, HANG, task, str(samples / name), *rest),
            folder=str(samples),
            limits={"memory": ADDRESSES},
        )
        assert outcome.status == 0, f"{samples / 'copies' / name}: {outcome.stderr[-3000:]}"
        assert outcome.facts["peak"] < MEMORY, seed
        tally["damaged files"] += files
        tally["damaged files, of these refused"] += outcome.facts["refused"]
