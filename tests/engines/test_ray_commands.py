"""The command line with --engine ray, on a cluster of two nodes."""

from collections.abc import Callable

import pytest

from labelgrove import Linear
from labelgrove.data.formats import write_corpus
from labelgrove.data.shop import shop_corpus
from support.sharding import cut_into_shards

pytestmark = pytest.mark.slow


Call = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """test.jsonl, its shards, and a model."""
    path = tmp_path_factory.mktemp("shop")
    Linear().fit(shop_corpus(600, labels=60)).save(path / "model")
    write_corpus(shop_corpus(300, labels=60, part="test"), path / "test.jsonl")
    cut_into_shards(path, (path / "test.jsonl").read_bytes().splitlines(keepends=True), 70)
    return path


def test_predictions_have_the_bytes_of_one_process(cluster, folder, tmp_path, call):
    model = folder / "model"
    call("predict", model, folder / "test.jsonl", "--out", tmp_path / "whole.jsonl")
    ray = ("--engine", "ray", "--address", cluster.address)
    call("predict", model, folder / "shards", *ray, "--out", tmp_path / "parts")
    files = sorted((tmp_path / "parts").iterdir())
    assert [file.name for file in files] == [f"part-{number:02}.jsonl" for number in range(5)]
    parts = b"".join(file.read_bytes() for file in files)
    assert parts == (tmp_path / "whole.jsonl").read_bytes()
