"""What a model is given, brought to the blocks that it was fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, LabelIndex, Tfidf, TfidfParams
from labelgrove.core.arrays import CsrParts
from labelgrove.core.callbacks import Reporter
from labelgrove.data import features
from labelgrove.data.features import FeatureParts, Features
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import DataError
from labelgrove.methods.inputs import beside_terms, document_parts, features_stage
from labelgrove.text.tfidf import TermReader

TEXTS = ["red hat", "blue shoe"]
BOTH = Features(sparse=np.eye(2, 3), dense=np.array([[3.0, 4.0], [0.0, 0.0]]))


def parts(
    X: Any, dense: Any = None, *, terms: int = 0, width: int = 0, norm: str | None = "l2"
) -> Any:
    return document_parts(X, dense, reader=None, terms=terms, width=width, dense_norm=norm)


@pytest.fixture(scope="module")
def tfidf() -> Tfidf:
    return Tfidf(TfidfParams(min_df=1)).fit(TEXTS)


def test_a_matrix_becomes_the_block_that_the_model_has() -> None:
    matrix = np.array([[0.0, 2.0], [1.0, 0.0]], np.float32)
    for given in (matrix, sparse.csr_array(matrix), Features(dense=matrix)):
        found = parts(given, terms=2)
        assert isinstance(found, CsrParts)
        assert (found.indices.tolist(), found.data.tolist()) == ([1, 0], [2, 1])
        found = parts(given, width=2)
        assert found.sparse.cols == 0
        assert np.array_equal(found.dense, matrix)
    assert parts(matrix.astype(np.float16), width=2).dense.dtype == np.float16


def test_both_blocks_together_or_apart() -> None:
    for found in (
        parts(BOTH, terms=3, width=2),
        parts(BOTH.sparse, BOTH.dense, terms=3, width=2),
        parts(Corpus(None, np.eye(2), LabelIndex("ab"), features=BOTH), terms=3, width=2),
    ):
        assert found.sparse.cols == 3
        np.testing.assert_allclose(found.dense, [[0.6, 0.8], [0, 0]])
    assert np.array_equal(parts(BOTH, terms=3, width=2, norm="none").dense, BOTH.dense)


@pytest.mark.parametrize(
    ("given", "dense", "terms", "width", "message"),
    [
        (np.eye(2), None, 3, 2, "3 sparse and 2 dense columns; the documents have 0 and 2"),
        (np.eye(2), None, 3, 0, "3 sparse and 0 dense columns; the documents have 0 and 2"),
        (sparse.eye_array(2), None, 0, 3, "0 sparse and 3 dense columns; the documents have 2"),
        (BOTH, None, 3, 0, "3 sparse and 0 dense columns; the documents have 3 and 2"),
        (BOTH, np.eye(2), 3, 2, "dense block already"),
        (BOTH.sparse, np.eye(3), 3, 3, "2 rows, the dense block 3"),
        (np.full((1, 2), np.nan), None, 0, 2, "NaN"),
        (TEXTS, None, 3, 0, "fitted on a matrix and cannot predict from texts"),
    ],
)
def test_what_does_not_fit_is_refused(
    given: Any, dense: Any, terms: int, width: int, message: str
) -> None:
    pytest.raises(DataError, parts, given, dense, terms=terms, width=width).match(message)


def test_texts_with_a_dense_block(tfidf: Tfidf) -> None:
    options: dict[str, Any] = {"reader": TermReader(tfidf), "terms": 4, "dense_norm": "l2"}
    corpus = Corpus.from_lists(TEXTS, [["a"], ["b"]]).with_dense([[0.0, 2.0], [1.0, 0.0]])
    found = document_parts(corpus, None, width=2, **options)
    assert isinstance(found, FeatureParts)
    assert found.dense.tolist() == [[0, 1], [1, 0]]
    assert found.sparse.cols == 4
    given = document_parts(TEXTS, np.array([[0.0, 2.0], [1.0, 0.0]]), width=2, **options)
    assert given.dense.tolist() == found.dense.tolist()
    # A corpus may hold more than the model was fitted on.
    assert isinstance(document_parts(corpus, None, width=0, **options), CsrParts)
    for dense, got in ((None, "got none"), (np.eye(3), "got 3 x 3"), (np.eye(2, 5), "got 2 x 5")):
        with pytest.raises(DataError, match=f"2 texts it needs dense= of shape 2 x 2, {got}"):
            document_parts(TEXTS, dense, width=2, **options)
    with pytest.raises(DataError, match="fitted on texts alone"):
        document_parts(TEXTS, np.eye(2), width=0, **options)
    with pytest.raises(DataError, match="fitted on texts and cannot predict from a matrix"):
        document_parts(np.eye(2), None, width=0, **options)
    assert document_parts([], np.zeros((0, 2)), width=2, **options).rows == 0


def test_rows_beside_terms_have_unit_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "BLOCK_NUMBERS", 8)
    rows = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    rows[3] = 0
    scaled = beside_terms(rows, "l2")
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), [1, 1, 1, 0, 1, 1, 1], rtol=1e-6)
    assert beside_terms(scaled, "l2") is scaled
    assert beside_terms(rows, None) is beside_terms(rows, "none") is rows
    # A row does not depend on the rows it comes with.
    mixed = np.concatenate([scaled[:1] * np.float32(1.0004), rows[1:2]])
    assert np.array_equal(beside_terms(mixed, "l2")[:1], beside_terms(mixed[:1], "l2"))
    with pytest.raises(DataError, match="NaN or infinity"):
        beside_terms(np.full((2, 2), np.inf, np.float32), "l2")
    halves = beside_terms(rows.astype(np.float16), "l2")
    assert halves.dtype == np.float16
    assert beside_terms(halves, "l2") is halves


def test_what_stands_for_the_features_notices_the_dense_block(tmp_path: Path) -> None:
    corpus = Corpus.from_lists(TEXTS, [["a"], ["b"]])
    one, other = (corpus.with_dense([[x], [2.0]]) for x in (1.0, 1.5))
    with RunFolder(tmp_path / "run") as run:
        seen = [
            features_stage(Stages(Reporter(), run), c, TfidfParams(), norm, None)[0].key
            for c, norm in ((corpus, "l2"), (corpus, None), (one, "l2"), (one, None), (other, "l2"))
        ]
        assert [stage.name for stage in run.status().stages] == ["tfidf"]  # one for all
    assert seen[0] == seen[1]  # without a dense block nothing is scaled
    assert len(set(seen[1:])) == 4
