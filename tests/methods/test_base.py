"""What the base class gives all methods."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from labelgrove import (
    Corpus,
    Ensemble,
    Linear,
    Neighbours,
    RankerParams,
    TreeParams,
    calibrate,
)
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning, NotFittedError
from labelgrove.methods.explaining.explain import explain, explain_best

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


def test_labels_are_diverse_only_if_asked() -> None:
    corpus = shop_corpus(300, labels=40)
    model = Linear(tree=TreeParams(branching=4, max_leaf_size=10)).fit(corpus)
    plain, best, diverse = (
        model.predict(corpus, k=4, **asked).columns.tolist()
        for asked in ({}, {"diversity": 0.0}, {"diversity": 1.0})
    )
    assert plain == best != diverse


def test_names_of_labels_by_count_and_by_threshold() -> None:
    model = Linear().fit(TEXTS, LABELS)
    assert model.predict_labels(["a hat"], k=2) == model.predict(["a hat"], k=2).names()
    assert len(model.predict_labels(["a hat"])[0]) == 3
    calibrate(model, *HELD_OUT)
    assert model.predict_labels(["a hat", "shoes"]) == [["hats"], ["shoes"]]
    assert len(model.predict_labels(["a hat"], k=3, threshold=None)[0]) == 3


def test_an_explanation_without_a_label_is_that_of_the_best() -> None:
    model = Linear().fit(TEXTS, LABELS)
    assert model.explain("a blue hat").to_dict() == model.explain("a blue hat", "hats").to_dict()


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
