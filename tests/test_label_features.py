import numpy as np
import pytest
from scipy import sparse

from labelgrove.errors import DataError
from labelgrove.label_features import l2_normalised, pifa


@pytest.mark.parametrize("row_weights", [True, False])
def test_pifa_is_the_unit_sum_of_a_labels_documents(row_weights):
    rng = np.random.default_rng(0)
    x = rng.random((20, 7)) * (rng.random((20, 7)) < 0.5)
    y = (rng.random((20, 5)) < 0.4).astype(float)
    weights = y / np.sqrt(np.maximum(y.sum(axis=1, keepdims=True), 1)) if row_weights else y
    expected = weights.T @ x
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = pifa(sparse.csr_array(x), sparse.csr_array(y), row_weights=row_weights)
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5, atol=1e-6)


def test_many_labels_give_the_same_bits_on_any_number_of_threads():
    rng = np.random.default_rng(1)
    x = sparse.random_array((300, 5000), density=0.01, rng=rng, dtype=np.float32)
    y = sparse.random_array((300, 1000), density=0.005, rng=rng)
    one, four = pifa(x, y, threads=1), pifa(x, y, threads=4)
    assert one.has_canonical_format
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(one, name), getattr(four, name))
    y.data[:] = 1
    counts = np.maximum(np.asarray(y.sum(axis=1)), 1)
    expected = (y.toarray() / np.sqrt(counts)[:, None]).T @ x.toarray()
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(one.toarray(), expected / np.where(norms > 0, norms, 1), atol=1e-6)


def test_features_that_cancel_out_are_left_out():
    assert pifa([[1.0, 2.0], [1.0, -2.0]], [[1], [1]]).nnz == 1


def test_labels_without_documents_or_features_get_zero_rows():
    found = pifa([[0.0, 0.0], [1.0, 0.0]], [[1, 0, 0], [0, 0, 1]]).toarray()
    assert found.tolist() == [[0, 0], [0, 0], [1, 0]]


def test_label_weights_do_not_count():
    assert pifa(np.eye(2), [[0.5, 0], [0.1, 1]]).toarray()[0].tolist() == pytest.approx(
        pifa(np.eye(2), [[1, 0], [1, 1]]).toarray()[0].tolist()
    )


def test_row_counts_must_agree():
    with pytest.raises(DataError, match="3 rows but labels have 2"):
        pifa(np.eye(3), np.eye(2))


def test_normalising_leaves_the_input_alone():
    matrix = sparse.csr_array(np.array([[3.0, 4.0]], np.float32))
    l2_normalised(matrix)
    assert matrix.toarray().tolist() == [[3.0, 4.0]]
