"""Corpora in shards, worked on in this process; tests/engines has the same with Ray."""

import json

import pytest

from labelgrove import Ensemble, Linear, load
from labelgrove.cli.common import asks_for_gpu
from labelgrove.methods import create
from support.sharding import assert_same_bits


@pytest.fixture(scope="module")
def shards(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("shards")
    lines = (folder / "dev.jsonl").read_text().splitlines(keepends=True)
    for number, first in enumerate(range(0, len(lines), 8)):
        (path / f"part-{number}.jsonl").write_text("".join(lines[first : first + 8]))
    return path


def test_predictions_of_shards_are_those_of_the_whole(model, folder, shards, tmp_path, run):
    run("predict", model, folder / "dev.jsonl", "--k", 3, "--out", tmp_path / "whole.jsonl")
    done = run(
        *("predict", model, shards, "--k", 3), *("--engine", "local", "--out", tmp_path / "parts")
    )
    files = sorted((tmp_path / "parts").iterdir())
    assert [file.name for file in files] == ["part-0.jsonl", "part-1.jsonl", "part-2.jsonl"]
    parts = b"".join(file.read_bytes() for file in files)
    assert parts == (tmp_path / "whole.jsonl").read_bytes()
    assert done.stderr.startswith("20 documents")


def test_workers_with_a_network_ask_for_a_gpu():
    pytest.importorskip("torch")
    network = create("cascadexml", {})
    assert asks_for_gpu(network, "auto") and asks_for_gpu(network, "cuda")
    assert asks_for_gpu(Ensemble([Linear(), network]), "auto")
    assert not asks_for_gpu(network, "cpu") and not asks_for_gpu(Linear(), "auto")


def test_training_on_shards_gives_the_same_model(folder, tmp_path, run):
    lines = (folder / "train.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "in").mkdir()
    for number, first in enumerate(range(0, len(lines), 30)):
        (tmp_path / f"in/{number}.jsonl").write_text("".join(lines[first : first + 30]))
    (tmp_path / "in/labels.tsv").write_bytes((folder / "labels.tsv").read_bytes())
    run("train", folder / "train.jsonl", "--method", "linear", "--out", tmp_path / "whole")
    done = run(
        *("train", tmp_path / "in", "--engine", "local", "--out", tmp_path / "parts", "--json"),
        *("--dev", folder / "dev.jsonl"),
    )
    assert json.loads(done.stdout)["dev"]["P@1"] == 100
    whole, parts = load(tmp_path / "whole"), load(tmp_path / "parts")
    assert_same_bits(whole, parts)
    assert parts.index_.names[0] == "black things"
    assert not (tmp_path / "parts.run").exists()
