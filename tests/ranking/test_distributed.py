"""A ranker trained in pieces has the bits of one trained at once."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import scratch
from labelgrove.core.scratch import Scratch
from labelgrove.data.blocks import Blocks, even_cuts
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.errors import DataError
from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.ranking import solver
from labelgrove.ranking.ranker import train_ranker
from labelgrove.ranking.solver import RankerParams


class Workers(Engine):
    workers = 3


def problem(width=0, terms=60):
    random = np.random.default_rng(5)
    x = sparse.random_array((150, terms), density=0.1, rng=random, format="csr") if terms else None
    dense = random.normal(size=(150, width)).astype(np.float32) if width else None
    y = sparse.random_array((150, 23), density=0.08, rng=random, format="csr")
    y.data[:] = random.integers(1, 4, y.nnz)
    return Features(x, dense), y


def same(one, other):
    mine, others = one.state(), other.state()
    assert mine.config == others.config
    assert mine.arrays.keys() == others.arrays.keys()
    for name, array in mine.arrays.items():
        assert array.dtype == others.arrays[name].dtype
        np.testing.assert_array_equal(array, others.arrays[name], err_msg=name)


SETTINGS = [
    {},
    {"negatives": "tfn", "storage": "float32"},
    {"negatives": "man", "mined_levels": "all", "mined_nodes": None},
    {"mined_levels": "all", "relevance": "induce", "mined_nodes": 2},
    {"label_weights": "cost", "loss": "hinge", "max_nonzeros": 5},
    {"label_weights": "propensity", "loss": "logistic", "label_C": 2.0},
    {"bias": 0.0, "relevance": "induce", "positive_weight": 2.0},
]


@pytest.mark.parametrize("extra", ["none", "weights", "shortlist", "dense", "dense alone"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_pieces_do_not_change_a_bit(settings, extra, tmp_path, monkeypatch):
    """Blocks of documents and groups of clusters, in memory, in files and with an engine."""
    x, y = problem(*{"dense": (4, 60), "dense alone": (4, 0)}.get(extra, (0, 60)))
    tree = build_tree((y.T @ x.to_csr()).tocsr(), TreeParams(branching=2, max_leaf_size=3))
    random = np.random.default_rng(1)
    given = {"params": RankerParams(**settings), "seed": 3}
    if extra != "none":
        given["sample_weight"] = random.integers(0, 3, y.shape[0]).astype(np.float32)
    if extra == "shortlist":
        given["shortlist"] = sparse.random_array(y.shape, density=0.1, rng=random, format="csr")
    whole = train_ranker(x, y, tree, **given)
    for rows in (7, 150):
        same(whole, train_ranker(Blocks.cut(Workers(), x, rows), y, tree, **given))
    monkeypatch.setattr(scratch, "BLOCK_ROWS", 33)
    monkeypatch.setattr(solver, "GROUP_NODES", 7)
    for place in (Scratch(), Scratch(tmp_path)):
        same(whole, train_ranker(x, y, tree, **given, scratch=place))


def test_clusters_of_more_than_256_labels_have_the_same_types_in_all_groups(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    x = sparse.random_array((300, 400), density=0.05, rng=random, format="csr")
    y = sparse.random_array((300, 400), density=0.005, rng=random, format="csr")
    params = TreeParams(kind="kway", branching=2, max_leaf_size=300, max_depth=2)
    tree = build_tree(y.T, params)
    widths = np.diff(tree.children(len(tree.parents) - 1))
    assert widths.min() <= 256 < widths.max()
    whole = train_ranker(x, y, tree)
    monkeypatch.setattr(solver, "GROUP_NODES", 1)
    same(whole, train_ranker(x, y, tree, scratch=Scratch(tmp_path)))


def test_a_worker_gets_only_the_rows_of_its_clusters():
    x, y = problem()
    tree = build_tree((y.T @ x.sparse).tocsr(), TreeParams(branching=2, max_leaf_size=3))
    sizes = []

    class Watching(Workers):
        def call(self, function, *arguments):
            if function.__name__ == "solve_part":
                sizes.append(sum(len(part.value) for part in arguments[2:]))
            return super().call(function, *arguments)

    train_ranker(Blocks.cut(Watching(), x, 50), y, tree, RankerParams(negatives="tfn"))
    assert sizes[0] == 150  # every document belongs to the root
    assert max(sizes[-4:]) < 150


def test_progress_counts_parents():
    x, y = problem()
    tree = build_tree((y.T @ x.sparse).tocsr(), TreeParams(branching=2, max_leaf_size=3))
    calls = []
    blocks = Blocks.cut(Workers(), x, 50)
    train_ranker(blocks, y, tree, progress=lambda done, total: calls.append((done, total)))
    total = 1 + sum(tree.widths[:-1])
    assert calls[-1] == (total, total)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_what_blocks_cannot_do_is_an_error():
    x, y = problem()
    tree = build_tree((y.T @ x.sparse).tocsr())
    with pytest.raises(DataError, match="features have 150 rows but labels have 149"):
        train_ranker(Blocks.cut(Workers(), x), y[:149], tree)
    assert even_cuts([1] * 6, 3).tolist() == [0, 2, 4, 6]
    assert even_cuts([0, 0, 9, 0], 4).tolist() == [0, 3, 4]
    assert even_cuts([1], 8).tolist() == [0, 1]
