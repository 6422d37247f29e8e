import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad, minimize

from labelgrove import LabelIndex
from labelgrove.core.arrays import as_csr
from labelgrove.core.part import Part
from labelgrove.errors import DataError
from labelgrove.evaluation import merge_weights as learning
from labelgrove.evaluation.merge_weights import LearntMerge, frequency_bins, learn_merge
from labelgrove.evaluation.merging import precision_of
from labelgrove.evaluation.predictions import Predictions
from reference import ensemble as reference

LABELS = 30
INDEX = LabelIndex([str(n) for n in range(LABELS)])
FREQUENCIES = np.repeat([0, 1, 5, 20, 50, 500], 5)


def drawn(documents, noises, *, seed=0, k=LABELS):
    """Members that see the true labels through noise of different strengths, and the truth."""
    random = np.random.default_rng(seed)
    truth = as_csr((random.random((documents, LABELS)) < 0.15).astype(np.float32))
    found = []
    for noise in noises:
        margins = 2 * truth.toarray() - 2 + noise * random.normal(size=truth.shape)
        scores = 1 / (1 + np.exp(-margins))
        found.append(Predictions.from_scores(scores, k=k, index=INDEX))
    return found, truth


def as_margins(part):
    scores = np.where(part.used, np.log(part.scores) - np.log1p(-part.scores), -np.inf)
    return Predictions(part.columns, scores.astype(np.float32), part.counts, part.index, "margin")


def as_lists(found, row):
    return [[(int(label.id), label.score) for label in part[row]] for part in found]


@given(data=st.data())
def test_a_merge_is_the_literal_one(data):
    members = data.draw(st.integers(1, 3))
    number = st.floats(-2, 2)
    random = np.random.default_rng(data.draw(st.integers(0, 100)))
    weights, exponents = random.normal(size=(2, members, 6))
    sharpness = data.draw(st.floats(0.2, 3))
    margins = [data.draw(st.booleans()) for _ in range(members)]
    found, _ = drawn(3, [abs(data.draw(number)) for _ in range(members)], k=7)
    parts = [as_margins(p) if m else p for p, m in zip(found, margins, strict=True)]
    merge = LearntMerge(weights, exponents, sharpness, frequency_bins(FREQUENCIES))
    k = data.draw(st.integers(1, LABELS))
    result = merge(parts, k=k)
    assert result.score_kind == "probability"
    for row in range(3):
        expected = reference.learnt(
            as_lists(parts, row),
            weights.tolist(),
            exponents.tolist(),
            sharpness,
            merge.bins.tolist(),
            margins,
        )
        count = int(result.counts[row])
        assert count == min(k, len(expected))
        scores = result.scores[row, :count].tolist()
        best = sorted(expected.values(), reverse=True)[:count]
        np.testing.assert_allclose(scores, best, rtol=1e-4)
        own = [expected[c] for c in result.columns[row, :count].tolist()]
        np.testing.assert_allclose(scores, own, rtol=1e-4)


def test_the_loss_is_the_literal_one_and_its_gradient_fits():
    found, truth = drawn(8, [1.0, 2.0], k=6)
    found[1] = as_margins(found[1])
    bins = frequency_bins(FREQUENCIES)
    learnt_from, middles, scales = learning._pairs(found, truth, bins).scaled()
    random = np.random.default_rng(0)
    start = np.concatenate([np.zeros(12), np.ones(12), [0.0]])
    values = start + 0.3 * random.normal(size=25)

    penalty = learning._penalty(2, 6)

    def loss(values):
        read = learning._reading(values, learnt_from)
        return learning._loss(read, values - start, learnt_from, penalty)

    def gradient(values):
        read = learning._reading(values, learnt_from)
        return learning._slopes(read, values - start, learnt_from, penalty)[0]

    assert check_grad(loss, gradient, values) < 1e-3
    exponents = values[12:24].reshape(2, 6) / scales[:, None]
    weights = values[:12].reshape(2, 6) - exponents * middles[:, None]
    literal = reference.learnt_loss(
        [as_lists(found, row) for row in range(8)],
        [set(truth[[row]].indices.tolist()) for row in range(8)],
        weights.tolist(),
        exponents.tolist(),
        float(np.exp(values[-1])),
        bins.tolist(),
        [False, True],
    )
    away = (values - start)[:-1].reshape(4, 6)
    common = away.mean(axis=1)
    squares = (common**2).sum() + values[-1] ** 2 + 10 * ((away - common[:, None]) ** 2).sum()
    assert loss(values) == pytest.approx(literal + squares / 2)


