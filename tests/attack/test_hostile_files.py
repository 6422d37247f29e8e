"""Whatever a file says, its reader gives a result or an error of ours, in less than a gigabyte.

Every input is read in a process of its own, so that a crash is a failure and not the end.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import random
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import export, load
from labelgrove.disk import bundle
from labelgrove.disk.tensors import read_tensors, write_tensors
from support import forging, tasks
from support.damage import (
    ADDRESSES,
    ANNIF,
    ANSWER,
    FEEDBACK,
    LF_ROW,
    LINKED,
    MEMORY,
    ROW,
    TREE,
)
from support.forged_models import forge
from support.mutations import damaged_bytes, json_text, mutated, mutated_array, odd_values
from support.zygote import Outcome, Zygote

pytestmark = pytest.mark.slow
Rounds = Callable[[float], Iterator[None]]
Attack = Callable[..., Outcome]

few = settings(
    settings.default,
    max_examples=100 if "LABELGROVE_ATTACK" in os.environ else 8,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture
def attack(zygote: Zygote, tally: Counter[str]) -> Attack:
    def run(kind: str, task: str, *arguments: object) -> Outcome:
        limits = {"memory": ADDRESSES}
        outcome = zygote(task, *map(str, arguments), limits=limits)
        assert outcome.status == 0, outcome.stderr
        assert outcome.facts["peak"] < MEMORY
        tally[f"hostile {kind}"] += 1
        tally[f"hostile {kind}, of these refused"] += bool(outcome.facts.get("refused"))
        return outcome

    return run


PARTS = ("labels", "training", "calibration", "ranker", "tfidf")


def copied(model: Path) -> Path:
    copy = model.with_name("forged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(model, copy)
    return copy


@pytest.mark.parametrize("part", PARTS)
def test_settings_of_parts(calibrated: Path, attack: Attack, rounds: Rounds, part: str) -> None:
    known = json.loads((calibrated / f"{part}.json").read_text())

    @few
    @given(mutated(known))
    def forged(value: Any) -> None:
        copy = copied(calibrated)
        (copy / f"{part}.json").write_text(json_text(value))
        forging.sign(copy)
        attack("settings of model parts", "use_model", copy)

    for _ in rounds(0.02):
        forged()


@pytest.mark.parametrize("part", PARTS)
def test_arrays_of_parts(calibrated: Path, attack: Attack, rounds: Rounds, part: str) -> None:
    file = calibrated / f"{part}.safetensors"
    known = read_tensors(file)

    @few
    @given(st.data())
    def forged(data: st.DataObject) -> None:
        copy = copied(calibrated)
        name = data.draw(st.sampled_from(sorted(known)))
        arrays = known | {name: data.draw(mutated_array(known[name]))}
        (copy / file.name).unlink()
        write_tensors(copy / file.name, {n: a for n, a in arrays.items() if a is not None})
        forging.sign(copy)
        attack("arrays of model parts", "use_model", copy)

    for _ in rounds(0.02):
        forged()


def test_manifests(calibrated: Path, attack: Attack, rounds: Rounds) -> None:
    known = json.loads((calibrated / bundle.MANIFEST).read_text())

    @few
    @given(mutated(known))
    def forged(value: Any) -> None:
        copy = copied(calibrated)
        if isinstance(value, dict):
            value["checksum"] = ""
        text = json_text(value)
        try:
            manifest = json.loads(text)
            manifest["checksum"] = bundle.manifest_checksum(manifest)
            text = json.dumps(manifest)
        except (TypeError, ValueError, RecursionError):
            pass  # then nobody can sign it
        (copy / bundle.MANIFEST).write_text(text)
        attack("manifests", "use_model", copy)

    for _ in rounds(0.02):
        forged()


@pytest.mark.parametrize(("format", "row"), [("jsonl", ROW), ("lf", LF_ROW)])
def test_rows_of_corpora(
    tmp_path: Path, attack: Attack, rounds: Rounds, format: str, row: Any
) -> None:
    file = tmp_path / "corpus.jsonl"

    @few
    @given(st.lists(mutated(row), min_size=1, max_size=3))
    def written(rows: list[Any]) -> None:
        file.write_text("".join(json_text(value) + "\n" for value in [row, *rows]))
        attack("rows of corpora", "read_file", file, format)

    for _ in rounds(0.01):
        written()


CELLS = ("", "red", "red|hats", '["red"]', "[1, {}]", '"', "'", '""', "a\nb", "\x00", "nan", "-1")
NUMBERS = ("0", "1", "-1", "5", "1e3", "nan", "inf", "2147483648", "99999999999999999999", "", "x")


@pytest.mark.parametrize("format", ["csv", "tsv", "annif"])
def test_cells_of_tables(tmp_path: Path, attack: Attack, rounds: Rounds, format: str) -> None:
    file = tmp_path / f"corpus.{format}"
    cell = st.sampled_from(CELLS) | st.text(max_size=5)

    @few
    @given(st.lists(st.lists(cell, max_size=4), max_size=4), st.booleans())
    def written(rows: list[list[str]], quoted: bool) -> None:
        text = io.StringIO()
        separator = "," if format == "csv" else "\t"
        rows = [["text", "labels", "id"], *rows]
        if quoted:
            csv.writer(text, delimiter=separator).writerows(rows)
        else:
            text.write("".join(separator.join(row) + "\n" for row in rows))
        file.write_bytes(text.getvalue().encode("utf-8", "surrogatepass"))
        attack("cells of tables", "read_file", file, format)

    for _ in rounds(0.01):
        written()


@pytest.mark.parametrize("format", ["xc", "svmlight"])
def test_numbers_of_sparse_files(
    tmp_path: Path, attack: Attack, rounds: Rounds, format: str
) -> None:
    file = tmp_path / "corpus.txt"
    number = st.sampled_from(NUMBERS)
    pair = st.tuples(number, number).map(":".join)
    line = st.tuples(
        st.lists(number, max_size=3).map(",".join), st.lists(pair, max_size=3).map(" ".join)
    ).map(" ".join)
    header = st.one_of(st.just("2 5 4"), st.lists(number, min_size=3, max_size=3).map(" ".join))

    @few
    @given(header, st.lists(line | st.just("0,2 1:0.5 3:1.2"), max_size=4))
    def written(first: str, lines: list[str]) -> None:
        file.write_text("\n".join([*([first] if format == "xc" else []), *lines, ""]))
        attack("numbers of sparse files", "read_file", file, format)

    for _ in rounds(0.01):
        written()


@pytest.mark.parametrize("name", ["X.trn.npz", "Y.trn.npz"])
def test_sparse_matrices(tmp_path: Path, attack: Attack, rounds: Rounds, name: str) -> None:
    (tmp_path / "X.trn.txt").write_text("a red hat\nblue shoes\na hat\n")
    labels = sparse.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 0]], np.float32))
    for file in ("X.trn.npz", "Y.trn.npz"):
        sparse.save_npz(tmp_path / file, labels)
    known = dict(np.load(tmp_path / name))

    @few
    @given(st.data())
    def written(data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(["indptr", "indices", "data", "shape"]))
        array = data.draw(mutated_array(known[key]))
        arrays = {n: a for n, a in (known | {key: array}).items() if a is not None}
        np.savez(tmp_path / name, **arrays)
        attack("sparse matrices", "read_file", tmp_path, "pecos")

    for _ in rounds(0.01):
        written()


def test_parquet_files(tmp_path: Path, attack: Attack, rounds: Rounds) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "corpus.parquet"
    columns: dict[str, Any] = {
        "strings": ["a", None, "c"],
        "lists": [["red"], None, []],
        "numbers": [1, None, 3],
        "floats": [float("nan"), 1e300, None],
        "bytes": [b"\xff", b"a", None],
        "deep": [[["red"]], [[None]], None],
        "structs": [{"a": 1}, None, {"a": 2}],
        "times": [arrow.scalar(1, arrow.timestamp("ns")).as_py(), None, None],
    }
    names = st.sampled_from(sorted(columns))

    @few
    @given(names, names, st.data())
    def written(texts: str, labels: str, data: st.DataObject) -> None:
        table = arrow.table({"text": columns[texts], "labels": columns[labels]})
        parquet.write_table(table, file)
        if data.draw(st.booleans()):
            file.write_bytes(data.draw(damaged_bytes(file.read_bytes())))
        attack("parquet files", "read_file", file, "parquet")

    for _ in rounds(0.02):
        written()


def test_predictions(base: Path, tmp_path: Path, attack: Attack, rounds: Rounds) -> None:
    file, corpus = tmp_path / "answers.jsonl", tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(ROW | {"id": name}) + "\n" for name in "78"))

    @few
    @given(mutated(ANSWER), st.sampled_from([[], [ANSWER], [ANSWER | {"id": "8"}]]))
    def written(row: Any, others: list[Any]) -> None:
        file.write_text("".join(json_text(value) + "\n" for value in [row, *others]))
        attack("predictions files", "evaluate_file", file, corpus)

    for _ in rounds(0.01):
        written()


def test_label_files(tmp_path: Path, attack: Attack, rounds: Rounds) -> None:
    file = tmp_path / "labels.tsv"
    cell = st.sampled_from(["", "red", "blue", "hats", "shoes", "red hats", "<red>", "0", "id"])
    rows = st.lists(st.lists(cell | st.text(max_size=3), max_size=4).map("\t".join), max_size=6)

    @few
    @given(rows.map("\n".join) | mutated(TREE).map(json_text) | odd_values().map(json_text))
    def written(content: str) -> None:
        file.write_bytes(content.encode("utf-8", "surrogatepass"))
        attack("label files", "read_label_file", file)

    for _ in rounds(0.01):
        written()


def test_feedback_files(tmp_path: Path, attack: Attack, rounds: Rounds) -> None:
    file = tmp_path / "model.jsonl"

    @few
    @given(st.lists(mutated(FEEDBACK), min_size=1, max_size=3))
    def written(rows: list[Any]) -> None:
        file.write_text("".join(json_text(value) + "\n" for value in [FEEDBACK, *rows]))
        attack("feedback files", "read_feedback_file", file)

    for _ in rounds(0.02):
        written()


def test_workbooks(tmp_path: Path, attack: Attack, rounds: Rounds) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "labels"], ["a hat", "red|hats"], [7, 1984.5]):
        book.worksheets[0].append(row)
    book.save(tmp_path / "corpus.xlsx")
    content = (tmp_path / "corpus.xlsx").read_bytes()
    with zipfile.ZipFile(tmp_path / "corpus.xlsx") as archive:
        entries = {name: archive.read(name) for name in sorted(archive.namelist())}

    @few
    @given(st.data())
    def written(data: st.DataObject) -> None:
        file = tmp_path / "damaged.xlsx"
        name = data.draw(st.sampled_from([*entries, ""]))
        if not name:
            file.write_bytes(data.draw(damaged_bytes(content)))
        else:
            with zipfile.ZipFile(file, "w") as archive:
                for entry, old in entries.items():
                    archive.writestr(entry, data.draw(damaged_bytes(old)) if entry == name else old)
        attack("workbooks", "read_file", file, "xlsx")

    for _ in rounds(0.02):
        written()


@pytest.mark.parametrize("name", ANNIF)
def test_files_of_annif(tmp_path: Path, attack: Attack, rounds: Rounds, name: str) -> None:
    pytest.importorskip("rdflib")
    changed = damaged_bytes(ANNIF[name].encode())
    if name == "things.jsonld":
        changed |= mutated(LINKED).map(lambda value: json_text(value).encode())

    @few
    @given(changed)
    def written(content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        attack("files of Annif", "read_annif_file", tmp_path / name)

    for _ in rounds(0.005):
        written()


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Zygote, Path]]:
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
def test_models_of_every_method(
    networks: tuple[Zygote, Path], rounds: Rounds, tally: Counter[str]
) -> None:
    process, folder = networks
    models = sorted(path for path in folder.iterdir() if path.name != "forged")
    for number, _ in enumerate(rounds(0.1)):
        copy = copied(models[number % len(models)])
        seed = random.randrange(1 << 30)
        forge(copy, random.Random(seed))
        outcome = process("use_model", str(copy), limits={"memory": 32 << 30})
        where = models[number % len(models)].name, seed
        assert outcome.status == 0, (where, outcome.stderr)
        assert outcome.facts["peak"] < 3 * MEMORY, where
        tally["hostile models of every method"] += 1


def test_what_is_forged_is_used_when_unchanged(
    calibrated: Path, attack: Attack, tmp_path: Path
) -> None:
    copy = copied(calibrated)
    forging.sign(copy)
    assert attack("settings of model parts", "use_model", copy).facts.get("refused") is None
    tasks.write_corpora(tmp_path)
    outcome = attack("rows of corpora", "read_file", tmp_path / "train.jsonl", "jsonl")
    assert not outcome.facts["refused"]
