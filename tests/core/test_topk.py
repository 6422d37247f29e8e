import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr, csr_parts
from labelgrove.core.topk import merge_lists, nearest_rows, top_k
from labelgrove.errors import ConfigError, DataError
from reference.topk import merged_row, top_k_rows
from support.threads import on_threads

pytestmark = pytest.mark.kernel

# Few distinct values, so that ties are the rule.
scores = st.sampled_from([-math.inf, -2.0, -0.5, 0.0, 0.25, 1.0, 3.0e38])


def as_pairs(best):
    """Checks the padding, then returns each row's (column, score) pairs."""
    rows = []
    for columns, values, count in zip(*(part.tolist() for part in best), strict=True):
        assert columns[count:] == [-1] * (len(columns) - count)
        assert values[count:] == [-math.inf] * (len(columns) - count)
        rows.append(list(zip(columns[:count], values[:count], strict=True)))
    return rows


def rounded(rows):
    return [{c: float(np.float32(s)) for c, s in row.items()} for row in rows]


@st.composite
def dense_matrices(draw):
    rows, cols = draw(st.integers(0, 4)), draw(st.integers(0, 150))
    values = draw(st.lists(scores, min_size=rows * cols, max_size=rows * cols))
    return np.array(values, np.float32).reshape(rows, cols)


@given(dense_matrices(), st.integers(1, 160), st.integers(1, 3))
@settings(max_examples=80)
def test_dense_rows_equal_a_full_sort(matrix, k, threads):
    best = on_threads(threads, top_k, matrix, k)
    rows = [dict(enumerate(row.tolist())) for row in matrix]
    assert best.columns.shape == (len(matrix), min(k, matrix.shape[1]))
    assert as_pairs(best) == top_k_rows(rounded(rows), k)


@given(
    st.lists(st.dictionaries(st.integers(0, 199), scores, max_size=120), max_size=6),
    st.integers(1, 130),
    st.integers(1, 3),
)
@settings(max_examples=80)
def test_sparse_rows_equal_a_full_sort(rows, k, threads):
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    columns = [c for row in rows for c in sorted(row)]
    data = [row[c] for row in rows for c in sorted(row)]
    matrix = sparse.csr_array(
        (np.array(data, np.float32), np.array(columns, np.int32), indptr), shape=(len(rows), 200)
    )
    assert as_pairs(on_threads(threads, top_k, matrix, k)) == top_k_rows(rounded(rows), k)


def test_many_rows_on_many_threads_give_the_same_bits():
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 50, size=(3000, 300)).astype(np.float32)
    one, four = (on_threads(threads, top_k, matrix, 7) for threads in (1, 4))
    stored = sparse.csr_array(matrix + 1)
    sparse_one, sparse_four = (on_threads(threads, top_k, stored, 7) for threads in (1, 4))
    for parts in zip(one, four, strict=True):
        np.testing.assert_array_equal(*parts)
    for parts in zip(sparse_one, sparse_four, strict=True):
        np.testing.assert_array_equal(*parts)
    expected = np.argsort(-matrix, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(one.columns, expected)
    np.testing.assert_array_equal(sparse_one.columns, expected)


def test_input_in_other_layouts_and_types_is_read_right():
    matrix = sparse.csr_array((np.float32([0.0, -1.0]), [2, 3], [0, 2]), shape=(1, 5))
    assert as_pairs(top_k(matrix, 5)) == [[(2, 0.0), (3, -1.0)]]
    matrix = sparse.csr_array((np.float32([1, 1, 1]), [4, 0, 2], [0, 3]), shape=(1, 5))
    assert as_pairs(top_k(matrix, 2)) == [[(0, 1.0), (2, 1.0)]]
    matrix = np.arange(12, dtype=np.float64).reshape(3, 4)
    expected = [[3, 2], [3, 2], [3, 2]]
    assert top_k(np.asfortranarray(matrix), 2).columns.tolist() == expected
    assert top_k(matrix[:, ::-1], 2).columns.tolist() == [[0, 1]] * 3
    assert top_k(sparse.csc_array(matrix + 1), 2).columns.tolist() == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("column", [0, 45, 69])
def test_nan_and_plus_infinity_are_refused_with_their_first_row(bad, as_sparse, column):
    matrix = np.ones((600, 70), np.float32)
    matrix[[301, 599], column] = bad
    given_matrix = sparse.csr_array(matrix) if as_sparse else matrix
    on_threads(2, pytest.raises, DataError, top_k, given_matrix, 2).match("row 301 contains NaN")


def test_wrong_arguments_are_refused():
    pytest.raises(ConfigError, top_k, [[1.0]], 0).match("k must be at least 1, got 0")
    pytest.raises(DataError, top_k, [1.0, 2.0], 1).match("two dimensions")

    columns, scores = np.zeros((1, 1, 1), np.int32), np.zeros((1, 1, 1), np.float32)
    pytest.raises(ConfigError, merge_lists, columns, scores, 0).match("k must be at least 1, got 0")
    pytest.raises(DataError, merge_lists, columns, scores[0], 1).match("must be equal lists x")
    for weights in ([1, 2], [np.nan], [-1], [0]):
        with pytest.raises(ConfigError, match="weights must"):
            merge_lists(columns, scores, 1, weights=weights)


def test_lists_become_a_matrix_with_sorted_columns():
    best = top_k([[0.5, 2.0, 1.0], [-math.inf, 0.0, -math.inf]], k=2)
    matrix = best.to_csr(4)
    assert matrix.toarray().tolist() == [[0, 2, 1, 0], [0, 0, 0, 0]]
    assert matrix.indices.tolist() == [1, 2, 1] and matrix.has_sorted_indices
    assert best.to_csr(4, ones=True).data.tolist() == [1, 1, 1]


@st.composite
def lists_of_labels(draw):
    """Lists x ranks of columns, -1 after the end of a list, and scores, best first."""
    lists, width = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    columns = np.full((lists, width), -1, np.int32)
    values = np.full((lists, width), -np.inf, np.float32)
    for number in range(lists):
        # Columns far apart and a multiple of each other meet in a hash table.
        names = st.sampled_from([*range(12), *(n << 20 for n in range(60)), 2**31 - 1])
        some = draw(st.lists(names, max_size=width, unique=True))
        drawn = st.floats(-2, 2, width=32) | st.sampled_from([-0.5, 0.0, 0.25])
        found = draw(st.lists(drawn, min_size=len(some), max_size=len(some)))
        columns[number, : len(some)] = some
        values[number, : len(some)] = sorted(found, reverse=True)
    return columns, values


@given(
    lists_of_labels(),
    st.integers(1, 50),
    st.sampled_from(["mean", "mean-or-last", "largest"]),
    st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=4, max_size=4),
)
@settings(max_examples=150)
def test_merged_lists_equal_the_literal_form_bit_by_bit(found, k, combine, weights):
    columns, values = found
    weights = weights[: len(columns)]
    best = merge_lists(columns[:, None], values[:, None], k, combine=combine, weights=weights)
    expected = merged_row(columns, values, combine, weights)
    assert as_pairs(best) == top_k_rows(rounded([expected]), k)


