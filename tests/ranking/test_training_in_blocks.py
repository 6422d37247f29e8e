"""Rankers trained in blocks of documents and groups of clusters, in memory and in files."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import scratch as blocks
from labelgrove.core.scratch import Scratch
from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.ranking import solver
from labelgrove.ranking.ranker import train_ranker
from labelgrove.ranking.solver import RankerParams


def problem(documents=200, labels=40):
    rng = np.random.default_rng(0)
    y = sparse.csr_array((rng.random((documents, labels)) < 2 / labels).astype(np.float32))
    y.data = rng.uniform(0.5, 2, y.nnz).astype(np.float32)
    noise = rng.random((documents, labels)) < 0.05
    return sparse.csr_array((y.toarray() + noise).astype("f4")), y


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"negatives": "man", "mined_levels": "all", "storage": "int8"},
        {"negatives": "tfn", "relevance": "induce", "storage": "float32"},
        {"relevance": "last-level", "label_weights": "cost"},
        {"label_weights": "propensity", "label_C": 2.0, "max_nonzeros": 5},
    ],
)
@pytest.mark.parametrize("extra", ["none", "weights", "shortlist"])
def test_blocks_do_not_change_a_bit(tmp_path, monkeypatch, settings, extra):
    x, y = problem()
    tree = build_tree(y.T, TreeParams(branching=4, max_leaf_size=4))
    rng = np.random.default_rng(1)
    given = {"params": RankerParams(**settings)}
    if extra == "weights":
        given["sample_weight"] = rng.integers(0, 3, len(y.indptr) - 1)
    elif extra == "shortlist":
        given["shortlist"] = sparse.csr_array((rng.random(y.shape) < 0.2).astype(np.float32))
    whole = train_ranker(x, y, tree, **given).state()
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 33)
    monkeypatch.setattr(solver, "GROUP_NODES", 7)
    for place in (Scratch(), Scratch(tmp_path)):
        parts = train_ranker(x, y, tree, **given, scratch=place).state()
        assert parts.config == whole.config
        for name, array in whole.arrays.items():
            assert array.dtype == parts.arrays[name].dtype
            assert np.array_equal(array, parts.arrays[name]), name


def test_clusters_of_more_than_256_labels_have_the_same_types_in_all_groups(tmp_path, monkeypatch):
    x, y = problem(documents=300, labels=400)
    tree = build_tree(y.T, TreeParams(kind="kway", branching=2, max_leaf_size=300, max_depth=2))
    widths = np.diff(tree.children(len(tree.parents) - 1))
    assert widths.min() <= 256 < widths.max()
    whole = train_ranker(x, y, tree).state()
    monkeypatch.setattr(solver, "GROUP_NODES", 1)
    parts = train_ranker(x, y, tree, scratch=Scratch(tmp_path)).state()
    for name, array in whole.arrays.items():
        assert array.dtype == parts.arrays[name].dtype
        assert np.array_equal(array, parts.arrays[name]), name
