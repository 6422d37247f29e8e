"""What the method of neighbours is for; what every method promises is in test_contract.py."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, Ensemble, Linear, Neighbours
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.methods.explaining.explain import explain
from labelgrove.methods.neighbours.voting import VotingParams

TEXTS = ["red shoes", "red boots", "red hat", "green hat", "a violet umbrella"]
LABELS = [["shoes", "red"], ["shoes", "red"], ["hats", "red"], ["hats"], ["umbrellas"]]


def test_a_label_with_one_document_is_found() -> None:
    model = Neighbours().fit(TEXTS, LABELS)
    found = model.predict(["an umbrella"], k=1)
    assert found.names() == [["umbrellas"]]
    assert found.scores[0, 0] > 0.5


def test_a_text_without_known_words_gets_the_most_frequent_labels() -> None:
    found = Neighbours().fit(TEXTS, LABELS).predict(["nothing known"], k=2)
    assert found.names() == [["red", "hats"]]
    np.testing.assert_allclose(found.scores[0], [4 / 6, 3 / 6], rtol=1e-6)


def test_rarity_divides_scores_by_a_power_of_the_frequency() -> None:
    names = ["red", "hats", "umbrellas"]  # of three documents, two and one
    plain, rare = (
        Neighbours(voting=VotingParams(rarity=rarity)).fit(TEXTS, LABELS) for rarity in (0.0, 0.5)
    )
    ratios = rare.score_labels(["red hat"], names) / plain.score_labels(["red hat"], names)
    np.testing.assert_allclose(ratios[0], [3**-0.5, 2**-0.5, 1], rtol=1e-5)


def test_members_of_an_ensemble_share_tfidf() -> None:
    texts, labels = TEXTS * 10, LABELS * 10
    ensemble = Ensemble([Linear(), Neighbours()], rule="mean").fit(texts, labels)
    first, second = ensemble.members_
    assert np.array_equal(first.vectorizer_.idf, second.vectorizer_.idf)
    taken = {name: timing for name, timing in ensemble.timings_.items() if "tfidf" in name}
    assert [timing.reused for timing in taken.values()] == [False, True]
    assert ensemble.predict(["violet umbrella"], k=1).names() == [["umbrellas"]]


def test_an_explanation_divides_the_score_among_the_words() -> None:
    model = Neighbours(voting=VotingParams(rarity=0.3)).fit(TEXTS, LABELS)
    text = "red and green, a hat"
    for label in ("hats", "red", "umbrellas"):
        why = explain(model, text, label)
        assert why.score == pytest.approx(model.score_labels([text], [label])[0, 0], rel=1e-5)
        step = why.paths[0].steps[0]
        assert step.total == pytest.approx(step.margin) and step.bias > 0
        words = {reason.text: reason.contribution for reason in why.reasons}
        assert set(words) == {"hats": {"red", "green", "hat"}, "red": {"red", "hat"}}.get(
            label, set()
        )
    matrix = sparse.csr_array(np.eye(3, dtype=np.float32))
    model = Neighbours().fit(matrix, [["a"], ["b"], ["c"]])
    assert [reason.text for reason in explain(model, matrix[[1]], "b").reasons] == ["feature 1"]


def test_settings_are_checked() -> None:
    for wrong in ({"neighbours": 0}, {"power": -1.0}, {"rarity": 2.0}, {"prior": 0.0}):
        with pytest.raises(ConfigError, match=f"voting.{next(iter(wrong))}"):
            Neighbours(voting=VotingParams(**wrong)).fit(TEXTS, LABELS)


def test_dense_rows_beside_others_are_refused() -> None:
    rows = np.ones((5, 2), np.float32)
    corpus = Corpus.from_lists(TEXTS, LABELS).with_dense(rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(corpus)
    both = labelgrove.Features(sparse.csr_array(rows), rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(both, LABELS)
