"""On a Ray cluster of two nodes: models on shards, members of ensembles, trials, predictions."""

import json
import os

import pytest

from labelgrove import Ensemble, Linear, TfidfParams, read_corpus
from labelgrove.data.formats import write_corpus
from labelgrove.data.formats.shards import read_shards
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError
from support.sharding import PARTS, SETTINGS, assert_same_bits, cut_into_shards, made, write_shards
from support.small_models import planted

pytestmark = pytest.mark.slow


def events(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def ensemble(*more):
    syllables = TfidfParams(analyzer="char_wb", ngram_range=(2, 3))
    return Ensemble([Linear(), Linear(tfidf=syllables), Linear(random_state=1), *more], rule="rank")


def test_members_have_the_bits_of_one_process(engine, tmp_path):
    texts, labels = planted()
    with RunFolder(tmp_path / "run") as run:
        model = ensemble().fit(texts, labels, run=run, engine=engine)
    assert_same_bits(ensemble().fit(texts, labels), model)
    done = [e for e in events(tmp_path / "run") if e["kind"] == "stage_computing"]
    assert sorted(e["stage"] for e in done) == ["ranker"] * 3 + ["tfidf"] * 2 + ["tree"] * 3
    assert all("by" in event for event in done)  # by workers, and each stage once
    with pytest.raises(ConfigError, match="n_trees: must be a whole number of at least 1"):
        ensemble(Linear(n_trees=0)).fit(texts, labels, engine=engine)


@pytest.mark.long_ray
def test_trials_are_those_of_one_process(engine):
    pytest.importorskip("optuna")
    from labelgrove import tune

    train = shop_corpus(600, labels=60)
    dev = shop_corpus(200, labels=60, part="dev").reindex(train.index)
    space = {"ranker.threshold": {"low": 0.05, "high": 1.5}, "n_trees": [1, 0]}
    settings = {"trials": 6, "space": space, "seed": 1}
    one, many = (tune("linear", train, dev, **settings, engine=e).trials for e in (None, engine))
    assert [(t.settings, t.value, t.note) for t in many] == [
        (t.settings, t.value, t.note) for t in one
    ]


EVERYTHING = os.environ.get("LABELGROVE_TEST_RAY") == "all"  # as `make test-ray` sets it
FEW = ["linear", "mined"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("corpora"))


@pytest.mark.parametrize("name", [*SETTINGS, *PARTS] if EVERYTHING else FEW)
def test_shards_give_the_same_bits(name, engine, corpora):
    whole, shards = corpora
    expected = made(name).fit(read_corpus(whole))
    assert_same_bits(expected, made(name).fit(read_shards(engine, shards)))


def test_a_corpus_in_memory_gives_the_same_bits(engine, corpora):
    corpus = read_corpus(corpora[0])
    assert_same_bits(made("two trees").fit(corpus), made("two trees").fit(corpus, engine=engine))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """test.jsonl, its shards, and a model."""
    path = tmp_path_factory.mktemp("shop")
    Linear().fit(shop_corpus(600, labels=60)).save(path / "model")
    write_corpus(shop_corpus(300, labels=60, part="test"), path / "test.jsonl")
    cut_into_shards(path, (path / "test.jsonl").read_bytes().splitlines(keepends=True), 70)
    return path


def test_predictions_have_the_bytes_of_one_process(engine, folder, tmp_path, call):
    model = folder / "model"
    call("predict", model, folder / "test.jsonl", "--out", tmp_path / "whole.jsonl")
    ray = ("--engine", "ray")  # this process is connected already
    call("predict", model, folder / "shards", *ray, "--out", tmp_path / "parts")
    files = sorted((tmp_path / "parts").iterdir())
    assert [file.name for file in files] == [f"part-{number:02}.jsonl" for number in range(5)]
    parts = b"".join(file.read_bytes() for file in files)
    assert parts == (tmp_path / "whole.jsonl").read_bytes()