@pytest.mark.parametrize("enough", [40, 10_000])
def test_no_other_values_are_more_likely(enough, monkeypatch):
    """What L-BFGS-B finds with hundreds of steps, also if the search begins with a sample."""
    monkeypatch.setattr(learning, "ENOUGH_PAIRS", enough)
    found, truth = drawn(60, [1.0, 2.0], k=6)
    bins = frequency_bins(FREQUENCIES)
    learnt_from, _, _ = learning._pairs(found, truth, bins).scaled()
    start, penalty = np.concatenate([np.zeros(12), np.ones(12), [0.0]]), learning._penalty(2, 6)

    def slopes(values):
        own = learning._reading(values, learnt_from), values - start, learnt_from, penalty
        return learning._loss(*own), learning._slopes(*own)[0]

    bounds = [(None, None)] * 12 + [(0.01, 5.0)] * 12 + [(-3.0, 3.0)]
    best = minimize(slopes, start, jac=True, method="L-BFGS-B", bounds=bounds)
    elsewhere = start + np.random.default_rng(0).normal(size=25)
    for first in (None, elsewhere):  # what the search begins with does not matter
        ours = learning._most_likely(learnt_from, 2, 6, first)
        assert slopes(ours)[0] == pytest.approx(best.fun, rel=1e-4)


@pytest.mark.slow
def test_several_noisy_members_are_better_than_the_best():
    found, truth = drawn(800, [1.0, 1.2, 3.0])
    merge = learn_merge(found, truth, FREQUENCIES)
    others, unseen = drawn(800, [1.0, 1.2, 3.0], seed=1)
    merged = merge(others, k=5)
    reached, alone = precision_of(merged, unseen), precision_of(others[0], unseen)
    assert sum(reached) > sum(alone) + 0.1
    assert sum(merge.precision) == pytest.approx(sum(reached), abs=0.06)
    assert merge.shares[0] > merge.shares[2] and sum(merge.shares) == pytest.approx(1)
    again = learn_merge(found, truth, FREQUENCIES)
    assert again.exponents.tobytes() == merge.exponents.tobytes()  # nothing is left to chance


@pytest.mark.slow
def test_scores_are_probabilities_and_margins_need_no_other_treatment():
    found, truth = drawn(2000, [1.0, 1.5])
    mixed = [found[0], as_margins(found[1])]
    merge = learn_merge(mixed, truth, FREQUENCIES)
    others, unseen = drawn(2000, [1.0, 1.5], seed=1)
    result = merge([others[0], as_margins(others[1])], k=15)
    hits = np.isin(np.arange(2000)[:, None] * LABELS + result.columns, pairs(unseen))
    for low, high in ((0.0, 0.1), (0.1, 0.4), (0.4, 0.7), (0.7, 1.0)):
        inside = (result.scores >= low) & (result.scores < high)
        assert hits[inside].mean() == pytest.approx(result.scores[inside].mean(), abs=0.04)
    same = learn_merge(found, truth, FREQUENCIES)
    np.testing.assert_allclose(same(others, k=5).scores, result.top(5).scores, rtol=0.02)


def pairs(truth):
    return np.repeat(np.arange(truth.shape[0]), np.diff(truth.indptr)) * LABELS + truth.indices


@pytest.mark.slow
def test_bins_learn_that_a_member_knows_the_rare_labels_only():
    random = np.random.default_rng(0)
    frequent = FREQUENCIES >= 30

    def members(seed):
        (good, other), truth = drawn(1000, [1.0, 1.0], seed=seed)
        parts = []
        for part, known in ((good, frequent), (other, ~frequent)):
            scores = part.to_csr().toarray()
            scores[:, ~known] = random.random((1000, int((~known).sum())))
            parts.append(Predictions.from_scores(scores, k=LABELS, index=INDEX))
        return parts, truth

    (found, truth), (others, unseen) = members(0), members(1)
    binned = learn_merge(found, truth, FREQUENCIES)
    plain = learn_merge(found, truth, np.ones(LABELS))
    gain = sum(precision_of(binned(others, k=5), unseen)) - sum(
        precision_of(plain(others, k=5), unseen)
    )
    assert gain > 0.1


