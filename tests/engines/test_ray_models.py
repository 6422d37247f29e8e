"""Many models on a Ray cluster of two nodes: members of ensembles, trials of a search."""

import json

import pytest

from labelgrove import Ensemble, Linear, TfidfParams
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError
from support.sharding import assert_same_bits
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
