"""Beam search: against its literal version, with every kind of features and stored weights."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr, csr_parts
from labelgrove.data.features import Features
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import pifa
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.ranking.beam import POST_PROCESSORS, BeamSearch, SearchParams
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.weights import ChunkedWeights, compress
from reference import beam as reference
from support.threads import on_threads

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    y = sparse.csr_array(rng.random((300, 37)) < 0.06)
    x = sparse.csr_array(y @ (rng.random((37, 50)) < 0.15) + (rng.random((300, 50)) < 0.05))
    x = sparse.csr_array(x.toarray().astype(np.float32) * (np.arange(300) >= 3)[:, None])
    tree = build_tree(pifa(x, y), TreeParams(branching=3, max_leaf_size=5), seed=1)
    return x, train_ranker(x, y, tree)


@given(
    allowed=st.sets(st.integers(0, 36), min_size=1),
    k=st.integers(1, 40),
    post_processor=st.sampled_from(POST_PROCESSORS),
)
@settings(max_examples=60)
def test_masks_leave_what_exact_search_finds_among_the_allowed(trained, allowed, k, post_processor):
    x, ranker = trained
    mask = LabelMask.from_columns(sorted(allowed), 37)
    exact = SearchParams(exact=True, post_processor=post_processor)
    columns, scores, counts = ranker.search(x[:20], k=k, params=exact, allow=mask)
    everything = ranker.search(x[:20], k=37, params=exact)
    assert (counts == min(k, len(allowed))).all()
    for row in range(20):
        score_of = dict(zip(everything[0][row].tolist(), everything[1][row], strict=True))
        # Scores may round to equal products; which of those labels is cut off is not looked at.
        assert scores[row].tolist() == sorted((score_of[c] for c in allowed), reverse=True)[:k]
        assert scores[row].tolist() == [score_of[c] for c in columns[row]]
    narrow = SearchParams(beam=1, post_processor=post_processor)
    columns, _, counts = ranker.search(x[:20], k=k, params=narrow, allow=mask)
    assert (counts == min(k, len(allowed))).all()  # the beam widens where masks leave too few
    assert set(columns.ravel().tolist()) <= allowed


def test_exact_search_equals_a_beam_that_holds_everything(trained):
    x, ranker = trained
    exact = ranker.search(x, k=37, params=SearchParams(exact=True))
    wide = ranker.search(x, k=37, params=SearchParams(beam=1000))
    assert all(np.array_equal(a, b) for a, b in zip(exact, wide, strict=True))


def test_bad_arguments(trained):
    x, ranker = trained
    for wrong in ([-1], [37], [0.5]):
        pytest.raises(DataError, ranker.score, x, wrong).match("columns: ")
    with pytest.raises(DataError, match="not 300 documents x 37 labels"):
        ranker.score(x, sparse.csr_array((300, 36)))
    for beam, message in [
        ([1] * 9, "9 numbers but the tree has 3 levels"),
        ([], "0 numbers"),
        ([3, 0], r"search\.beam"),
        (0, r"search\.beam"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ranker.search(x, k=1, params=SearchParams(beam=beam))
    pytest.raises(ConfigError, ranker.search, x, k=0).match("k: must be at least 1")
    with pytest.raises(DataError, match=r"outside 0\.\.9"):
        BeamSearch(ranker.tree, ranker.levels, features=10, bias=1.0)


def test_documents_without_features_and_no_documents(trained):
    _, ranker = trained
    columns, _, counts = ranker.search(sparse.csr_array((2, 50)), k=4)
    assert counts.tolist() == [4, 4]
    assert np.array_equal(columns[0], columns[1])
    columns, _, counts = ranker.search(sparse.csr_array((0, 50)), k=4)
    assert columns.shape == (0, 4) and counts.shape == (0,)


def test_equal_scores_come_in_column_order():
    tree = LabelTree([[0, 0], [0, 0, 1, 1]], [3, 1, 2, 0])
    levels = [ChunkedWeights.empty(tree.children(number)) for number in range(2)]
    ranker = Ranker(tree, levels, features=1, bias=1.0)
    assert ranker.search([[1.0]], k=3, params=SearchParams(exact=True))[0].tolist() == [[0, 1, 2]]


STORAGES = ["float32", "float16"]
TERMS = 40


def compressed(ranker, storage):
    levels = [compress(w, ranker.tree.children(n), storage) for n, w in enumerate(ranker.levels)]
    return ranker.with_levels(ranker.tree, levels)


def random_ranker(*, terms, width, seed=0, labels=70, rows_per_chunk=25):
    """A tree with clusters of many sizes and random weights; rows are sparse or full."""
    rng = np.random.default_rng(seed)
    clusters = [1, 2, 7, 8, 9, 16, 27]
    assert sum(clusters) == labels
    parents = [[0, 0, 0], [0, 0, 0, 1, 1, 2, 2], np.repeat(np.arange(7), clusters)]
    tree = LabelTree(parents, rng.permutation(labels))
    levels = []
    for number in range(3):
        children = tree.children(number)
        nodes, features = [], []
        for first, last in pairwise(children.tolist()):
            for term in rng.permutation(terms)[:rows_per_chunk]:
                filled = last - first if rng.random() < 0.4 else rng.integers(1, last - first + 1)
                nodes.extend(first + rng.permutation(last - first)[:filled])
                features.extend([term] * filled)
        level = ChunkedWeights.from_entries(
            np.array(nodes, np.int64),
            np.array(features, np.int64),
            rng.normal(size=len(nodes)).astype(np.float32),
            children,
            bias=rng.normal(size=children[-1]).astype(np.float32),
        )
        dense = (0.3 * rng.normal(size=width * children[-1])).astype(np.float16)
        levels.append(replace(level, dense=dense))
    return Ranker(tree, levels, features=terms, bias=0.7, width=width)


def random_documents(*, terms, width, rows=60, seed=1, dtype=np.float32):
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((rows, terms), density=0.3, rng=rng, dtype=np.float32)
    return Features(
        matrix if terms else None, rng.normal(size=(rows, width)).astype(dtype) if width else None
    )


BLOCKS = {"sparse": (TERMS, 0), "dense": (0, 19), "both": (TERMS, 19)}


@pytest.fixture(scope="module", params=BLOCKS)
def case(request):
    terms, width = BLOCKS[request.param]
    ranker = random_ranker(terms=terms, width=width)
    return random_documents(terms=terms, width=width), ranker


def assert_found(found, expected, row):
    columns, scores, counts = (part[row] for part in found)
    assert counts == len(expected)
    np.testing.assert_allclose(scores[:counts], [s for s, _ in expected], rtol=3e-4, atol=1e-6)
    for column, (score, wanted) in zip(columns[:counts], expected, strict=True):
        tolerance = 1e-3 * max(1e-3, abs(score))
        near = [c for s, c in expected if abs(s - score) <= tolerance]
        # Labels that nearly tie with the last one may have been cut off in the other version.
        cut = abs(score - expected[-1][0]) <= tolerance
        assert column == wanted or column in near or cut


@given(
    beam=st.one_of(st.integers(1, 8), st.lists(st.integers(1, 6), min_size=1, max_size=3)),
    k=st.integers(1, 75),
    post_processor=st.sampled_from(POST_PROCESSORS),
    last_level=st.sampled_from(["same", "noop"]),
    row=st.integers(0, 59),
    allowed=st.one_of(st.none(), st.sets(st.integers(0, 69), min_size=1)),
    storage=st.sampled_from(STORAGES),
)
@settings(max_examples=60)
def test_agrees_with_the_literal_version(
    case, beam, k, post_processor, last_level, row, allowed, storage
):
    documents, ranker = case
    ranker = compressed(ranker, storage)
    params = SearchParams(beam=beam, post_processor=post_processor, last_level=last_level)
    mask = None if allowed is None else LabelMask.from_columns(sorted(allowed), 70)
    found = ranker.search(documents.take([row]), k=k, params=params, allow=mask)
    expected = reference.search(
        ranker,
        documents.take([row]).to_csr().toarray()[0],
        k=k,
        beam=beam,
        post_processor=post_processor,
        last_level=last_level,
        allowed=allowed,
    )
    # Where margins decide between nodes that nearly tie, rounding may lead down another path.
    assert_found(found, expected, 0)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_documents_result_depends_on_neither_company_nor_threads(blocks, dtype, storage):
    terms, width = BLOCKS[blocks]
    ranker = compressed(random_ranker(terms=terms, width=width), storage)
    documents = random_documents(terms=terms, width=width, dtype=dtype)
    for params in (SearchParams(), SearchParams(beam=2), SearchParams(exact=True)):
        together = on_threads(1, ranker.search, documents, k=9, params=params)
        threaded = on_threads(3, ranker.search, documents, k=9, params=params)
        alone = [ranker.search(documents.take([row]), k=9, params=params) for row in range(60)]
        for part in range(3):
            assert np.array_equal(together[part], threaded[part])
            assert np.array_equal(together[part], np.concatenate([one[part] for one in alone]))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("post_processor", POST_PROCESSORS)
@pytest.mark.parametrize("last_level", ["same", "noop"])
def test_scores_of_given_labels_are_those_that_search_finds(
    case, post_processor, last_level, storage
):
    documents, ranker = case
    ranker = compressed(ranker, storage)
    params = SearchParams(post_processor=post_processor, last_level=last_level, exact=True)
    columns, scores, _ = ranker.search(documents, k=70, params=params)
    assert (params.score_kind == "product") == (scores.min() >= 0 and scores.max() <= 1)
    expected = np.empty_like(scores)
    np.put_along_axis(expected, columns, scores, axis=1)
    labels = [3, 60, 3]
    assert np.array_equal(ranker.score(documents, labels, params=params), expected[:, labels])
    pattern = sparse.random_array((60, 70), density=0.2, rng=np.random.default_rng(3)).tocsr()
    rows = np.repeat(np.arange(60), np.diff(pattern.indptr))
    for threads in (1, 3):
        found = on_threads(threads, ranker.score, documents, pattern, params=params)
        assert np.array_equal(found.data, expected[rows, found.indices])
    assert ranker.score(documents, [], params=params).shape == (60, 0)


@pytest.mark.parametrize("storage", STORAGES)
def test_state_keeps_blocks_and_storage(case, storage):
    documents, ranker = case
    ranker = compressed(ranker, storage)
    again = Ranker.from_state(ranker.state())
    assert again.width == ranker.width
    assert again.levels[0].values.dtype == storage
    for one, other in zip(ranker.search(documents), again.search(documents), strict=True):
        assert np.array_equal(one, other)


def test_children_are_bytes_only_where_clusters_are_small():
    tree = LabelTree([np.zeros(300, int)], np.arange(300))
    nodes = np.arange(300)
    level = ChunkedWeights.from_entries(nodes, 0 * nodes, nodes.astype("f4"), np.array([0, 300]))
    for storage in STORAGES:
        ranker = compressed(Ranker(tree, [level], features=1, bias=1.0), storage)
        assert ranker.levels[0].children.dtype == np.uint16
        params = SearchParams(post_processor="noop")
        assert ranker.search([[2.0]], k=2, params=params)[0].tolist() == [[299, 298]]
    small = compressed(random_ranker(terms=TERMS, width=0), "float32")
    assert small.levels[2].children.dtype == "u1"


def test_all_kinds_of_documents():
    wanted = {}
    for blocks, (terms, width) in BLOCKS.items():
        ranker, documents = (
            make(terms=terms, width=width) for make in (random_ranker, random_documents)
        )
        wanted[blocks] = ranker, documents, ranker.search(documents, k=4)
    ranker, documents, found = wanted["sparse"]
    parts = csr_parts(as_csr(documents.sparse))
    for given_as in (documents.sparse, documents.sparse.toarray(), parts, documents.parts()):
        assert np.array_equal(ranker.search(given_as, k=4)[1], found[1])
    ranker, documents, found = wanted["dense"]
    for given_as in (documents.dense, as_csr(documents.dense), documents.parts()):
        assert np.array_equal(ranker.search(given_as, k=4)[1], found[1])
    ranker, documents, found = wanted["both"]
    assert np.array_equal(ranker.search(documents.parts(), k=4)[1], found[1])


@pytest.mark.parametrize(
    ("blocks", "documents", "message"),
    [
        ("sparse", np.eye(3), "3 features but the model knows 40 features"),
        ("dense", np.eye(3), "3 dense features but the model knows 19 dense features"),
        ("dense", sparse.eye_array(3), "3 dense features but the model knows 19 dense"),
        ("both", np.eye(3), "3 dense features but the model knows 40 sparse and 19 dense"),
        ("both", sparse.eye_array(3), "3 features but the model knows 40 sparse and 19 dense"),
        ("both", np.full((1, 3), np.nan), "documents: the dense block contains NaN"),
        ("sparse", Features(dense=np.eye(3)), "3 dense features but the model knows 40 features"),
    ],
)
def test_documents_that_do_not_fit_the_model(blocks, documents, message):
    terms, width = BLOCKS[blocks]
    with pytest.raises(DataError, match=message):
        random_ranker(terms=terms, width=width).search(documents, k=1)