def test_guesses_beside_a_good_member_leave_it_alone():
    found, truth = drawn(12, [0.01, 50.0, 50.0])
    merge = learn_merge(found, truth, FREQUENCIES)
    assert merge.shares == (1.0, 0.0, 0.0) and merge.needed == [True, False, False]
    assert merge.precision == pytest.approx(precision_of(found[0], truth))
    alone = merge.of_needed()([found[0]], k=5)
    assert (alone.columns == found[0].top(5).columns).all()
    assert (merge(found, k=5).columns == alone.columns).all()


def test_the_precision_is_that_of_documents_that_were_not_learnt_from():
    found, truth = drawn(41, [2.0, 2.0])
    rows = []
    for fold in range(5):
        own = np.arange(41) % 5 == fold
        parts = [part.of_rows(~own) for part in found]
        bins = frequency_bins(FREQUENCIES)
        half = learning._fitted(learning._pairs(parts, truth[~own], bins), bins)
        merged = half([part.of_rows(own) for part in found], k=5)
        rows.append(np.array(precision_of(merged, truth[own])) * own.sum())
    merge = learn_merge(found, truth, FREQUENCIES)
    assert all(merge.needed)
    assert merge.precision == pytest.approx(np.sum(rows, axis=0) / 41)


def test_one_document_and_one_member_can_be_learnt_from():
    found, truth = drawn(1, [1.0, 1.0])
    assert len(learn_merge(found, truth, FREQUENCIES)(found, k=3)) == 1
    found, truth = drawn(50, [1.0])
    merge = learn_merge(found, truth, FREQUENCIES)
    assert (merge(found, k=5).columns == found[0].top(5).columns).all()
    empty = Predictions.from_scores(np.full((50, LABELS), -np.inf), k=5, index=INDEX)
    both = learn_merge([*found, empty], truth, FREQUENCIES)
    assert (both([*found, empty], k=5).columns == found[0].top(5).columns).all()


def test_what_does_not_fit_is_refused():
    found, truth = drawn(4, [1.0, 1.0])
    pytest.raises(DataError, learn_merge, found, truth, [1, 2]).match("give the training")
    pytest.raises(DataError, learn_merge, found, truth[:3], FREQUENCIES).match("documents x labels")
    pytest.raises(DataError, learn_merge, [], truth, FREQUENCIES).match("nothing to merge")
    merge = learn_merge(found, truth, FREQUENCIES)
    pytest.raises(DataError, merge, found[:1], k=1).match("learnt for 2 models and 30 labels, not")


def test_a_merge_for_more_labels_keeps_the_old_ones():
    found, truth = drawn(200, [0.5, 0.6])
    merge = learn_merge(found, truth, FREQUENCIES)
    grown = merge.grown([*FREQUENCIES[:-1], 2, 0, 40], changed=np.array([LABELS - 1]))
    assert grown.bins.tolist() == [*merge.bins[:-1], *frequency_bins([2, 0, 40])]
    assert grown.bins[-3] != merge.bins[-1]
    index = LabelIndex([*INDEX.ids, "x", "y"])
    wider = [Predictions(p.columns, p.scores, p.counts, index) for p in found]
    both = merge(found, k=LABELS).to_csr(), grown(wider, k=LABELS).to_csr()
    kept = [matrix[:, : LABELS - 1].toarray() for matrix in both]
    assert np.array_equal(*kept)

    found, truth = drawn(200, [0.1, 50.0])
    merge = learn_merge(found, truth, FREQUENCIES)
    assert merge.shares == (1.0, 0.0)
    assert not merge.grown([*FREQUENCIES, 700], changed=np.array([0])).bins.any()


def test_a_saved_merge_is_the_same_and_a_damaged_one_is_refused():
    found, truth = drawn(60, [1.0, 2.0])
    merge = learn_merge(found, truth, FREQUENCIES)
    part = merge.state()
    again = LearntMerge.from_state(part)
    assert again(found, k=5).scores.tobytes() == merge(found, k=5).scores.tobytes()
    assert (again.shares, again.precision) == (merge.shares, merge.precision)
    for name, value in (
        ("weights", merge.weights[:1]),
        ("exponents", merge.exponents[0]),
        ("bins", merge.bins + 1),
    ):
        with pytest.raises(ValueError, match=r"do not fit|has no weights"):
            LearntMerge.from_state(Part(part.config, part.arrays | {name: value}))
