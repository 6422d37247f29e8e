import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.beam import POST_PROCESSORS, BeamSearch, SearchParams
from labelgrove.errors import ConfigError, DataError
from labelgrove.label_features import pifa
from labelgrove.ranker import Ranker, train_ranker
from labelgrove.solver import ChunkedWeights
from labelgrove.tree import LabelTree, TreeParams, build_tree
from reference import beam as reference


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    y = sparse.csr_array(rng.random((300, 37)) < 0.06)
    x = sparse.csr_array(y @ (rng.random((37, 50)) < 0.15) + (rng.random((300, 50)) < 0.05))
    x = sparse.csr_array(x.toarray().astype(np.float32) * (np.arange(300) >= 3)[:, None])
    tree = build_tree(pifa(x, y), TreeParams(branching=3, max_leaf_size=5), seed=1)
    return x, train_ranker(x, y, tree)


def assert_same(found, expected, row):
    columns, scores, counts = (part[row] for part in found)
    assert counts == len(expected)
    np.testing.assert_allclose(scores[:counts], [s for s, _ in expected], rtol=2e-4, atol=1e-7)
    # Rounding may swap neighbours; away from near-ties the order must be the same.
    for column, (score, wanted) in zip(columns[:counts], expected, strict=True):
        near = [c for s, c in expected if abs(s - score) <= 1e-3 * max(1e-3, abs(score))]
        assert column == wanted or column in near


@given(
    beam=st.integers(1, 40),
    k=st.integers(1, 45),
    post_processor=st.sampled_from(POST_PROCESSORS),
    last_level=st.sampled_from(["same", "noop"]),
    row=st.integers(0, 299),
)
@settings(max_examples=60, deadline=None)
def test_agrees_with_the_literal_version(trained, beam, k, post_processor, last_level, row):
    x, ranker = trained
    params = SearchParams(beam=beam, post_processor=post_processor, last_level=last_level)
    found = ranker.search(x[[row]], k=k, params=params)
    expected = reference.search(
        ranker,
        x[[row]].toarray()[0],
        k=k,
        beam=beam,
        post_processor=post_processor,
        last_level=last_level,
    )
    assert_same(found, expected, 0)


@pytest.mark.parametrize("params", [SearchParams(), SearchParams(beam=2), SearchParams(exact=True)])
def test_a_documents_result_depends_on_neither_company_nor_threads(trained, params):
    x, ranker = trained
    together = ranker.search(x, k=6, params=params, threads=1)
    threaded = ranker.search(x, k=6, params=params, threads=3)
    alone = [ranker.search(x[[row]], k=6, params=params) for row in range(60)]
    for part in range(3):
        assert np.array_equal(together[part], threaded[part])
        assert np.array_equal(together[part][:60], np.concatenate([one[part] for one in alone]))


def test_exact_search_equals_a_beam_that_holds_everything(trained):
    x, ranker = trained
    exact = ranker.search(x, k=37, params=SearchParams(exact=True))
    wide = ranker.search(x, k=37, params=SearchParams(beam=1000))
    assert all(np.array_equal(a, b) for a, b in zip(exact, wide, strict=True))


@pytest.mark.parametrize("k", [1, 7, 37, 100])
def test_k_labels_come_back_whatever_the_beam(trained, k):
    x, ranker = trained
    columns, scores, counts = ranker.search(x[:20], k=k, params=SearchParams(beam=1))
    assert (counts == min(k, 37)).all()
    for row in columns:
        assert len(set(row.tolist())) == len(row)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_documents_without_features_get_labels_too(trained):
    _, ranker = trained
    columns, _, counts = ranker.search(sparse.csr_array((2, 50)), k=4)
    assert counts.tolist() == [4, 4]
    assert np.array_equal(columns[0], columns[1])


def test_no_documents(trained):
    _, ranker = trained
    columns, _, counts = ranker.search(sparse.csr_array((0, 50)), k=4)
    assert columns.shape == (0, 4) and counts.shape == (0,)


def test_equal_scores_come_in_column_order():
    tree = LabelTree([[0, 0], [0, 0, 1, 1]], [3, 1, 2, 0])
    empty = np.zeros(0)
    levels = [
        ChunkedWeights(
            np.zeros(parents + 1, np.int64),
            np.zeros(parents + 1, np.int64),
            empty.astype(np.int32),
            np.zeros(parents, np.uint32),
            empty.astype(np.uint16),
            empty.astype(np.float32),
            np.zeros(nodes, np.float32),
        )
        for parents, nodes in ((1, 2), (2, 4))
    ]
    ranker = Ranker(tree, levels, features=1, bias=1.0)
    assert ranker.search([[1.0]], k=3, params=SearchParams(exact=True))[0].tolist() == [[0, 1, 2]]


def test_bad_arguments(trained):
    x, ranker = trained
    with pytest.raises(ConfigError, match="k: must be at least 1"):
        ranker.search(x, k=0)
    with pytest.raises(ConfigError, match=r"search\.beam"):
        ranker.search(x, k=1, params=SearchParams(beam=0))
    with pytest.raises(DataError, match="3 features but the model knows 50"):
        ranker.search(np.eye(3), k=1)


@pytest.mark.parametrize("name", ["features", "row_start", "bias", "values", "chunk_rows"])
def test_arrays_that_do_not_fit_are_refused(trained, name):
    _, ranker = trained
    arrays = ranker.levels[1].arrays()
    damaged = ChunkedWeights(**(arrays | {name: arrays[name][:-1]}))
    levels = [ranker.levels[0], damaged, *ranker.levels[2:]]
    with pytest.raises(DataError, match="level 1"):
        BeamSearch(ranker.tree, levels, features=50, bias=1.0)


@pytest.mark.parametrize(
    ("name", "message"), [("children", "does not have"), ("row_start", "rise from 0")]
)
def test_values_that_would_lead_the_kernel_astray_are_refused(trained, name, message):
    _, ranker = trained
    damaged = ranker.levels[1].arrays()
    damaged[name] = damaged[name].copy()
    damaged[name][1] = 9_999
    levels = [ranker.levels[0], ChunkedWeights(**damaged), *ranker.levels[2:]]
    with pytest.raises(DataError, match=message):
        BeamSearch(ranker.tree, levels, features=50, bias=1.0)


def test_features_outside_the_model_are_refused(trained):
    _, ranker = trained
    with pytest.raises(DataError, match=r"outside 0\.\.9"):
        BeamSearch(ranker.tree, ranker.levels, features=10, bias=1.0)
