"""Rankers, trained at once or in pieces by workers, whose bits are the same."""

import signal

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core import scratch
from labelgrove.core.scratch import Scratch
from labelgrove.data.blocks import Blocks, even_cuts
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import pifa
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.ranking import solver
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams, solve_level
from reference.ranker import train_shortlisted
from reference.solver import level_weights
from support.threads import on_threads


def planted(labels=60, documents=400, seed=0):
    """Every label has three words of its own; a document holds the words of its labels."""
    rng = np.random.default_rng(seed)
    y = sparse.csr_array((rng.random((documents, labels)) < 2 / labels).astype(np.float32))
    words = np.kron(np.eye(labels), np.ones((1, 3)))
    x = sparse.csr_array((y @ words + (rng.random((documents, 3 * labels)) < 0.01)).astype("f4"))
    return x, y


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge", "logistic"])
@pytest.mark.parametrize("leaf", [4, 1000])
def test_planted_labels_are_found(loss, leaf):
    x, y = planted()
    tree = build_tree(pifa(x, y), TreeParams(branching=4, max_leaf_size=leaf))
    # Logistic loss hardly separates from a handful of documents unless errors cost more.
    ranker = train_ranker(x, y, tree, RankerParams(loss=loss, C=10.0))
    has_label = np.diff(y.indptr) > 0
    first = ranker.search(x, k=1)[0][:, 0]
    hits = y.toarray()[np.arange(len(first)), first][has_label]
    assert hits.mean() > 0.95


def test_bits_depend_on_neither_threads_nor_the_disk():
    x, y = planted()
    tree = build_tree(pifa(x, y), TreeParams(branching=4, max_leaf_size=4))
    same(*(on_threads(t, train_ranker, x, y, tree, seed=5) for t in (1, 3)))

    ranker = train_ranker(x, y, tree)
    again = Ranker.from_state(ranker.state())
    for a, b in zip(ranker.search(x, k=5), again.search(x, k=5), strict=True):
        assert np.array_equal(a, b)
    assert again.levels[0].values is ranker.levels[0].values  # no copies: memory maps stay maps


@pytest.mark.parametrize("labels", [1, 2])
def test_very_few_labels(labels):
    x = sparse.csr_array(np.eye(4, dtype=np.float32))
    y = sparse.csr_array(np.eye(4, labels, dtype=np.float32))
    ranker = train_ranker(x, y, build_tree(pifa(x, y)))
    columns, _, counts = ranker.search(x, k=3)
    assert (counts == labels).all()
    assert columns[0, 0] == 0


def test_labels_and_documents_without_anything():
    x, y = planted(labels=20, documents=100)
    y = y.toarray()
    y[:, 7] = 0
    x = x.toarray()
    x[5] = 0
    tree = build_tree(pifa(x, y), TreeParams(branching=2, max_leaf_size=2))
    columns, scores, _ = train_ranker(x, y, tree).search(x, k=20)
    assert np.isfinite(scores).all()
    place_of_unseen = np.argmax(columns == 7, axis=1)
    assert place_of_unseen[y.sum(axis=1) > 0].min() > 0


def test_progress_ends_at_the_total_and_an_interrupt_gets_through():
    x, y = planted()
    tree = build_tree(pifa(x, y), TreeParams(branching=4, max_leaf_size=4))
    calls = []
    train_ranker(x, y, tree, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1] == 1 + sum(tree.widths[:-1])

    def stop(done, total):
        raise KeyboardInterrupt

    x, y = planted(labels=5, documents=30)
    pytest.raises(KeyboardInterrupt, train_ranker, x, y, build_tree(pifa(x, y)), progress=stop)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_progress_moves_within_a_level(threads):
    rng = np.random.default_rng(0)
    x = sparse.random_array((3000, 3000), density=0.02, rng=rng, format="csr")
    y = sparse.random_array((3000, 1200), density=0.01, rng=rng, format="csr")
    one_level = LabelTree([[0] * 1200], list(range(1200)))
    calls = []
    options = {"params": RankerParams(eps=0.05), "progress": lambda *pair: calls.append(pair)}
    on_threads(threads, train_ranker, x, y, one_level, **options)
    shares = [done for done, _ in calls]
    assert len(shares) >= 3 and shares == sorted(set(shares))
    assert 0 < shares[0] < 1 and shares[-1] == 1
    assert {total for _, total in calls} == {1}


