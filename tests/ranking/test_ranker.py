import signal

import numpy as np
import pytest
from scipy import sparse

from labelgrove.data.features import Features
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import pifa
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
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
    one, three = (on_threads(t, train_ranker, x, y, tree, seed=5).state() for t in (1, 3))
    assert one.config == three.config
    for name, array in one.arrays.items():
        assert np.array_equal(array, three.arrays[name]), name

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
    for name, array in fewer.state().arrays.items():
        assert np.array_equal(array, left_out.state().arrays[name]), name


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
