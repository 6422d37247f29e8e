"""Rows of tf-idf, of a given matrix, and of both."""

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Documents, Tfidf
from labelgrove.errors import DataError
from labelgrove.text.tfidf import TermReader

TEXTS = ["red shoes", "a red hat", "blue"]
GIVEN = sparse.csr_array(np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]], np.float32))
TFIDF = Tfidf().fit(TEXTS)
DOCUMENTS = Documents(TEXTS, GIVEN)


def lengths(rows):
    return np.linalg.norm(rows.toarray(), axis=1)


def test_rows_have_unit_length_with_and_without_a_matrix():
    rows = TermReader(TFIDF).rows(DOCUMENTS)
    assert (rows != TFIDF.transform(TEXTS)).nnz == 0
    rows = TermReader(None, 2).rows(DOCUMENTS).toarray()
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1], [0, 0]], atol=1e-6)

    rows = TermReader(TFIDF, 2).rows(DOCUMENTS)
    own, given = rows[:, : TFIDF.n_features], rows[:, TFIDF.n_features :]
    assert rows.shape == (3, TFIDF.n_features + 2)
    np.testing.assert_allclose(lengths(rows), 1, atol=1e-6)
    np.testing.assert_allclose(lengths(given), [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
    np.testing.assert_allclose(lengths(own), [0.5**0.5, 0.5**0.5, 1], atol=1e-6)

    rows = TermReader(TFIDF, 2).of_texts(["red"])
    assert rows.shape == (1, TFIDF.n_features + 2) and rows[:, TFIDF.n_features :].nnz == 0
    assert TermReader(None, 2).of_texts(["red", "hat"]).shape == (2, 2)
    assert TermReader().rows(Documents(TEXTS)).shape == (3, 0)


@pytest.mark.parametrize("tfidf", [None, TFIDF])
def test_a_missing_or_another_matrix_is_refused(tfidf):
    reader = TermReader(tfidf, 2)
    pytest.raises(DataError, reader.rows, Documents(TEXTS)).match("2 columns.*have none; give it")
    pytest.raises(DataError, reader.rows, Documents(TEXTS, GIVEN[:, :1])).match(r"2 columns.*has 1")
    pytest.raises(DataError, reader.rows, Documents(TEXTS, GIVEN * np.float32("nan"))).match("NaN")
