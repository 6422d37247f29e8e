import numpy as np
import pytest
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.data import features
from labelgrove.data.blocks import Blocks, joined
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.features import Features
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels import features as label_features
from labelgrove.labels.features import (
    combined,
    describe_labels,
    keep_largest,
    l2_normalised,
    label_strings,
    label_sums,
    pifa,
    smoothed,
)
from labelgrove.labels.tree import TreeParams
from reference import labels as reference
from support.blocks import KINDS as BLOCKS
from support.blocks import as_blocks
from support.threads import on_threads

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("row_weights", [True, False])
def test_pifa_is_the_unit_sum_of_a_labels_documents(row_weights, kind):
    rng = np.random.default_rng(0)
    x = rng.random((20, 7)) * (rng.random((20, 7)) < 0.5)
    y = (rng.random((20, 5)) < 0.4).astype(float)
    weights = y / np.sqrt(np.maximum(y.sum(axis=1, keepdims=True), 1)) if row_weights else y
    expected = weights.T @ x
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = pifa(as_blocks(x, kind), sparse.csr_array(y), row_weights=row_weights)
    assert (found.sparse is None, found.dense is None) == (kind == "dense", kind == "sparse")
    np.testing.assert_allclose(found.to_csr().toarray(), expected, rtol=1e-5, atol=1e-6)


def test_half_precision_stays_half_and_is_near():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 37)).astype(np.float32), np.eye(50, 9)
    half = pifa(x.astype(np.float16), y).dense
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, pifa(x, y).dense, atol=1e-3)
    assert smoothed(half, y).dense.dtype == l2_normalised(half).dense.dtype == np.float16


@pytest.mark.slow
def test_many_labels_give_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(1)
    x = sparse.random_array((300, 5000), density=0.01, rng=rng, dtype=np.float32)
    y = sparse.random_array((300, 1000), density=0.005, rng=rng)
    both = Features(x, rng.standard_normal((300, 20)))
    first, second = (on_threads(threads, pifa, both, y) for threads in (1, 4))
    assert np.array_equal(first.dense, second.dense)
    one, four = (on_threads(threads, pifa, x, y).sparse for threads in (1, 4))
    assert one.has_canonical_format
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(one, name), getattr(four, name))


def test_pifa_leaves_out_what_cancels_and_does_not_count_weights():
    opposed = as_csr([[1.0, 2.0], [1.0, -2.0]])
    assert pifa(opposed, [[1], [1]]).sparse.nnz == 1
    assert pifa(np.eye(2), [[0.5, 0], [0.1, 1]]).dense[0].tolist() == pytest.approx(
        pifa(np.eye(2), [[1, 0], [1, 1]]).dense[0].tolist()
    )
    pytest.raises(DataError, pifa, np.eye(3), np.eye(2)).match("3 rows but labels have 2")
    matrix = sparse.csr_array(np.array([[3.0, 4.0]], np.float32))
    l2_normalised(matrix)
    assert matrix.toarray().tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("kind", BLOCKS)
def test_labels_without_documents_or_features_get_zero_rows(kind):
    x = as_blocks([[0.0, 0.0], [1.0, 0.0]], kind)
    found = pifa(x, [[1, 0, 0], [0, 0, 1]]).to_csr().toarray()
    assert found.tolist() == [[0, 0], [0, 0], [1, 0]]


@pytest.mark.parametrize("kind", BLOCKS)
def test_length_is_measured_over_both_blocks(monkeypatch, kind):
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 8)
    x = np.random.default_rng(0).standard_normal((11, 6))
    x[4] = 0
    expected = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    found = l2_normalised(as_blocks(x, kind)).to_csr().toarray()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def random_labels(documents=30, labels=8, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.random((documents, labels)) < 0.3).astype(float)


@pytest.mark.parametrize("block", [8, 1 << 24])
def test_keep_largest(monkeypatch, block):
    monkeypatch.setattr(label_features, "PRUNE_ENTRIES", block)
    rng = np.random.default_rng(0)
    dense = rng.integers(-5, 6, (20, 9)).astype(np.float32)
    dense[3] = 0
    matrix = Features(sparse.csr_array(dense), dense)
    found = keep_largest(matrix, 4)
    assert np.array_equal(found.dense, dense)
    found = found.sparse.toarray()
    for row, kept in zip(dense, found, strict=True):
        best = sorted(range(9), key=lambda c: (-abs(row[c]), c))[:4]
        assert kept.tolist() == [row[c] if c in best else 0 for c in range(9)]
    assert keep_largest(matrix, 9).sparse.toarray().tolist() == dense.tolist()
    assert np.diff(keep_largest(matrix, 1).sparse.indptr).max() == 1
    pytest.raises(ConfigError, keep_largest, matrix, 0).match("per_row")


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("block", [3, 1 << 16])
def test_smoothing_follows_the_random_walk(monkeypatch, block, kind):
    """With the identity as features, rows are the walk's visits, which theory foretells."""
    monkeypatch.setattr(label_features, "WALK_BLOCK", block)
    y = random_labels(12, 4, seed=3)
    walk = (y / np.maximum(y.sum(0), 1)).T @ (y / np.maximum(y.sum(1, keepdims=True), 1))
    visits = 0.8 * np.linalg.inv(np.eye(4) - 0.2 * walk)
    expected = visits / np.sqrt(np.outer(visits.sum(1), visits.sum(0)))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = smoothed(as_blocks(np.eye(4), kind), y, walk_length=3000, seed=1).to_csr().toarray()
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_smoothing_is_seeded_and_keeps_few_neighbours():
    y, z = random_labels(60, 20), sparse.csr_array(np.eye(20))
    first = smoothed(z, y, neighbours=3, seed=1).sparse
    assert (first != smoothed(z, y, neighbours=3, seed=1).sparse).nnz == 0
    assert (first != smoothed(z, y, neighbours=3, seed=2).sparse).nnz > 0
    assert np.diff(first.indptr).max() == 3
    unused = np.zeros((4, 3))
    assert smoothed(np.eye(3), unused).dense.tolist() == np.eye(3).tolist()
    pytest.raises(DataError, smoothed, np.eye(2), unused).match("2 rows but labels 3 columns")


