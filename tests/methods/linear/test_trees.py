"""The label side of the linear method: trees, weights, reuse of stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Corpus, LabelIndex, Linear, RankerParams, SearchParams, TreeParams
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, DataError

TEXTS = [f"{colour} {thing}" for colour in ("red", "blue", "green") for thing in ("hat", "shoe")]
LABELS = [text.split() for text in TEXTS]
SMALL = TreeParams(branching=2, max_leaf_size=2)


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_a_loaded_model_maps_its_files(storage: Any, tmp_path: Any) -> None:
    """So processes that load one folder share the memory of its weights."""
    ranker = RankerParams(threshold=0.0, storage=storage)
    Linear(tree=SMALL, ranker=ranker).fit(TEXTS, LABELS).save(tmp_path / "m")
    for level in labelgrove.load(tmp_path / "m").rankers()[0].levels:
        for name, array in level.arrays().items():
            assert not array.flags.owndata and not array.flags.writeable, name


def test_sample_weights_reach_the_ranker() -> None:
    texts, labels = ["same text"] * 3, [["a"], ["b"], ["b"]]
    model = Linear(ranker=RankerParams(eps=1e-3))
    assert model.fit(texts, labels).predict(["same"], k=1).names() == [["b"]]
    heavy = model.fit(texts, labels, sample_weight=[5, 1, 1])
    assert heavy.predict(["same"], k=1).names() == [["a"]]
    with pytest.raises(DataError, match="sample_weight"):
        Linear().fit(texts, labels, sample_weight=[1, 2])


def test_label_weights_count_as_costs_when_asked() -> None:
    texts, labels = ["same text"] * 3, [{"a": 5.0}, {"b": 0.5}, {"b": 0.5}]
    costing = Linear(ranker=RankerParams(eps=1e-3, label_weights="cost")).fit(texts, labels)
    assert costing.predict(["same"], k=1).names() == [["a"]]
    assert Linear().fit(texts, labels).predict(["same"], k=1).names() == [["b"]]


def test_rare_labels_gain_from_costs_by_propensity(tmp_path: Any) -> None:
    texts = ["red hat"] * 30 + ["red hat with a feather"] * 3
    labels = [["hat"]] * 30 + [["hat", "feather"]] * 3

    def model(**settings: Any) -> Linear:
        ranker = RankerParams(eps=1e-3, C=0.1, storage="float32", **settings)
        return Linear(ranker=ranker).fit(texts, labels)

    def score(model: Linear) -> float:
        return float(model.score_labels(["red feather"], ["feather"], raw=True)[0, 0])

    weighted = model(label_weights="propensity")
    assert score(weighted) > score(model())
    equal = model(label_weights="propensity", propensity_a=0.0)  # all costs are 1
    assert score(equal) == score(model())
    weighted.save(tmp_path / "model")
    ranker = labelgrove.load(tmp_path / "model").ranker
    assert (ranker.label_weights, ranker.propensity_a) == ("propensity", 0.55)
    with pytest.raises(ConfigError, match=r"ranker\.propensity_b: has no effect, label_weights is"):
        model(propensity_b=2.6)
    with pytest.raises(ConfigError, match=r"ranker\.propensity_b: must be greater than 0"):
        model(label_weights="propensity", propensity_b=0.0)


def test_a_dense_block_needs_memory() -> None:
    few = Corpus.from_lists(TEXTS, LABELS)
    wide = few.with_dense(np.zeros((len(few), 10_000), np.float16))
    assert Linear().estimate_memory(wide) - Linear().estimate_memory(few) > 4 * 10_000 * len(few)
    alone = Corpus(None, few.labels, few.index, features=wide.features)
    assert Linear().estimate_memory(alone) < Linear().estimate_memory(wide)


def test_labels_with_like_names_share_a_cluster() -> None:
    index = LabelIndex("abcd", names=["red hat", "green shoe", "blue hat", "blue shoe"])
    texts, labels = [*TEXTS, "x"], [["a"], [], ["c"], ["d"], [], ["b"], []]
    tree = TreeParams(branching=2, max_leaf_size=2, label_features="text")
    found = Linear(tree=tree).fit(texts, labels, index=index).rankers()[0].tree
    assert {frozenset(found.leaf_labels[:2]), frozenset(found.leaf_labels[2:])} in (
        {frozenset({0, 2}), frozenset({1, 3})},
        {frozenset({0, 1}), frozenset({2, 3})},  # both share the colour blue
    )
    with pytest.raises(ConfigError, match="fitted on texts"):
        Linear(tree=tree).fit(np.eye(6), LABELS)


def made(run: RunFolder) -> list[str]:
    return sorted(stage.name for stage in run.status().stages)


def test_stages_are_reused_tree_by_tree(tmp_path: Any) -> None:
    with RunFolder(tmp_path / "run") as run:
        one = Linear(tree=SMALL).fit(TEXTS, LABELS, run=run)
        assert made(run) == ["ranker", "tfidf", "tree"]
        two = Linear(tree=SMALL, n_trees=2).fit(TEXTS, LABELS, run=run)
        assert made(run) == ["ranker", "ranker-1", "tfidf", "tree", "tree-1"]
        assert two.rankers_[0].tree == one.rankers()[0].tree
        Linear(tree=SMALL).fit(TEXTS, LABELS, run=run, sample_weight=np.arange(1, 7))
        Linear(tree=SMALL).fit(TEXTS, LABELS, run=run, label_tree=two.rankers_[1].tree)
        assert made(run).count("ranker") == 3
        assert made(run).count("tree") == 1
        mining = RankerParams(negatives="tfn+man")
        for beam in (2, 3):
            search = SearchParams(beam=beam)
            Linear(tree=SMALL, search=search).fit(TEXTS, LABELS, run=run)
            Linear(tree=SMALL, search=search, ranker=mining).fit(TEXTS, LABELS, run=run)
        assert made(run).count("ranker") == 5  # the beam matters only where it mines
