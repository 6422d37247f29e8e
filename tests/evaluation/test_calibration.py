"""Calibration of models: planted ones, whose probabilities are known, and real ones in small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import labelgrove
from labelgrove import LabelIndex, calibrate
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.calibration import Calibration
from labelgrove.evaluation.curves import Curve, Scale, fit_curve, reliability
from labelgrove.evaluation.prediction_files import SCORE_DIGITS
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.requests import PredictionRequest

LABELS = 30


class Planted:
    """Scores are known beforehand; a label with score s is true with the probability ``truth(s)``.

    ``documents`` are row numbers into one large table.
    """

    method = "planted"
    fitted = True
    calibration_: Any = None

    def __init__(self, truth, *, rows=3000, kind="product", seed=0):
        random = np.random.default_rng(seed)
        self.scores = random.beta(0.4, 1.2, (rows, LABELS)).astype(np.float32)
        columns = np.arange(LABELS)
        self.hits = random.random((rows, LABELS)) < truth(self.scores, columns)
        self.kind = kind
        self.index_ = LabelIndex([f"l{c}" for c in columns])
        self.facts_ = TrainingFacts(rows, np.where(columns < 15, 500, 3), True)

    def predict(self, X, k=5, *, raw=False, threads=None, **options):
        asked = PredictionRequest(self.index_, k, None if raw else self.calibration_, **options)
        scores = self.scores[[int(x) for x in X]]
        if self.kind == "margin":
            scores = np.log(scores / (1 - scores))
        if asked.mask is not None:
            scores = np.where(asked.mask.allowed, scores, -np.inf)
        return asked.answer(
            Predictions.from_scores(scores, k=asked.ranks, index=self.index_, score_kind=self.kind)
        )

    def half(self, first):
        middle = len(self.scores) // 2
        rows = range(middle) if first else range(middle, len(self.scores))
        return [str(row) for row in rows], self.hits[list(rows)].astype(np.float32)


def error(model, **options):
    """Expected calibration error on the half that calibration has not seen."""
    texts, truth = model.half(False)
    found = model.predict(texts, k=10, **options)
    hits = np.take_along_axis(truth, found.columns, 1) > 0
    scores = np.clip(found.scores, 0, 1)
    return reliability(scores, hits).ece


def squared(scores, columns):
    return scores**2


@pytest.mark.parametrize("kind", ["auto", "isotonic", "beta"])
def test_planted_probabilities_come_out_right_on_unseen_documents(kind):
    model = Planted(squared)
    before = error(model)
    found = calibrate(model, *model.half(True), kind=kind, k=10)
    after = error(model)
    assert before > 0.1 and after < 0.02
    assert error(model, raw=True) == before
    assert found.report["before"]["ece"] == pytest.approx(before, abs=0.02)
    assert found.report["after"]["ece"] == pytest.approx(after, abs=0.02)


def test_margins_are_calibrated_and_methods_can_be_compared_afterwards():
    model = Planted(squared, kind="margin")
    calibrate(model, *model.half(True), k=10)
    assert model.predict(["0"]).score_kind == "probability"
    assert error(model) < 0.02

    one, other = Planted(squared), Planted(lambda s, _: s**0.5, seed=1)
    for model in (one, other):
        calibrate(model, *model.half(True), k=10)
    # 0.8 is too good in one and too bad in the other; both know it now.
    assert one.calibration_.label_probabilities([0.8], [0])[0] == pytest.approx(0.64, abs=0.04)
    assert other.calibration_.label_probabilities([0.8], [0])[0] == pytest.approx(0.89, abs=0.04)


def test_order_stays_unless_labels_have_curves_of_their_own():
    for by in ("none", "rank"):
        model = Planted(squared)
        texts, _ = model.half(False)
        raw = model.predict(texts, k=20)
        calibrate(model, *model.half(True), by=by, k=10)
        found = model.predict(texts, k=20)
        assert np.array_equal(found.columns, raw.columns)
        falls, fell = np.diff(found.scores, axis=1) < 0, np.diff(raw.scores, axis=1) < 0
        assert np.array_equal(falls, fell)
        assert np.array_equal(model.predict(texts, k=3).scores, found.scores[:, :3])


def test_labels_by_frequency_get_their_own_curves():
    model = Planted(lambda s, c: np.where(c < 15, s, s**3))
    texts, truth = model.half(False)
    calibrate(model, *model.half(True), k=10)
    shared = error(model)
    found = calibrate(model, *model.half(True), by="frequency", k=10)
    assert found.report is not None and found.report["own_curves"] == 2
    assert error(model) < 0.02
    probabilities = model.predict(texts, k=LABELS)
    rare = probabilities.columns >= 15
    hits = np.take_along_axis(truth, probabilities.columns, 1) > 0
    assert reliability(probabilities.scores[rare], hits[rare]).ece < 0.02
    assert shared < 0.02  # right on average ...
    calibrate(model, *model.half(True), k=10)
    blind = model.predict(texts, k=LABELS)
    rare, hits = blind.columns >= 15, np.take_along_axis(truth, blind.columns, 1) > 0
    assert reliability(blind.scores[rare], hits[rare]).ece > 0.05  # ... and wrong for rare labels
    for row in probabilities.scores:
        assert (np.diff(row) <= 0).all()


def test_thresholds_for_f1_and_for_a_precision():
    model = Planted(squared)
    texts, truth = model.half(False)

    def quality(**options):
        found = model.predict(texts, k=LABELS, **options)
        right = (found.to_csr() > 0).multiply(sparse.csr_array(truth)).sum()
        given = found.counts.sum()
        return right / given, 2 * right / (given + truth.sum())

    calibrate(model, *model.half(True), k=LABELS)
    best = quality(threshold="auto")[1]
    assert all(quality(threshold=t)[1] <= best + 0.005 for t in (0.1, 0.2, 0.3, 0.5, 0.7))
    found = calibrate(model, *model.half(True), k=LABELS, target=0.7)
    assert quality(threshold="auto")[0] == pytest.approx(0.7, abs=0.03)
    assert found.report["at_threshold"]["precision"] == pytest.approx(0.7, abs=0.03)


TARGETS = {"micro-F1": "micro-F1@set", "macro-F1": "macro-F1@set", "document-F1": "F1@set"}


@pytest.mark.slow
def test_every_target_gets_the_best_sets_by_its_own_metric():
    # Documents differ in how good their best labels are, and rare labels are seldom right.
    random = np.random.default_rng(3)
    model = Planted(squared, rows=6000)
    model.scores *= random.uniform(0.2, 1.0, (6000, 1)).astype(np.float32)
    rare = np.where(np.arange(LABELS) < 15, 1.0, 0.2)
    model.hits = random.random(model.scores.shape) < model.scores * rare
    texts, truth = model.half(False)
    values = {}
    for target in TARGETS:
        found = calibrate(model, *model.half(True), k=LABELS, by="frequency", target=target)
        sets = model.predict(texts, k=LABELS, threshold="auto")
        values[target] = labelgrove.evaluate(sets, truth, metrics=list(TARGETS.values()))
        for name, key in zip(TARGETS.values(), ("f1", "macro_f1", "document_f1"), strict=True):
            reported = found.report["at_threshold"][key]
            assert reported == pytest.approx(values[target][name], abs=0.03)
    for target, metric in TARGETS.items():
        others = [values[other][metric] for other in TARGETS if other != target]
        assert values[target][metric] > max(others) + 0.003


def test_a_document_gets_its_set_whatever_k_is():
    model = Planted(squared)
    calibrate(model, *model.half(True), k=10, target="document-F1")
    texts, _ = model.half(False)
    sets = model.predict(texts, k=10, threshold="auto")
    assert sets.counts.min() >= 1 and len(np.unique(sets.counts)) > 3
    for k in (2, 25):
        other = model.predict(texts, k=k, threshold="auto")
        assert np.array_equal(other.counts, np.minimum(sets.counts, k))
        assert other.ids() == [row[:k] for row in sets.ids()]
    few = model.predict(texts, k=10, threshold="auto", allow=["l0", "l1"])
    assert 1 <= few.counts.min() <= few.counts.max() <= 2


def test_sets_by_document_follow_curves_that_change_the_order():
    model = Planted(lambda s, c: np.where(c < 15, s, s**3))
    found = calibrate(model, *model.half(True), k=10, by="frequency", target="document-F1")
    texts, truth = model.half(False)
    sets = model.predict(texts, k=10, threshold="auto")
    measured = labelgrove.evaluate(sets, truth, metrics=["F1@set"])["F1@set"]
    assert measured == pytest.approx(found.report["at_threshold"]["document_f1"], abs=0.03)
    every = model.predict(texts, k=10)
    assert sets.ids() == [row[:n] for row, n in zip(every.ids(), sets.counts, strict=True)]


def test_few_documents_per_label_are_told_where_labels_count_the_same():
    model = Planted(lambda s, c: np.full(s.shape, 0.03), rows=60)
    texts, truth = model.half(True)
    with pytest.warns(UserWarning, match=r"macro-F1: the labels .* have [12]\.\d documents"):
        found = calibrate(model, texts, truth, k=LABELS, target="macro-F1")
    assert found.report is not None and len(found.report["notes"]) == 1
    assert calibrate(model, texts, truth, k=LABELS).report["notes"] == []


@pytest.mark.parametrize("target", TARGETS)
def test_state_keeps_everything(target):
    model = Planted(squared)
    found = calibrate(model, *model.half(True), by="frequency", target=target)
    again = Calibration.from_state(found.state())
    texts, _ = model.half(False)
    raw = model.predict(texts, k=9, raw=True)
    assert np.array_equal(again(raw).scores, found(raw).scores)
    assert np.array_equal(again.minimum(), found.minimum())
    assert again.choose(again(raw)).ids() == found.choose(found(raw)).ids()
    assert again.report == found.report


def test_states_from_before_there_were_sets_by_document_load():
    model = Planted(squared)
    state = calibrate(model, *model.half(True)).state()
    del state.config["by_document"]
    assert not Calibration.from_state(state).by_document


@pytest.mark.timeout(60)
def test_a_number_of_curves_without_end_is_refused():
    flat = Curve("isotonic", np.array([[0.0, 1.0], [0.5, 0.5]]))
    state = Calibration("isotonic", "none", "product", 5, Scale(False), (flat,)).state()
    state.config["curves"] = 2**40
    pytest.raises(ValueError, Calibration.from_state, state).match("too many curves")


def test_what_cannot_be_calibrated_is_refused():
    model = Planted(squared)
    texts, truth = model.half(True)
    pytest.raises(DataError, calibrate, model, texts[:3], truth[:3]).match("at least 10 documents")
    pytest.raises(DataError, calibrate, model, texts).match("needs the true labels")
    nothing = np.zeros_like(truth)
    pytest.raises(DataError, calibrate, model, texts, nothing).match("all true or all wrong")
    for options, message in [
        ({"kind": "platt"}, "kind: must be one of"),
        ({"target": "example-F1"}, "target: must be micro-F1, macro-F1, document-F1 or"),
    ]:
        pytest.raises(ConfigError, calibrate, model, texts, truth, **options).match(message)
    with pytest.raises(ConfigError, match="auto needs a calibrated model"):
        model.predict(texts, threshold="auto")
    calibrate(model, texts, truth)
    with pytest.raises(ConfigError, match="no raw scores"):
        model.predict(texts, threshold="auto", raw=True)
    model.kind = "margin"
    pytest.raises(ConfigError, model.predict, texts).match("calibrated for scores of the kind")


def test_neighbouring_scores_keep_their_order_and_ties_stay_ties():
    flat = Curve("isotonic", np.array([[0.0, 1.0], [0.5, 0.5 + 1e-9]]))
    calibration = Calibration("isotonic", "none", "product", 4, Scale(False), (flat,))
    high = np.float32(0.75)
    low = np.nextafter(high, np.float32(0))
    found = Predictions.from_scores([[low, high, low, 0.1]], k=4, index=LabelIndex("abcd"))
    scores = calibration(found).scores[0]
    assert calibration(found).names() == [["b", "a", "c", "d"]]
    assert scores[0] > scores[1] == scores[2] > scores[3]
    assert np.array_equal(calibration(found.top(2)).scores[0], scores[:2])
    short = calibration(found.above(0.5))
    assert short.counts.tolist() == [3] and short.columns[0, 3] == -1
    assert short.scores[0, 3] == -np.inf


@pytest.mark.parametrize("by", ["none", "rank", "frequency"])
@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([1e-7, 1e-5, 1e-3, 0.3]))
def test_labels_on_a_flat_piece_are_written_with_different_digits_in_their_order(by, seed, spread):
    random = np.random.default_rng(seed)
    units = random.random(300)
    # Nothing is learnt about scores above 0.9, where all labels of the document are.
    curve = fit_curve(units, random.random(300) < np.minimum(units, 0.9), "isotonic")
    groups = random.integers(0, 2, 20).astype(np.int32) if by == "frequency" else None
    curves = (curve,) if by == "none" else (curve, curve, curve)
    calibration = Calibration("isotonic", by, "product", 20, Scale(False), curves, groups)
    index = LabelIndex([f"l{c}" for c in range(20)])
    scores = (1 - spread * random.random((3, 20))).astype(np.float32)
    raw = Predictions.from_scores(scores, k=20, index=index)
    found = calibration(raw)
    assert np.array_equal(found.columns, raw.columns)
    written = np.round(found.scores.astype(np.float64), SCORE_DIGITS)
    assert np.array_equal(np.diff(written, axis=1) < 0, np.diff(raw.scores, axis=1) < 0)
    np.testing.assert_allclose(found.scores, calibration.probabilities(raw), atol=20 * 2e-6)


def test_groups_of_ranks_are_the_documented_ones():
    curves = tuple(Curve("isotonic", np.array([[0, 1], [0.1 * n, 0.1 * n]])) for n in range(7))
    calibration = Calibration("isotonic", "rank", "product", 12, Scale(False), curves)
    found = Predictions.from_scores([np.linspace(1, 0, 12)], k=12, index=LabelIndex("abcdefghijkl"))
    groups = calibration.probabilities(found)[0] * 10
    # The first curve is for all labels.
    assert groups.round(6).tolist() == [1, 2, 3, 4, 4, 5, 5, 5, 5, 5, 6, 6]
