"""What the base class gives all methods, and the arguments of ``predict``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import (
    Corpus,
    Ensemble,
    LabelIndex,
    Linear,
    Neighbours,
    RankerParams,
    SearchParams,
    calibrate,
)
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning, NotFittedError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods import requests
from labelgrove.methods.explaining.explain import explain, explain_best
from labelgrove.methods.requests import PredictionRequest, masked_scores

TEXTS = ["red shoes", "blue hat", "red hat", "brown shoes"] * 10
LABELS = [["shoes"], ["hats"], ["hats", "red"], ["shoes"]] * 10
HELD_OUT = ["one hat", "a shoes box"] * 10, [["hats"], ["shoes"]] * 10


def test_classes_are_the_ids_in_the_order_of_columns() -> None:
    model = Linear().fit(TEXTS, LABELS)
    assert model.classes_.tolist() == list(model.index_.ids) == ["hats", "red", "shoes"]
    assert not hasattr(Linear(), "classes_")  # as scikit-learn's tools ask
    with pytest.raises(NotFittedError):
        _ = Linear().classes_


def test_probabilities_are_those_of_predict() -> None:
    model = Linear().fit(TEXTS, LABELS)
    with pytest.raises(ConfigError, match=r"no probabilities yet; call model\.calibrate"):
        model.predict_proba(["a red hat"])
    assert model.calibrate(*HELD_OUT, k=2)
    probabilities = model.predict_proba(["a red hat", "shoes"])
    assert probabilities.shape == (2, 3) and probabilities.nnz == 4  # k as in calibration
    for row, labels in enumerate(model.predict(["a red hat", "shoes"], k=2)):
        for label in labels:
            column = model.classes_.tolist().index(label.id)
            assert probabilities[row, column] == np.float32(label.score)
    assert model.predict_proba(["a red hat"], k=3, deny=["hats"]).nnz == 2
    pytest.raises(ConfigError, model.predict_proba, ["a red hat"], k=0).match("at least 1")
    with pytest.raises(NotFittedError):
        Linear().predict_proba(["a"])


def test_an_ensemble_that_gives_probabilities_needs_no_calibration() -> None:
    texts = [f"{text} {number}" for number, text in enumerate(TEXTS * 3)]
    members = [Linear(), Neighbours()]
    model = Ensemble(members, rule="learnt").fit(texts, LABELS * 3)
    best = model.predict(["red hat"], k=1)
    assert best.score_kind == "probability"
    assert model.predict_proba(["red hat"]).max() == best.scores[0, 0]
    voting = Ensemble(members, rule="rank").fit(texts, LABELS * 3)
    pytest.raises(ConfigError, voting.predict_proba, ["red hat"]).match("no probabilities yet")


def test_the_verbs_are_the_functions() -> None:
    model = Linear().fit(TEXTS, LABELS)
    corpus = Corpus.from_lists(TEXTS, LABELS)
    own = model.explain("a red hat", "hats", top=2, corpus=corpus, neighbours=1)
    same = explain(model, "a red hat", "hats", top=2, corpus=corpus, neighbours=1)
    assert own.to_dict() == same.to_dict() and len(own.neighbours) == 1
    both = [why.to_dict() for why in model.explain_best("a red hat", 2, top=1)]
    assert both == [why.to_dict() for why in explain_best(model, "a red hat", 2, top=1)]
    pytest.raises(DataError, model.explain, "a red hat", "nothing").match("unknown label 'nothing'")
    found = model.calibrate(*HELD_OUT, kind="beta")
    assert model.calibration_ is found and found.kind == "beta"
    assert repr(found).startswith("Calibration(beta, threshold ")
    assert repr(found).endswith(", 20 documents)")


def test_label_weights_that_are_not_used_are_said() -> None:
    texts, labels = ["red shoes", "blue hat"], [{"shoes": 0.5}, {"hats": 2.0}]
    with pytest.warns(LabelgroveWarning, match=r"weights from 0\.5 to 2, which linear ignores"):
        Linear().fit(texts, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelgroveWarning)
        Linear(ranker=RankerParams(label_weights="cost")).fit(texts, labels)
        Linear().fit(texts, [["shoes"], ["hats"]])


def test_names_of_labels_by_count_and_by_threshold() -> None:
    model = Linear().fit(TEXTS, LABELS)
    assert model.predict_labels(["a hat"], k=2) == model.predict(["a hat"], k=2).names()
    assert len(model.predict_labels(["a hat"])[0]) == 3
    calibrate(model, *HELD_OUT)
    assert model.predict_labels(["a hat", "shoes"]) == [["hats"], ["shoes"]]
    assert len(model.predict_labels(["a hat"], k=3, threshold=None)[0]) == 3


def test_what_scikit_learn_asks_of_a_model() -> None:
    from sklearn.model_selection import GridSearchCV

    model = Linear().fit(TEXTS, LABELS)
    scores = model.decision_function(["a hat", "shoes"])
    assert scores.shape == (2, 3) and model.classes_[scores.argmax(1)].tolist() == ["hats", "shoes"]
    tags = model.__sklearn_tags__()
    assert tags.classifier_tags.multi_label and tags.target_tags.required and tags.input_tags.string
    for labels in (LABELS, [row[0] for row in LABELS]):
        search = GridSearchCV(Linear(), {"ranker__C": [1.0, 2.0]}, cv=2).fit(TEXTS, labels)
        assert search.best_score_ > 0.9


def test_a_threshold_above_every_score_is_refused() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear().fit(corpus)
    with pytest.raises(ConfigError, match=r"threshold: no label can reach 1\.5.*product"):
        model.predict(corpus, threshold=1.5)
    calibrate(model, shop_corpus(100, labels=30, part="test"))
    with pytest.raises(ConfigError, match=r"threshold: no label can reach 2.*probability"):
        model.predict(corpus, threshold=2)
    assert model.predict(corpus, threshold=1.0).counts.sum() >= 0
    assert model.predict(corpus, raw=True).score_kind == "product"


def test_margins_have_no_upper_end() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear(search=SearchParams(post_processor="noop")).fit(corpus)
    assert model.predict(corpus, threshold=1.5).score_kind == "margin"


INDEX = LabelIndex("abcdef")


def test_an_answer_has_at_most_k_labels_above_the_threshold() -> None:
    found = Predictions.from_scores([[0.9, 0.8, 0.7, 0.2, 0.1, 0.0]], k=6, index=INDEX)
    assert PredictionRequest(INDEX, 2, None).answer(found).ids() == [["a", "b"]]
    assert PredictionRequest(INDEX, 3, None).ranks == 3
    above = PredictionRequest(INDEX, 5, None, threshold=0.7).answer(found)
    assert above.ids() == [["a", "b", "c"]]
    with pytest.raises(ConfigError, match="threshold: auto needs a calibrated model"):
        PredictionRequest(INDEX, 2, None, threshold="auto")
    for wrong in (float("nan"), "x", True):
        with pytest.raises(ConfigError, match="must be a number"):
            PredictionRequest(INDEX, 3, None, threshold=wrong)  # type: ignore[arg-type]


def test_scores_of_given_pairs_are_those_of_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "DOCUMENTS_AT_ONCE", 2)
    table = np.random.default_rng(0).random((7, 6)).astype(np.float32)
    asked: list[tuple[list[str], list[int]]] = []

    def predict(documents: list[str], k: int, mask: LabelMask) -> Predictions:
        asked.append((documents, mask.columns.tolist()))
        scores = np.where(mask.allowed, table[[int(text) for text in documents]], -np.inf)
        return Predictions.from_scores(scores, k=k, index=INDEX)

    texts = [str(n) for n in range(7)]
    pattern = np.zeros((7, 6))
    pattern[[0, 1, 1, 4, 6], [5, 0, 3, 2, 2]] = 1
    scores = masked_scores(predict, texts, sparse.csr_array(pattern), count=6)
    np.testing.assert_array_equal(scores.toarray(), table * pattern.astype(np.float32))
    assert asked == [(["0", "1"], [0, 3, 5]), (["4", "5"], [2]), (["6"], [2])]
    given = masked_scores(predict, texts, np.array([4, 1, 4]), count=6)
    np.testing.assert_array_equal(given, table[:, [4, 1, 4]])
    with pytest.raises(DataError, match=r"labels has shape \(7, 5\), not 7 documents x 6 labels"):
        masked_scores(predict, texts, sparse.csr_array(pattern[:, :5]), count=6)


CLOTHES_TEXTS = ["red shoes", "blue hat", "green scarf", "red hat"]


CLOTHES_LABELS = [["c1"], ["c2"], ["c3"], ["c2", "c4"]]


CLOTHES = LabelIndex(
    ["c1", "c2", "c3", "c4"],
    names=["shoes", "hats", "scarves", "red things"],
    groups={"clothes": [0, 1, 2]},
)


@pytest.fixture(scope="module")
def model() -> Linear:
    return Linear().fit(CLOTHES_TEXTS, CLOTHES_LABELS, index=CLOTHES)


def test_masks_take_ids_names_and_groups(model: Linear) -> None:
    assert model.predict(["red hat"], k=2, allow=["c1", "red things"]).ids() == [["c4", "c1"]]
    assert set(model.predict(["red hat"], k=9, allow=["clothes"]).ids()[0]) == {"c1", "c2", "c3"}
    assert model.predict(["red hat"], k=9, deny=["clothes"]).ids() == [["c4"]]
    assert model.predict(["red hat"], k=9, allow=["clothes"], deny=["c1", "hats"]).names() == [
        ["scarves"]
    ]


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"allow": ["boots"]}, r"allow: unknown label 'boots'.*groups clothes"),
        ({"deny": [3]}, "deny: unknown label 3"),
        ({"allow": "hats"}, r"even for one: \['hats'\]"),
        ({"allow": []}, "no label is left"),
        ({"deny": ["clothes", "c4"]}, "no label is left"),
    ],
)
def test_bad_masks(model: Linear, masks: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(["hat"], **masks)
    pytest.raises(DataError, model.score_labels, CLOTHES_TEXTS, ["boots"]).match(
        "labels: unknown label"
    )


def test_threads_are_counted_or_all(model: Linear) -> None:
    one = model.predict(["red hat"], k=2, threads=1)
    for threads in (None, 0, -1):
        assert model.predict(["red hat"], k=2, threads=threads).ids() == one.ids()
    for threads in (-2, 1.5, True, 1025, 2**31 - 1):
        with pytest.raises(ConfigError, match="threads: must be a whole number up to 1024"):
            model.predict(["red hat"], threads=threads)
