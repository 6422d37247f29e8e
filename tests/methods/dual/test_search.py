from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core.part import Part
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.dual import search as searching
from labelgrove.methods.dual.search import label_vectors, search


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), st.data())
def test_all_labels_are_compared(
    documents: int, labels: int, k: int, at_once: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(documents + 10 * labels)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=labels, max_size=labels)))
    allowed[0] = True
    mask = LabelMask.from_columns(np.flatnonzero(allowed), labels)
    rows, columns = (random.normal(size=(n, 3)).astype(np.float32) for n in (documents, labels))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "SCORES_AT_ONCE", at_once)
        best = search(rows, columns, k, 0.5, mask=mask)
    for row, text in enumerate(rows):
        scores = {n: np.exp((text @ columns[n] - 1) / 0.5) for n in np.flatnonzero(allowed)}
        expected = sorted(scores, key=lambda n: -scores[n])[:k]
        assert best.columns[row, : best.counts[row]].tolist() == expected
        assert np.allclose(best.scores[row, : len(expected)], [scores[n] for n in expected], 1e-4)


@pytest.mark.parametrize("vectors", [np.zeros((2, 4)), np.zeros(3), np.full((3, 4), np.nan)])
def test_stored_vectors_that_do_not_fit(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match="label vectors"):
        label_vectors(Part({}, {"vectors": vectors}), 3, 4)
