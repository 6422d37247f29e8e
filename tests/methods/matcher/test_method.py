"""What the matcher is for; what every method promises is in test_contract.py."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from labelgrove import Corpus, Ensemble, LabelIndex, Linear, Matcher
from labelgrove.errors import ConfigError
from labelgrove.methods.matcher.evidence import MatchingParams, learn_evidence
from labelgrove.methods.matcher.names import Names

WORDS = [f"{a}{b}{c}o" for a in "bdfghjpt" for b in "aiu" for c in "cfgklmprtvwz"]  # 288 names
INDEX = LabelIndex([*WORDS, "zuzo"])


def corpus(n: int = 400, seed: int = 0) -> Corpus:
    """Texts that name their label in the first sentence, and another one, by the way, later.

    Some labels have many documents, others one or none.
    """
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        subject, other = (WORDS[min(287, int(random.exponential(50)))] for _ in range(2))
        texts.append(f"About {subject}. It is unlike {other} in every way")
        labels.append([subject])
    return Corpus.from_lists(texts, labels, index=INDEX)


def test_labels_without_documents_are_found() -> None:
    model = Matcher().fit(corpus())
    assert model.facts_.frequencies[INDEX.column("zuzo")] == 0
    found = model.predict(["About zuzo. It is unlike bako", "About bako. It is unlike zuzo"], k=2)
    assert found.names() == [["zuzo", "bako"], ["bako", "zuzo"]]
    assert found.scores[0, 0] > 0.5 > found.scores[0, 1]


def test_a_name_that_is_never_right_is_not_trusted() -> None:
    data = corpus()
    assert data.texts is not None
    texts = [f"{text} and about" for text in data.texts]
    index = LabelIndex([*INDEX.ids, "about"])
    model = Matcher().fit(Corpus.from_lists(texts, data.label_lists(), index=index))
    scores = model.score_labels(["About zuzo"], ["about", "zuzo"])
    assert scores[0, 0] < 0.5 < scores[0, 1]


def test_scores_are_probabilities() -> None:
    model = Matcher().fit(corpus(1000))
    test = corpus(500, seed=1)
    found = model.predict(test, k=2)
    assert found.scores.mean() == pytest.approx(0.5, abs=0.03)  # one of two is right
    assert (found.scores > 0).all() and (found.scores <= 1).all()


def test_counts_of_the_own_tenth_are_left_out() -> None:
    """Each label has one document: with its own counts, the weights would rely on them."""
    texts = [f"{word} and {WORDS[(n + 7) % 288]}" for n, word in enumerate(WORDS)]
    data = Corpus.from_lists(texts, [[word] for word in WORDS], index=INDEX)
    evidence = learn_evidence(Names(INDEX, 8), texts, data.labels, MatchingParams(), seed=0)
    right = 21  # the share of right matches in training
    assert evidence.counts.right[:288].tolist() == [1] * 288
    assert evidence.weights[right] <= 0
    assert abs(evidence.weights[9]) > 0.1


def test_what_was_never_seen_in_training_is_not_extrapolated() -> None:
    """All labels have about as many documents, so nothing is known of labels without any."""
    texts = [f"About {w}. Unlike {o}" for w, o in pairwise(WORDS[:4])] * 20
    model = Matcher().fit(texts, [[word] for word in WORDS[:3]] * 20, index=INDEX)
    scores = model.score_labels(["About zuzo", f"About {WORDS[0]}"], ["zuzo", WORDS[0]])
    assert scores[0, 0] < scores[1, 1]


def test_labels_without_a_match_follow_by_frequency() -> None:
    texts, labels = ["x", "y", "z", "hats"], [["many"], ["many"], ["one"], ["hats"]]
    found = Matcher().fit(texts, labels).predict(["nothing"], k=3)
    assert found.names() == [["many", "one", "hats"]]
    np.testing.assert_allclose(found.scores[0], [2.01 / 5, 1.01 / 5, 0.01 / 4], rtol=1e-5)


def test_it_stands_in_ensembles_that_learn() -> None:
    model = Ensemble([Linear(), Matcher()], rule="learnt").fit(corpus())
    assert model.learns_names()
    assert model.predict(["About zuzo"], k=1).names() == [["zuzo"]]


def test_settings_are_checked() -> None:
    for wrong in ({"letters": 2}, {"documents": 0}, {"ridge": 0.0}):
        with pytest.raises(ConfigError, match=f"matching.{next(iter(wrong))}"):
            Matcher(matching=MatchingParams(**wrong)).fit(corpus())
