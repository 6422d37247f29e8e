"""Machines and workers that go away while a model is trained or used: the result is the same."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labelgrove import Linear, load
from labelgrove.data.formats import read_corpus
from labelgrove.data.formats.jsonl import dump_document
from labelgrove.data.formats.shards import read_shards
from labelgrove.data.shop import shop_documents
from support.sharding import assert_same_bits, cut_into_shards

pytestmark = [pytest.mark.slow, pytest.mark.long_ray]
DOCUMENTS, LABELS, SHARDS = 3000, 300, 6


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A shop's documents as one file and as shards."""
    lines = [dump_document(each) for each in shop_documents(DOCUMENTS, labels=LABELS)]
    return cut_into_shards(tmp_path_factory.mktemp("shop"), lines, DOCUMENTS // SHARDS)


def model():
    return Linear.from_config({"tree": {"max_leaf_size": 8}, "ranker": {"mined_levels": "all"}})


@pytest.fixture(scope="module")
def expected(corpora):
    return model().fit(read_corpus(corpora[0]))


def once(stage, kind, action):
    """A callback that acts at the first such event, and the list of its acts."""
    acts = []

    def act(event):
        if event.stage == stage and event.kind == kind and not acts:
            acts.append(event)
            action()

    return act, acts


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        ("tfidf", "stage_start"),
        ("tree", "progress"),
        ("ranker", "stage_start"),
        ("ranker", "progress"),
    ],
)
def test_a_lost_machine_changes_no_bit(stage, kind, lossy, corpora, expected):
    cluster, node, engine = lossy
    data = read_shards(engine, corpora[1])
    act, acts = once(stage, kind, lambda: cluster.remove_node(node, allow_graceful=False))
    trained = model().fit(data, callbacks=[act])
    assert acts
    assert_same_bits(expected, trained)


def test_predictions_survive_a_lost_machine(lossy, corpora, expected, tmp_path):
    from labelgrove.cli.options import Inputs, Request
    from labelgrove.cli.predict import PredictionJob
    from labelgrove.data.formats import ReadOptions

    cluster, node, engine = lossy
    expected.save(tmp_path / "model")
    inputs = Inputs(device="cpu")
    job = PredictionJob(tmp_path / "model", Request(k=5), inputs, ReadOptions(), threads=1)
    pairs = [
        (str(shard), str(tmp_path / f"out-{shard.name}")) for shard in sorted(corpora[1].iterdir())
    ]
    documents = 0
    for number, done in enumerate(engine.stream(job.worker, pairs)):
        documents += done.documents
        if number == 0:
            cluster.remove_node(node, allow_graceful=False)
    assert documents == DOCUMENTS
    rows = [json.loads(line) for _, out in pairs for line in Path(out).read_text().splitlines()]
    best = expected.predict(read_corpus(corpora[0]), k=5)
    assert [row["labels"] for row in rows] == best.names()
    assert not list(tmp_path.glob(".*"))


def test_a_killed_driver_goes_on_with_resume(corpora, tmp_path):
    """The command itself is killed when the rankers begin; --resume reuses what was finished."""
    command = [sys.executable, "-m", "labelgrove", "train", corpora[1], "--engine", "ray"]
    command += ["--workers", "2", "--out", tmp_path / "model", "--set", "tree.max_leaf_size=8"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    stages = tmp_path / "model.run"
    while not list(stages.glob("**/tree*")) and process.poll() is None:
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert not (tmp_path / "model").exists()
    done = subprocess.run(
        [*map(str, command), "--resume", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reused"] == ["tfidf", "tree"]
    one = Linear.from_config({"tree": {"max_leaf_size": 8}}).fit(read_corpus(corpora[0]))
    assert_same_bits(one, load(tmp_path / "model"))
