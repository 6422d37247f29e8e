"""Growing a ranker: what new columns are, and that nothing else moves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.core.arrays import as_csr
from labelgrove.data.features import Features
from labelgrove.errors import DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking import growing
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.ranking.weights import WIDEST_CLUSTER
from reference.growth import column

EXACT = RankerParams(eps=1e-6, max_iterations=20000, threshold=0.0, storage="float32")
TREE = LabelTree([[0, 0, 0], [0, 0, 0, 1, 1, 2, 2]], [3, 0, 5, 1, 2, 6, 4])


def problem(labels, documents=60, terms=12, width=0, seed=0):
    rng = np.random.default_rng(seed)
    y = (rng.random((documents, labels)) < 0.25).astype(np.float32)
    x = rng.random((documents, terms)) * (rng.random((documents, terms)) < 0.4)
    x[:, :labels] += y[:, : min(labels, terms)]
    dense = rng.normal(size=(documents, width)).astype(np.float32) if width else None
    return Features(as_csr(x.astype(np.float32)), dense), as_csr(y)


def found_weights(columns, label, tree):
    row = list(columns.nodes).index(tree.leaf_positions[label])
    parts = [columns.sparse[[row]].toarray()[0], columns.dense[row], columns.bias[[row]]]
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def grown():
    """A ranker over seven labels, and what it needs to learn an eighth."""
    features, labels = problem(8, width=2)
    ranker = train_ranker(features, labels[:, :7], TREE, EXACT)
    routed = growing.route(ranker, features, SearchParams(), most=3)
    (cluster,) = growing.nearest_clusters(routed, as_csr(labels[:, [7]]), TREE)
    tree = growing.with_labels(TREE, [cluster])
    return ranker, tree, growing.GrowthExamples(features, labels, routed, mined=1), int(cluster)


def assert_literal(columns, label, tree, examples, **more):
    """The column is the literal one, up to half precision of dense weights."""
    own = tree.parents[-1][tree.leaf_positions[label]]
    features = examples.features.to_csr().toarray().astype(np.float64)
    seen = (examples.routed.clusters[:, :1] == own).any(axis=1)
    expected = column(features, examples.labels.toarray(), tree, label, seen=seen, **more)
    assert np.allclose(found_weights(columns, label, tree), expected, atol=2e-3)


def test_a_grown_column_is_what_training_from_scratch_gives(grown):
    ranker, tree, examples, cluster = grown
    columns = growing.solve_columns(tree, examples, [7, 3], EXACT)
    for label in (7, 3):
        assert_literal(columns, label, tree, examples)
    assert tree.parents[-1][tree.leaf_positions[7]] == cluster
    # A column may be drawn towards its old weights.
    start = growing.leaf_columns(ranker, [3])
    columns = growing.solve_columns(tree, examples, [3], EXACT, start=start)
    assert_literal(columns, 3, tree, examples, centre=found_weights(start, 3, TREE))


def test_a_column_that_learns_beside_stand_ins(grown):
    ranker, tree, examples, cluster = grown
    counts = np.asarray(examples.labels.toarray().sum(axis=0))
    remembered = growing.stand_ins(ranker, [cluster], counts)
    family = np.diff(TREE.children(1))[cluster]
    assert len(remembered.features) == family
    lengths = np.sqrt(remembered.features.sparse.multiply(remembered.features.sparse).sum(axis=1))
    assert np.allclose(lengths, 1, atol=1e-5)
    every = growing.joined(examples, remembered)
    own = counts[ranker.tree.leaf_labels[slice(*TREE.children(1)[[cluster, cluster + 1]])]]
    assert every.weights.tolist() == [1.0] * len(examples.features) + own.tolist()
    assert growing.joined(replace(examples, mined=3), remembered).mined == 3
    columns = growing.solve_columns(tree, every, [7], EXACT)
    assert_literal(columns, 7, tree, every, factors=every.weights)


@pytest.mark.parametrize("negatives", ["tfn", "man", "tfn+man"])
def test_training_all_columns_is_training_the_level(negatives):
    features, labels = problem(7)
    params = RankerParams(**EXACT.get_params() | {"negatives": negatives, "mined_nodes": 1})
    ranker = train_ranker(features, labels, TREE, params)
    routed = growing.route(ranker, features, SearchParams(), most=3)
    examples = growing.GrowthExamples(features, labels, routed, mined=1)
    again = growing.solve_columns(TREE, examples, np.arange(7), params)
    whole = growing.leaf_columns(ranker, np.arange(7))
    assert np.allclose(again.sparse.toarray(), whole.sparse.toarray(), atol=1e-4)
    assert np.allclose(again.bias, whole.bias, atol=1e-4)


def test_a_label_that_all_documents_of_its_cluster_bear_is_not_taken_for_its_parent():
    features = Features(sparse=as_csr(np.eye(3, dtype=np.float32)))
    labels = as_csr([[1, 0], [1, 0], [1, 0]])
    examples = growing.GrowthExamples(
        features, labels, growing.Routed(np.zeros((3, 1), np.int32), np.ones((3, 1))), 1
    )
    columns = growing.solve_columns(LabelTree([[0, 0]], [0, 1]), examples, [0], EXACT)
    assert columns.sparse.nnz == 3


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    width=st.sampled_from([0, 3, 19]),
    new=st.integers(1, 4),
    retrained=st.sets(st.integers(0, 6), max_size=3),
    storage=st.sampled_from(["float32", "float16"]),
    post_processor=st.sampled_from(["l4-hinge", "sigmoid", "noop"]),
)
def test_scores_in_other_clusters_keep_their_bits(
    seed, width, new, retrained, storage, post_processor
):
    features, labels = problem(7 + new, width=width, seed=seed)
    ranker = train_ranker(features, labels[:, :7], TREE, RankerParams(storage=storage))
    search = SearchParams(post_processor=post_processor)
    routed = growing.route(ranker, features, search, most=3)
    clusters = growing.nearest_clusters(routed, as_csr(labels[:, 7:]), TREE)
    tree = growing.with_labels(TREE, clusters)
    assert tree.parents[0] is TREE.parents[0] or np.array_equal(tree.parents[0], TREE.parents[0])
    trained = [*range(7, 7 + new), *sorted(retrained)]
    examples = growing.GrowthExamples(features, labels, routed, mined=1)
    bigger = growing.with_columns(
        ranker, tree, growing.solve_columns(tree, examples, trained, RankerParams())
    )

    own = tree.parents[-1][tree.leaf_positions]
    elsewhere = np.flatnonzero(~np.isin(own[:7], own[trained]))
    before = ranker.score(features, np.arange(7), params=search)
    after = bigger.score(features, np.arange(7), params=search)
    assert np.array_equal(before[:, elsewhere], after[:, elsewhere])
    # Beside new siblings a score may be rounded otherwise: kernels take several of them at once.
    siblings = [label for label in range(7) if label not in retrained]
    assert np.allclose(before[:, siblings], after[:, siblings], rtol=1e-4, atol=1e-6)
    # What a search finds has the same scores, too.
    columns, scores, _ = bigger.search(features, k=7 + new, params=search)
    for row in range(len(features)):
        for label, score in zip(columns[row], scores[row], strict=True):
            assert label not in elsewhere or score == before[row, label]


def test_own_texts_become_weights_as_long_as_others(grown):
    ranker, _, _, _ = grown
    tree = growing.with_labels(TREE, [2, 0])
    rows = Features(as_csr(np.eye(12, dtype=np.float32)[:2]), np.ones((2, 2), np.float32))
    columns = growing.from_own_text(ranker, tree, [7, 8], rows)
    bigger = growing.with_columns(ranker, tree, columns)
    own = growing.leaf_columns(bigger, [7, 8])
    known = growing.leaf_columns(ranker, np.arange(7))
    length = np.percentile(np.sqrt(known.sparse.multiply(known.sparse).sum(axis=1)), 75)
    assert np.allclose(own.sparse.max(axis=1).toarray().ravel(), length, rtol=1e-3)
    first, last = TREE.children(1)[2:4]
    row = list(own.nodes).index(tree.leaf_positions[7])
    assert own.bias[row] == np.median(ranker.levels[1].bias[first:last])
    assert own.sparse[row, 0] > 0  # rows went to the labels that they belong to


def test_labels_go_where_most_of_their_documents_lead():
    clusters = np.array([[0, 1], [2, 0], [2, -1]], np.int32)
    routed = growing.Routed(clusters, np.array([[0.9, 0.1], [0.6, 0.5], [0.3, 0.0]], np.float32))
    labels = as_csr([[1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [0, 1, 0, 0, 0]])
    assert growing.nearest_clusters(routed, labels, TREE).tolist() == [0, 2, 0, 1, 1]
    nowhere = growing.Routed(np.full((2, 3), -1, np.int32), np.zeros((2, 3), np.float32))
    assert growing.nearest_clusters(nowhere, as_csr([[1], [1]]), TREE).tolist() == [1]


def test_small_and_wide_clusters():
    tree = LabelTree([[0, 0]], [1, 0])
    ranker = train_ranker(np.eye(2), np.eye(2), tree)
    routed = growing.route(ranker, Features(dense=np.eye(2)), SearchParams(), most=3)
    assert routed.clusters.tolist() == [[0], [0]]
    assert growing.with_labels(tree, [0, 0]).leaf_labels.tolist() == [1, 0, 2, 3]
    widest = growing.with_labels(TREE, np.ones(WIDEST_CLUSTER - 2, np.int32))
    assert np.diff(widest.children(1)).max() == WIDEST_CLUSTER
    pytest.raises(DataError, growing.with_labels, widest, [0, 1]).match(
        "65,537 labels; at most 65,536 fit"
    )
