import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove import LabelIndex
from labelgrove.core.arrays import as_csr
from labelgrove.core.topk import merge_lists
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.merging import merge, precision_of
from labelgrove.evaluation.predictions import Predictions
from reference import ensemble as reference
from support.threads import on_threads

RULES = ("mean", "rank", "softmax", "sigmoid", "round-robin")
LABELS = 9
INDEX = LabelIndex([f"l{n}" for n in range(LABELS)])
KINDS = {"product": st.floats(0, 1, width=32), "margin": st.floats(-8, 8, width=32)}


def predictions(rows, kind="product"):
    """Lists of (label, score) as Predictions, best first, padded."""
    width = max((len(row) for row in rows), default=0)
    columns = np.full((len(rows), width), -1, np.int32)
    scores = np.full((len(rows), width), -np.inf, np.float32)
    for number, row in enumerate(rows):
        columns[number, : len(row)] = [label for label, _ in row]
        scores[number, : len(row)] = [score for _, score in row]
    counts = np.array([len(row) for row in rows], np.int32)
    return Predictions(columns, scores, counts, INDEX, kind)


@st.composite
def lists(draw, kind):
    """Models x documents x list."""
    models, documents = draw(st.integers(1, 4)), draw(st.integers(0, 4))

    def one():
        columns = draw(st.lists(st.integers(0, LABELS - 1), unique=True, max_size=LABELS))
        # Few different scores, so that there are ties.
        scores = draw(
            st.lists(
                st.one_of(KINDS[kind], st.sampled_from([0.0, 0.25, 0.5])),
                min_size=len(columns),
                max_size=len(columns),
            )
        )
        pairs = zip(columns, scores, strict=True)
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))

    return [[one() for _ in range(documents)] for _ in range(models)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", list(KINDS))
@given(data=st.data())
def test_rules_are_the_literal_ones(rule, kind, data):
    found = data.draw(lists(kind))
    k = data.draw(st.integers(1, LABELS + 2))
    places = data.draw(st.integers(LABELS, 20))
    weights = None
    if rule != "round-robin":
        share = st.sampled_from([0.0, 0.5, 1.0, 3.0])
        weights = data.draw(st.none() | st.lists(share, min_size=len(found), max_size=len(found)))
    if weights is not None and not any(weights):
        weights[0] = 1.0
    given_lists = [predictions(rows, kind) for rows in found]
    before = [part.scores.tobytes() for part in given_lists]
    result = merge(given_lists, k=k, rule=rule, weights=weights, places=places)
    assert [part.scores.tobytes() for part in given_lists] == before  # nothing changed in place
    assert len(result) == len(found[0])
    for row in range(len(result)):
        expected = reference.merged(
            [rows[row] for rows in found],
            rule,
            places=places,
            weights=weights,
            last_counts=rule == "mean" and kind == "margin",
        )
        count = int(result.counts[row])
        assert count == min(k, len(expected))
        columns = result.columns[row, :count].tolist()
        scores = result.scores[row, :count].tolist()
        assert len(set(columns)) == count
        best = sorted(expected.values(), reverse=True)[:count]
        np.testing.assert_allclose(scores, best, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(scores, [expected[c] for c in columns], rtol=1e-5, atol=1e-6)
        pairs = [(-score, column) for score, column in zip(scores, columns, strict=True)]
        assert pairs == sorted(pairs)


def test_what_scores_are_afterwards():
    product = predictions([[(0, 0.5)]])
    margin = predictions([[(0, -0.5)]], "margin")
    probability = predictions([[(0, 0.5)]], "probability")
    assert merge([margin, margin], k=1).score_kind == "margin"
    assert merge([probability, probability], k=1).score_kind == "probability"
    assert merge([product, probability], k=1).score_kind == "product"
    assert merge([product, margin], k=1, rule="sigmoid").score_kind == "product"
    assert merge([product, product], k=1, rule="rank").score_kind == "margin"
    pytest.raises(ConfigError, merge, [product, margin], k=1).match("rank, softmax")

    empty, full = predictions([[]]), predictions([[(3, 0.5)]])
    for rule in ("softmax", "sigmoid", "rank"):
        assert merge([empty, full], k=2, rule=rule).ids() == [["l3"]]


def test_what_cannot_be_merged():
    one = predictions([[(0, 0.5)]])
    other = Predictions.from_scores([[0.1, 0.2]], k=1, index=LabelIndex("ab"))
    pytest.raises(DataError, merge, [one, other], k=1).match("different labels")
    with pytest.raises(DataError, match="1 and 2 documents"):
        merge([one, predictions([[(0, 0.5)], []])], k=1)
    pytest.raises(DataError, merge, [], k=1).match("nothing")
    pytest.raises(ConfigError, merge, [one], k=1, rule="median").match("one of mean, rank")
    with pytest.raises(ConfigError, match="round-robin"):
        merge([one], k=1, rule="round-robin", weights=[1.0])
    for weights in ([1.0, 2.0], [-1.0], [0.0], [math.nan]):
        pytest.raises(ConfigError, merge, [one], k=1, weights=weights).match("weights")
    pytest.raises(ConfigError, merge, [one], k=0).match("k must be")
    with pytest.raises(DataError, match="lists x rows x ranks"):
        merge_lists(np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32), 1)


def test_any_number_of_threads_gives_the_same_bits():
    random = np.random.default_rng(0)
    index = LabelIndex([str(n) for n in range(50)])
    found = [Predictions.from_scores(random.random((300, 50)), k=20, index=index) for _ in "abc"]
    for rule in RULES:
        one, three = (on_threads(t, merge, found, k=7, rule=rule) for t in (1, 3))
        assert one.columns.tobytes() == three.columns.tobytes()
        assert one.scores.tobytes() == three.scores.tobytes()


def test_precision_is_the_one_of_the_metrics():
    from labelgrove import evaluate

    random = np.random.default_rng(1)
    truth = as_csr((random.random((50, LABELS)) < 0.2).astype(np.float32))
    found = Predictions.from_scores(random.random((50, LABELS)), k=5, index=INDEX)
    values = evaluate(found, truth, metrics=["P@1", "P@3", "P@5"])
    assert precision_of(found, truth) == pytest.approx([values[f"P@{k}"] for k in (1, 3, 5)])
    assert precision_of(
        predictions([[(n, 1 - n / 9) for n in range(9)]]), as_csr(np.ones((1, 9)))
    ) == (1.0, 1.0, 1.0)
