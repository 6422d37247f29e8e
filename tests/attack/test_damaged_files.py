"""Damaged files by the thousand, many in one process: a result or an error of ours for each."""

import importlib.util
import json
import os
import random
import shutil
import zipfile

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Ensemble, Linear, Matcher, Neighbours, export, load
from support import forging, tasks
from support.damage import ADDRESSES, MEMORY, ROW, SANITIZED, TEXTS, forge
from support.zygote import HANG, Zygote

pytestmark = pytest.mark.slow
LONG = "LABELGROVE_ATTACK" in os.environ
# How each sample is read, and how many damaged copies the long form reads: 100,000 in all.
SAMPLES = {
    **{name: (4_000, task, rest) for name, (_, task, rest) in TEXTS.items()},
    "table.parquet": (4_000, "read_file", ("parquet",)),
    "odd.parquet": (2_000, "read_file", ("parquet",)),
    "table.xlsx": (2_000, "read_file", ("xlsx",)),
    "pecos": (4_000, "read_file", ("pecos",)),
    "attentionxml": (2_000, "read_file", ("attentionxml",)),
    "model": (10_000, "use_model", ()),
    **dict.fromkeys(("neighbours", "matcher", "ensemble"), (2000, "use_model", ())),
}


@pytest.fixture(scope="module")
def samples(calibrated, tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    for name, (content, _, _) in TEXTS.items():
        (folder / name).write_text(content)
    (folder / "corpus.jsonl").write_text(json.dumps(ROW) + "\n")
    shutil.copytree(calibrated, folder / "model")
    texts, labels = ["red hat", "lamp", "red lamp"], [["hats", "red"], ["lamps"], ["lamps", "red"]]
    models = [Neighbours(), Matcher(), Ensemble(members=[Linear(), Linear()])]
    for model in models:
        model.fit(texts, labels).save(folder / model.method)
    (folder / "pecos").mkdir()
    (folder / "pecos" / "X.trn.txt").write_text("a red hat\nblue shoes\na hat\n")
    matrix = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32))
    for name in ("X.trn.npz", "Y.trn.npz"):
        sparse.save_npz(folder / "pecos" / name, matrix)
    (folder / "attentionxml").mkdir()
    (folder / "attentionxml" / "train_texts.txt").write_text("a red hat\nshoes\n")
    (folder / "attentionxml" / "train_labels.txt").write_text("red hats\nblue\n")
    return folder


def write_table(folder, name):
    """The samples that need a library."""
    if name.endswith(".parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
        odd = [b"\xff", b"a", None], [[["red"]], [[None]], None]
        usual = ["a hat", "shoes", "7"], [["red", "hats"], ["blue"], []]
        columns = dict(zip(("text", "labels"), odd if name[0] == "o" else usual, strict=True))
        columns |= {"id": [{"a": 1}, None, {"a": 2}], "weights": [float("nan"), 1e300, None]}
        parquet.write_table(pytest.importorskip("pyarrow").table(columns), folder / name)
    elif name == "table.xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for row in (["text", "labels"], ["a hat", "red|hats"], [7, 1984.5]):
            book.worksheets[0].append(row)
        book.save(folder / name)


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_copies(samples, zygote, chosen, tally, name):
    write_table(samples, name)
    number, task, rest = SAMPLES[name]
    files = 200 if LONG and not SANITIZED else 40
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


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """A process that knows torch, and models that need it or onnxruntime."""
    folder = tmp_path_factory.mktemp("networks")
    for file in tasks.MODELS.glob("*.zip"):
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder / file.stem)
    if importlib.util.find_spec("onnxscript"):
        for name in ("lightxml", "xtransformer", "linear-vectors"):
            export(load(folder / name), folder / f"exported-{name}")
    with Zygote("neural") as process:
        yield process, folder


@pytest.mark.long_attack
def test_models_of_every_method(networks, rounds, tally):
    process, folder = networks
    models = sorted(path for path in folder.iterdir() if path.name != "forged")
    for number, _ in enumerate(rounds(0.1)):
        copy = folder / "forged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(models[number % len(models)], copy)
        seed = random.randrange(1 << 30)
        forge(copy, random.Random(seed))
        outcome = process("use_model", str(copy), limits={"memory": 32 << 30})
        where = models[number % len(models)].name, seed
        assert outcome.status == 0, (where, outcome.stderr)
        assert outcome.facts["peak"] < 3 * MEMORY, where
        tally["hostile models of every method"] += 1


def test_what_is_not_damaged_is_read(samples, zygote):
    forging.sign(samples / "model")
    for name in ("model", "rows.jsonl", "table.csv", "answers.jsonl", "labels.tsv"):
        _, task, rest = SAMPLES[name]
        outcome = zygote(task, str(samples / name), *rest, folder=str(samples))
        assert outcome.status == 0 and not outcome.facts.get("refused"), (name, outcome)