def hybrid(seed=0, documents=40, terms=9, width=5):
    """Sparse and dense features, and labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((documents, terms + width)).astype(np.float32)
    x[:, :terms] *= rng.random((documents, terms)) < 0.5
    y = (rng.random((documents, 6)) < 0.3).astype(float)
    y[0] = 1
    features = Features(sparse.csr_array(x[:, :terms]), x[:, terms:])
    return x, features, y


TREE = LabelTree([[0, 0, 0], [0, 0, 1, 1, 1, 2]], [3, 0, 5, 1, 4, 2])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", ["labels", "clusters"])
def test_shortlist_and_both_blocks_agree_with_the_literal_version(seed, by):
    x, features, y = hybrid(seed)
    rng = np.random.default_rng(seed)
    params = RankerParams(
        C=0.5, dense_C=2.0, positive_weight=1.5, threshold=0, eps=1e-5, max_iterations=20_000
    )  # fmt: skip
    if by == "labels":
        shortlist = (rng.random(y.shape) < 0.4).astype(float)
        seen = shortlist
    else:
        shortlist = (rng.random((len(y), 3)) < 0.5).astype(float)
        seen = np.zeros(y.shape)
        seen[:, TREE.leaf_labels] = shortlist[:, TREE.parents[1]]
    ranker = train_ranker(features, y, TREE, params, shortlist=shortlist)
    scales = np.repeat([1.0, 2.0], [9, 5])
    expected = train_shortlisted(
        x, y, seen, C=0.5, positive_weight=1.5, scales=scales
    )[TREE.leaf_labels]  # fmt: skip
    found = level_weights(ranker.levels[-1], TREE.children(1), 9, 5)
    np.testing.assert_allclose(found, expected[:, :-1], atol=5e-3)
    np.testing.assert_allclose(ranker.levels[-1].bias, expected[:, -1], atol=5e-3)


def test_a_shortlist_survives_documents_left_out():
    _, features, y = hybrid()
    weight = np.ones(len(y))
    weight[[3, 7]] = 0
    kept = np.flatnonzero(weight)
    left_out = train_ranker(features, y, TREE, sample_weight=weight, shortlist=y)
    fewer = train_ranker(features.take(kept), y[kept], TREE, shortlist=y[kept])
    same(fewer, left_out)


def test_a_shortlist_trains_the_last_level_alone():
    _, features, y = hybrid()
    alone = train_ranker(features, y, TREE, shortlist=np.ones(y.shape))
    assert [len(level.values) > 0 for level in alone.levels] == [False, True]


def test_bad_input_is_refused():
    tree = LabelTree([[0, 0]], [0, 1])
    pytest.raises(DataError, train_ranker, np.eye(3), np.eye(2), tree).match("3 rows but labels")
    pytest.raises(DataError, train_ranker, np.eye(3), np.eye(3), tree).match("3 columns but the")
    with pytest.raises(DataError, match="no documents"):
        train_ranker(np.zeros((0, 2)), np.zeros((0, 2)), tree)
    with pytest.raises(ConfigError, match=r"ranker\.C"):
        train_ranker(np.eye(2), np.eye(2), tree, RankerParams(C=-1.0))
    pytest.raises(DataError, train_ranker, np.full((2, 2), np.nan), np.eye(2), tree).match("NaN")

    _, features, y = hybrid()
    for options, message in [
        ({"shortlist": np.ones((40, 4))}, "x 3 clusters or x 6 labels"),
        ({"shortlist": np.ones((39, 6))}, "40 documents"),
    ]:
        pytest.raises(DataError, train_ranker, features, y, TREE, **options).match(message)


def test_labels_may_have_a_C_of_their_own():
    x, y = planted()
    tree = build_tree(pifa(x, y), TreeParams(branching=4, max_leaf_size=4))
    settings = {"negatives": "tfn"}
    plain, more, mixed = (
        train_ranker(x, y, tree, RankerParams(**settings, **costs)).levels
        for costs in ({"C": 1.0}, {"C": 5.0}, {"C": 1.0, "label_C": 5.0})
    )
    for upper, wanted in zip(mixed[:-1], plain[:-1], strict=True):
        assert np.array_equal(upper.values, wanted.values)
    assert np.array_equal(mixed[-1].values, more[-1].values)
    assert not np.array_equal(mixed[-1].values[:50], plain[-1].values[:50])


def test_finished_levels_are_kept_when_training_is_interrupted(tmp_path, monkeypatch):
    x, y = planted()
    tree = build_tree(pifa(x, y), TreeParams(branching=4, max_leaf_size=4))

    def interrupt(done, total):
        if done == total:
            raise KeyboardInterrupt

    assert len(tree.widths) > 2
    with pytest.raises(KeyboardInterrupt):
        train_ranker(x, y, tree, progress=interrupt, checkpoints=tmp_path / "levels")
    solved = []

    def counted(features, task, **options):
        solved.append(task.children)
        return solve_level(features, task, **options)

    monkeypatch.setattr("labelgrove.ranking.ranker.solve_level", counted)
    resumed = train_ranker(x, y, tree, checkpoints=tmp_path / "levels")
    assert len(solved) == 1  # the last level, which was not finished
    whole = train_ranker(x, y, tree).state().arrays
    assert all(np.array_equal(array, whole[name]) for name, array in resumed.state().arrays.items())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="POSIX timers")
def test_a_signal_ends_a_level_that_would_take_for_ever(threads):
    class Pressed(Exception):
        pass

    def handler(number, frame):
        raise Pressed

    random = np.random.default_rng(0)
    x = random.standard_normal((6000, 4)).astype(np.float32)
    y = random.integers(0, 2, (6000, 8))
    endless = RankerParams(eps=1e-30, max_iterations=2**31 - 1, C=1e3)
    usual = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Pressed):
            on_threads(threads, train_ranker, x, y, LabelTree([[0] * 8], range(8)), endless)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


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
