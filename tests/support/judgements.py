"""Small judged predictions for property tests, and what loops read in them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from labelgrove.data.corpus import LabelIndex
from labelgrove.evaluation.metrics.ranking import Judged, judge
from labelgrove.evaluation.predictions import Predictions

LABELS = 7


@st.composite
def judgements(draw: st.DrawFn) -> Judged:
    documents = draw(st.integers(1, 6))
    size = documents * LABELS
    scores = draw(
        st.lists(st.sampled_from([-1, 0.0, 0.25, 0.5, 1.0]), min_size=size, max_size=size)
    )
    truth = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    matrix = np.array(scores, float).reshape(documents, LABELS)
    matrix[matrix < 0] = -np.inf  # never predicted
    predictions = Predictions.from_scores(matrix, k=4, index=LabelIndex("abcdefg"))
    unknown = draw(st.lists(st.integers(0, 2), min_size=documents, max_size=documents))
    return judge(predictions, np.array(truth, float).reshape(documents, LABELS), unknown=unknown)


def best(judged: Judged, row: int, k: int) -> list[int]:
    count = min(k, int(judged.predictions.counts[row]))
    return judged.predictions.columns[row, :count].tolist()


def true(judged: Judged, row: int) -> list[int]:
    return judged.truth.indices[judged.truth.indptr[row] : judged.truth.indptr[row + 1]].tolist()
