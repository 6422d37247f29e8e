"""Explanations of neural methods: scores are those of predict, words those that matter."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import labelgrove
from labelgrove import Corpus
from labelgrove.errors import DataError, UnsupportedError
from labelgrove.methods.explaining.explain import explain, explain_best
from labelgrove.methods.explaining.explanation import Explanation
from support.models import Plain
from support.small_models import NEURAL, NEURAL_VARIANTS, new, planted

pytestmark = pytest.mark.slow
METHODS = [*NEURAL, *NEURAL_VARIANTS]
RERANKED = "cascadexml in three levels"
TEXT = "item 7 is a red shoe that we sell"


@cache
def fitted(method: str) -> Any:
    texts, labels = planted()
    return new(method, held_out=0.0).fit(texts, labels)


def check_best(model: Any) -> list[Explanation]:
    """Explanations of the best labels: scores are those of predict, and all sums hold."""
    predicted = model.predict([TEXT], k=3)
    found = explain_best(model, TEXT, k=3)
    assert [why.id for why in found] == predicted.ids()[0]
    for why, score in zip(found, predicted.scores[0], strict=True):
        assert why.score_kind == predicted.score_kind
        # Some rankers read vectors in half precision.
        assert why.score == pytest.approx(float(score), rel=2e-3, abs=2e-3)
        assert sum(path.weight for path in why.paths) == pytest.approx(1.0)
        for path in why.paths:
            probabilities = [step.probability for step in path.steps if step.counts]
            if None in probabilities:
                assert path.score == pytest.approx(path.steps[-1].margin, abs=1e-5)
            else:
                assert float(np.prod(probabilities)) == pytest.approx(path.score, rel=1e-4)
            for step in path.steps:
                assert step.total == pytest.approx(step.margin, abs=1e-6)
            assert sum(step.weight for step in path.steps) == pytest.approx(1.0)
            assert all(set(step.examples) <= set(model.index_.names) for step in path.steps)
    assert json.loads(json.dumps(found[0].to_dict()))["name"] == found[0].name
    return found


@pytest.mark.parametrize("method", METHODS)
def test_scores_and_margins_hold(method: str) -> None:
    assert check_best(fitted(method))[0].paths[0].steps[-1].counts


def test_rankers_on_an_encoders_vectors_hand_them_on_to_words() -> None:
    for method in ("parabel-pretrained-tfidf", "parabel-finetuned-tfidf"):
        model = fitted(method)
        why = explain(model, TEXT, "colour red", top=None, gradient_steps=64)
        assert len(why.paths) == model.n_trees
        for path in why.paths:
            for step in path.steps:
                assert {reason.kind for reason in step.reasons} == {"term", "token"}


@pytest.mark.parametrize("combine", ["ranker", "learnt"])
@pytest.mark.parametrize("features", ["both", "tfidf"])
def test_a_matcher_and_a_ranker_together(combine: str, features: str) -> None:
    from labelgrove.methods.xtransformer.ranking import LearntScore

    texts, labels = planted()
    ranking = {"features": features, "combine": "ranker"}
    model = new("xtransformer", baseline=False, ranking=ranking).fit(texts, labels)
    model.ranking.combine = combine
    model.orderer_.learnt = LearntScore(cluster=0.5, label=2.0, constant=-1.0)
    why = check_best(model)[0]
    kinds = {reason.kind for step in why.paths[0].steps for reason in step.reasons}
    assert kinds == {"term", "token"}  # the matcher reads tokens in any case
    counts = [step.counts for step in why.paths[0].steps]
    assert counts == {"ranker": [False, True], "learnt": [True]}[combine]


@pytest.mark.parametrize("method", ["lightxml", "cascadexml", "xtransformer", *NEURAL_VARIANTS])
def test_the_word_that_names_the_label_is_the_reason(method: str) -> None:
    texts, labels = planted(8)
    hits = []
    for text, names in zip(texts, labels, strict=True):
        for name in names:
            why = explain(fitted(method), text, name, gradient_steps=8)
            step = why.paths[-1].steps[-1]
            best = max(step.reasons, key=lambda reason: reason.contribution)
            hits.append(best.text == name.split()[1])
    assert np.mean(hits) >= 0.75  # by chance it would be one in ten


def test_word_vectors_are_one_number_beside_the_terms() -> None:
    why = explain(fitted("parabel-word2vec-tfidf"), TEXT, "colour red", top=None)
    assert {reason.kind for reason in why.reasons} == {"term"}
    assert max(why.reasons, key=lambda reason: reason.contribution).text == "red"
    assert any(step.vector for path in why.paths for step in path.steps)


@pytest.mark.parametrize("method", [RERANKED, "lightxml in groups"])
@pytest.mark.parametrize("rule", ["level", "weighted"])
def test_the_step_above_the_label_counts_by_the_rule_of_the_score(method: str, rule: str) -> None:
    model = fitted(method)
    params = model.network_.heads.params
    usual, params.score = params.score, rule
    try:
        (*_, above, label) = check_best(model)[0].paths[0].steps
    finally:
        params.score = usual
    assert (above.counts, label.counts) == (rule == "weighted", True)


def test_steps_follow_the_tree_down_to_the_label() -> None:
    why = explain(fitted(RERANKED), TEXT, "colour red")
    steps = why.paths[0].steps
    assert [step.nodes for step in steps] == [2, 4, 11]
    assert [step.labels > 1 for step in steps] == [True, True, False]
    grouped = explain(fitted("lightxml in groups"), TEXT, "colour red").paths[0].steps
    assert grouped[0].labels == len(grouped[0].examples)
    alone = explain(fitted("lightxml"), TEXT, "colour red").paths[0].steps
    assert [(step.level, step.nodes, step.labels) for step in alone] == [(1, 11, 1)]


def test_a_reranker_gives_terms_and_hands_its_vector_on_to_words() -> None:
    model = fitted(RERANKED)
    why = explain(model, TEXT, "colour red", top=None, gradient_steps=16)
    network, reranker = why.paths
    assert (network.name, reranker.name) == ("network", "reranker")
    assert reranker.weight == model.rerank.share
    (step,) = reranker.steps
    assert {reason.kind for reason in step.reasons} == {"term", "token"}
    strongest = max(step.reasons, key=lambda reason: reason.contribution)
    assert strongest.text == "red"
    assert {reason.kind for reason in network.steps[-1].reasons} == {"token"}


def test_predictions_are_the_same_after_explaining() -> None:
    model = fitted("cascadexml")
    before = model.predict([TEXT], k=5).scores.tobytes()
    explain(model, TEXT, "colour red", gradient_steps=2)
    assert model.predict([TEXT], k=5).scores.tobytes() == before


def test_nearest_documents_without_a_vectoriser_of_its_own() -> None:
    texts, labels = planted()
    corpus = Corpus.from_lists(texts, labels)
    near = explain(fitted("lightxml"), TEXT, "colour red", corpus=corpus).neighbours
    assert len(near) == 3
    assert all("colour red" in labels[found.document] for found in near)


def test_saved_models_explain_the_same(tmp_path: Any) -> None:
    model = fitted(RERANKED)
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    loaded.device = "cpu"
    ours, theirs = (explain(m, TEXT, "colour red") for m in (model, loaded))
    assert theirs.score == pytest.approx(ours.score, rel=1e-6)
    assert [r.text for r in theirs.reasons] == [r.text for r in ours.reasons]


def test_what_cannot_be_explained_is_refused_with_a_sentence() -> None:
    model = fitted("lightxml")
    with pytest.raises(DataError, match="this method reads text"):
        explain(model, np.ones((1, 3)), "colour red")
    with pytest.raises(DataError, match="cannot use dense="):
        explain(model, TEXT, "colour red", dense=[1.0])

    with pytest.raises(UnsupportedError, match="the method lightxml cannot be explained"):
        explain(Plain(model, method="lightxml"), TEXT, "colour red")


@pytest.mark.parametrize("text", ["", "🌳", "zzz"])
def test_texts_of_unknown_words(text: str) -> None:
    why = explain(fitted(RERANKED), text, "colour red")
    assert why.score is not None and 0 <= why.score <= 1


@pytest.mark.parametrize("method", ["lightxml", RERANKED])
def test_words_of_fields_have_their_names_and_words_of_texts_their_places(method: str) -> None:
    texts, labels = planted(60)
    rows = [{"title": "item", "by": t.split()[4], "body": t.split()[5]} for t in texts]
    documents = labelgrove.records(rows, text=["title", "body"], fields="by")
    encoder = new(method).encoder.get_params() | {"fields": ["by"]}
    model = new(method, held_out=0.0, encoder=encoder).fit(documents, labels)
    asked = {"title": "item", "by": "red", "body": "shoe"}
    (score,) = model.predict([asked], k=1).scores[0]
    (why,) = explain_best(model, asked, k=1, top=None)
    assert why.score == pytest.approx(float(score), rel=2e-3)
    assert all(step.total == pytest.approx(step.margin, abs=1e-6) for step in why.paths[0].steps)
    shown = "item\nshoe"
    tokens = {reason.text: reason.spans for reason in why.reasons if reason.kind == "token"}
    assert tokens["by: red"] == ()
    assert [shown[start:end] for start, end in tokens["shoe"]] == ["shoe"]
    assert [shown[start:end] for start, end in tokens["item"]] == ["item"]
    if method == RERANKED:
        why = explain(model, asked, "colour red", top=None)
        terms = [reason for reason in why.reasons if reason.kind != "token"]
        assert any(reason.text == "by: red" and reason.spans == () for reason in terms)
