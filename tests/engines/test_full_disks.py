"""Disks that fill while a model is trained or used: an error with advice, and nothing half-written.

A small tmpfs is the disk. Without Ray, the command itself is the worker.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from labelgrove import Linear, load
from labelgrove.data.formats import read_corpus
from labelgrove.data.formats.jsonl import dump_document
from labelgrove.data.shop import shop_documents
from labelgrove.errors import StorageError
from support import ray_work
from support.clusters import started_cluster
from support.sharding import assert_same_bits, cut_into_shards

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount a small disk"
    ),
]
SHARDS = 4
TREE = {"branching": 4, "max_leaf_size": 8}
ADVICE = "No space left on device; make room there, then start again"
ENGINES = ["local", pytest.param("ray", marks=pytest.mark.long_ray)]


class Disk:
    """A file system in memory that holds so many bytes."""

    def __init__(self, path):
        self.path = path

    def mount(self, size):
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.path)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("this container may not mount")

    def make_room(self):
        subprocess.run(["mount", "-o", "remount,size=64m", str(self.path)], check=True)

    def names(self):
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path / "disk")
    yield disk
    subprocess.run(["umount", str(disk.path)], capture_output=True)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with a shop's documents as one file and as shards, a model, and what it predicts."""
    folder = tmp_path_factory.mktemp("shop")
    lines = [dump_document(each) for each in shop_documents(2000, labels=200)]
    whole, _ = cut_into_shards(folder, lines, len(lines) // SHARDS)
    Linear.from_config({"tree": TREE}).fit(read_corpus(whole)).save(folder / "model")
    predicted = command("predict", folder / "model", folder / "shards", "local", folder / "found")
    assert predicted.returncode == 0, predicted.stderr
    return folder


def command(verb, *given, more=(), **environment):
    """``labelgrove VERB ... SHARDS --engine ENGINE --out OUT``."""
    *first, shards, engine, out = given
    words = [sys.executable, "-m", "labelgrove", verb, *first, shards, "--engine", engine]
    words += ["--out", out, *more] + (["--workers", 2] if engine == "ray" else [])
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, env=os.environ | environment
    )


def train(*given, more=()):
    settings = [word for name, value in TREE.items() for word in ("--set", f"tree.{name}={value}")]
    return command("train", *given, more=(*settings, "--json", *more))


def refused(done, *places):
    """The command ended with one sentence that says what to do about one of these places."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("error: ") and ADVICE in message
    assert any(str(place) in message for place in places), message


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("engine", ENGINES)
def test_predictions(engine, shop, disk):
    """Workers write them; those of whole shards stay, and the next try writes all."""
    disk.mount(size_of(shop / "found") * 5 // 8)
    asked = (shop / "model", shop / "shards", engine, disk.path)
    refused(command("predict", *asked), disk.path)
    whole = {file.name: file.read_bytes() for file in (shop / "found").iterdir()}
    written = disk.names()
    assert 0 < len(written) < SHARDS
    assert all((disk.path / name).read_bytes() == whole[name] for name in written)
    disk.make_room()
    done = command("predict", *asked)
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_bytes() for file in disk.path.iterdir()} == whole


@pytest.mark.parametrize("engine", ENGINES)
def test_the_model(engine, shop, disk, tmp_path):
    disk.mount(size_of(shop / "model") // 2)
    asked = (shop / "shards", engine, disk.path / "model")
    kept = ("--run", tmp_path / "run")
    refused(train(*asked, more=kept), disk.path / "model")
    assert disk.names() == []
    disk.make_room()
    done = train(*asked, more=kept)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reused"] == ["tfidf", "tree", "ranker"]
    assert_same_bits(load(shop / "model"), load(disk.path / "model"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("stage", "reused"), [("tfidf", []), ("ranker", ["tfidf", "tree"])])
def test_finished_stages(engine, stage, reused, shop, disk):
    """The run folder beside the model fills when the result of a stage is stored."""
    terms, weights = (
        (shop / f"model/{part}.safetensors").stat().st_size for part in ("tfidf", "ranker")
    )
    disk.mount(terms // 2 if stage == "tfidf" else terms + weights)
    asked = (shop / "shards", engine, disk.path / "model")
    refused(train(*asked), disk.path / "model.run")
    assert not (disk.path / "model").exists()
    assert not [path for path in disk.path.rglob(".*") if path.is_dir()]
    disk.make_room()
    done = train(*asked, more=("--resume",))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reused"] == reused
    assert_same_bits(load(shop / "model"), load(disk.path / "model"))


@pytest.mark.long_ray
def test_blocks_that_workers_hold(disk):
    """Ray puts what its memory cannot hold on the disk of the machine."""
    from labelgrove.engines import open_engine

    disk.mount(40 << 20)
    place = {"object_store_memory": 80 << 20, "object_spilling_directory": str(disk.path)}
    with (
        started_cluster(**place) as (cluster, _),
        open_engine("ray", address=cluster.address) as engine,
    ):
        blocks = engine.map(ray_work.ones, [20 << 20] * 20)
        pytest.raises(StorageError, list, engine.results(blocks)).match("make room on this disk")
        engine.cancel(blocks)
        del blocks
        disk.make_room()
        assert room_again(engine) == [20 << 20] * 3


def room_again(engine):
    """The sizes of three blocks; Ray looks at its disk now and then, so it may not know at once."""
    last = time.monotonic() + 60
    while True:
        blocks = engine.map(ray_work.ones, [20 << 20] * 3)
        try:
            return [len(block) for block in engine.results(blocks)]
        except StorageError:
            if time.monotonic() > last:
                raise
            engine.cancel(blocks)
            time.sleep(2)
