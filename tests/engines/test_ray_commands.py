"""The command line with --engine ray, on a cluster of two nodes."""

from collections.abc import Callable

import pytest

from labelgrove import Linear, load
from labelgrove.data.formats import write_corpus
from labelgrove.data.shop import shop_corpus
from support.sharding import assert_same_bits, write_shards

pytestmark = pytest.mark.slow


Call = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """test.jsonl, its shards, and a model."""
    path = tmp_path_factory.mktemp("shop")
    Linear().fit(shop_corpus(600, labels=60)).save(path / "model")
    write_corpus(shop_corpus(300, labels=60, part="test"), path / "test.jsonl")
    lines = (path / "test.jsonl").read_text("utf-8").splitlines(keepends=True)
    (path / "shards").mkdir()
    for number, first in enumerate(range(0, 300, 70)):
        text = "".join(lines[first : first + 70])
        (path / f"shards/part-{number}.jsonl").write_text(text, "utf-8")
    return path


def test_predictions_have_the_bytes_of_one_process(cluster, folder, tmp_path, call):
    model = folder / "model"
    call("predict", model, folder / "test.jsonl", "--out", tmp_path / "whole.jsonl")
    ray = ("--engine", "ray", "--address", cluster.address)
    call("predict", model, folder / "shards", *ray, "--out", tmp_path / "parts")
    files = sorted((tmp_path / "parts").iterdir())
    assert [file.name for file in files] == [f"part-{number}.jsonl" for number in range(5)]
    parts = b"".join(file.read_bytes() for file in files)
    assert parts == (tmp_path / "whole.jsonl").read_bytes()


def test_a_bad_shard_is_named(cluster, folder, tmp_path, call):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"text": "red shoe"}\n')
    (tmp_path / "in/b.jsonl").write_text('{"text": "red shoe"}\n{"text"\n')
    ray = ("--engine", "ray", "--address", cluster.address)
    with pytest.raises(AssertionError, match=r"error: .*b\.jsonl, line 2: not valid JSON"):
        call("predict", folder / "model", tmp_path / "in", *ray, "--out", tmp_path / "out")
    assert not (tmp_path / "out/b.jsonl").exists()


def test_a_trained_model_has_the_bits_of_one_process(cluster, tmp_path, call):
    whole, shards = write_shards(tmp_path)
    flags = ("--set", "tree.max_leaf_size=3", "--set", "tree.branching=2")
    call("train", whole, "--method", "linear", "--out", tmp_path / "one", *flags, "--quiet")
    ray = ("--engine", "ray", "--address", cluster.address)
    call("train", shards, *ray, "--out", tmp_path / "many", *flags, "--quiet")
    assert_same_bits(load(tmp_path / "one"), load(tmp_path / "many"))