def test_merged_lists_are_as_wide_as_the_longest():
    columns = np.array([[[3, 1, -1], [2, -1, -1]], [[1, 4, 3], [2, -1, -1]]], np.int32)
    scores = np.array([[[5, 2, 0], [1, 0, 0]], [[4, 3, 1], [7, 0, 0]]], np.float32)
    best = merge_lists(columns, scores, 6)
    assert best.columns.shape == best.scores.shape == (2, 3)  # of 6, the lists have 3 labels
    assert as_pairs(best) == [[(1, 3.0), (3, 3.0), (4, 1.5)], [(2, 4.0)]]
    assert as_pairs(merge_lists(columns, scores, 1, weights=[1, 0])) == [[(3, 5.0)], [(2, 1.0)]]


@pytest.mark.parametrize("sizes", [(40, 70), (3, 70), (40, 9000)])
def test_nearest_rows_are_the_best_products(sizes):
    random = np.random.default_rng(5)
    queries, documents = (
        as_csr(random.integers(-2, 3, (count, 9)) * (random.random((count, 9)) < 0.5))
        for count in sizes
    )
    products = (queries @ documents.T).toarray()  # whole numbers: exact, with many ties
    index = csr_parts(as_csr(documents.T))
    for threads in (1, 3):
        best = on_threads(threads, nearest_rows, csr_parts(queries), index, 4)
        expected = top_k(products, 4)
        assert np.array_equal(best.columns, expected.columns)
        assert np.array_equal(best.scores, expected.scores)


def test_queries_are_compared_alike_alone_and_together():
    random = np.random.default_rng(6)
    queries, documents = (as_csr(random.random((count, 30)).astype("f")) for count in (33, 50))
    index = csr_parts(as_csr(documents.T))
    together = nearest_rows(csr_parts(queries), index, 7)
    for row in range(33):
        alone = nearest_rows(csr_parts(as_csr(queries[row : row + 1])), index, 7)
        assert np.array_equal(alone.columns[0], together.columns[row])
        assert alone.scores.tobytes() == together.scores[row].tobytes()


def test_nearest_rows_of_few_documents_and_wrong_arguments():
    queries, documents = (as_csr(np.eye(count, 9)) for count in (40, 70))
    index = csr_parts(as_csr(documents.T))
    assert nearest_rows(csr_parts(queries), index, 99).columns.shape == (40, 70)
    assert nearest_rows(csr_parts(queries[:0]), index, 4).columns.shape == (0, 4)
    with pytest.raises(DataError, match="9 columns, but the index has 70 terms"):
        nearest_rows(csr_parts(queries), csr_parts(documents), 4)
    pytest.raises(ConfigError, nearest_rows, csr_parts(queries), index, 0).match("k must be")
