import numpy as np
import pytest
from scipy import sparse

from labelgrove.labels.features import pifa
from labelgrove.labels.tree import TreeParams, build_tree
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import candidates, search_trees, train_ranker
from support.threads import on_threads

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def forest():
    rng = np.random.default_rng(0)
    labels, documents = 150, 400
    y = sparse.csr_array((rng.random((documents, labels)) < 2 / labels).astype(np.float32))
    x = sparse.csr_array((y.toarray() + (rng.random(y.shape) < 0.02)).astype("f4"))
    params = TreeParams(branching=2, max_leaf_size=20)
    return x[:50], [
        train_ranker(x, y, build_tree(pifa(x, y), params, seed=s), seed=s) for s in range(3)
    ]


@pytest.mark.parametrize("settings", [{}, {"last_level": "noop"}, {"beam": 2}])
def test_scores_are_means_over_the_union(forest, settings):
    documents, rankers = forest
    params = SearchParams(**settings)
    columns, scores, counts = search_trees(rankers, documents, k=7, params=params)
    found = [r.search(documents, k=candidates(7), params=params) for r in rankers]
    for row in range(documents.shape[0]):
        total = {}
        for c, _, _ in found:
            total |= dict.fromkeys(c[row].tolist(), 0.0)
        for c, s, _ in found:
            brought = dict(zip(c[row].tolist(), s[row].tolist(), strict=True))
            missing = min(brought.values()) if params.score_kind == "margin" else 0.0
            for column in total:
                total[column] += brought.get(column, missing) / len(rankers)
        best = sorted(np.float32(value) for value in total.values())[:-8:-1]
        np.testing.assert_allclose(scores[row], best, rtol=1e-5, atol=1e-7)
        expected = [total[column] for column in columns[row].tolist()]
        np.testing.assert_allclose(scores[row], expected, rtol=1e-5, atol=1e-7)
    assert (counts == 7).all()


def test_the_best_ten_do_not_depend_on_k(forest):
    documents, rankers = forest
    few, more = (search_trees(rankers, documents, k=k, params=SearchParams()) for k in (3, 10))
    assert np.array_equal(few[0], more[0][:, :3])
    assert np.array_equal(few[1], more[1][:, :3])
    assert [candidates(k) for k in (1, 10, 30, 50, 80, 200)] == [20, 20, 60, 100, 100, 200]


def test_all_labels_no_documents_and_any_number_of_threads(forest):
    documents, rankers = forest
    one = on_threads(1, search_trees, rankers, documents, k=1000, params=SearchParams())
    three = on_threads(3, search_trees, rankers, documents, k=1000, params=SearchParams())
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))
    assert (one[2] == 150).all()
    assert len(search_trees(rankers, documents[:0], k=3, params=SearchParams())[2]) == 0


def test_one_tree_is_searched_as_it_is(forest):
    documents, rankers = forest
    alone = search_trees(rankers[:1], documents, k=3, params=SearchParams())
    for a, b in zip(alone, rankers[0].search(documents, k=3), strict=True):
        assert np.array_equal(a, b)