def test_joining_descriptions():
    pytest.raises(DataError, combined, np.eye(2), np.eye(3)).match("of 2 and of 3 labels")
    pytest.raises(DataError, combined, np.ones((1, 2)), np.ones((1, 3))).match("2 and 3 columns")
    both = Features(sparse=[[3.0, 0.0]], dense=[[4.0]])
    mixed = combined(both, as_csr([[0.0, 5.0]]), weight=0.25)
    assert mixed.sparse.toarray().tolist() == [[pytest.approx(0.45), 0.25]]
    assert mixed.dense.tolist() == [[pytest.approx(0.6)]]
    assert combined(as_csr([[1.0]]), [[2.0]], weight=0.25).to_csr().toarray().tolist() == [
        [0.75, 0.25]
    ]


@pytest.mark.parametrize("block", BLOCKS)
def test_plain_sums(block):
    rng = np.random.default_rng(2)
    x, y = rng.random((30, 6)).astype(np.float32), random_labels()
    y[:, 1] = 0  # a label without documents
    found = label_sums(as_blocks(x, block), y)
    np.testing.assert_allclose(found.to_csr().toarray(), y.T @ x, rtol=1e-5, atol=1e-6)


def test_smoothed_sums_are_those_of_the_equations():
    """CascadeXML's label features: labels with many documents weigh more than others."""
    rng = np.random.default_rng(4)
    x = rng.random((40, 12)).astype(np.float32) * (rng.random((40, 12)) < 0.6)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = (rng.random((40, 14)) < rng.random(14) / 2).astype(float)
    y[:, 3] = 0  # a label without documents
    params = TreeParams(label_features="smoothed-sums", features_per_label=5)
    found = describe_labels(params, sparse.csr_array(x), as_csr(y), seed=7)
    visits = label_features._visits(as_csr(y), 400, 0.8, 7).toarray().tolist()
    expected = reference.label_features(x.tolist(), y.tolist(), visits, keep=5)
    np.testing.assert_allclose(found.to_csr().toarray(), expected, atol=1e-5)
    other = TreeParams(label_features="smoothed-pifa", features_per_label=5)
    scaled = describe_labels(other, sparse.csr_array(x), as_csr(y), seed=7)
    assert np.abs(scaled.to_csr().toarray() - expected).max() > 0.05


KINDS = ["pifa", "pifa-plain", "smoothed-pifa", "smoothed-sums", "text", "pifa+text"]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_describes_all_labels_with_unit_rows(kind, block):
    rng = np.random.default_rng(0)
    x, y = as_blocks(rng.random((30, 6)), block), as_csr(random_labels())
    params = TreeParams(label_features=kind, features_per_label=2).validate()
    strings = label_strings(params, LabelIndex("abcdefgh"))
    assert (strings is not None) == ("text" in kind)
    texts = as_blocks(rng.random((8, 6)), block)
    found = describe_labels(params, x, y, transform=lambda _: texts, strings=strings)
    assert len(found) == 8
    assert found.sparse is None or np.diff(found.sparse.indptr).max() <= 2
    np.testing.assert_allclose(np.linalg.norm(found.to_csr().toarray(), axis=1), 1, rtol=1e-5)


def test_label_texts_are_needed_for_text_features():
    params = TreeParams(label_features="text")
    with pytest.raises(ConfigError, match="fitted on texts"):
        describe_labels(params, as_csr(np.eye(2)), as_csr(np.eye(2)))
    index = LabelIndex("ab", names=["cats", "dogs"], texts=["small felines", "friends"])
    assert label_strings(params, index) == ["small felines", "friends"]


class Workers(Engine):
    workers = 3


@pytest.mark.parametrize("kind", ["pifa", "pifa-plain", "smoothed-pifa", "smoothed-sums"])
@pytest.mark.parametrize("width", [0, 3])
def test_features_in_blocks_give_the_same_bits(kind, width):
    random = np.random.default_rng(2)
    rows = sparse.random_array((90, 40), density=0.1, rng=random, format="csr", dtype=np.float32)
    dense = random.normal(size=(90, width)).astype(np.float16) if width else None
    x = Features(rows, dense)
    y = sparse.random_array((90, 17), density=0.1, rng=random, format="csr")
    params = TreeParams(label_features=kind, features_per_label=None if width else 5)
    whole = describe_labels(params, x, y)
    blocks = describe_labels(params, Blocks.cut(Workers(), x, 13), y)
    if kind in ("pifa", "pifa-plain"):
        assert len(blocks.refs) > 3
        blocks = joined([*blocks.engine.results(blocks.refs)])
    for name, array in whole.arrays("x").items():
        assert array.dtype == blocks.arrays("x")[name].dtype
        np.testing.assert_array_equal(array, blocks.arrays("x")[name])
