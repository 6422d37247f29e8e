"""Explanations by leaving words out: scores are those of predict, words those that matter."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Corpus, Matcher, Neighbours
from labelgrove.data.corpus import LabelIndex
from labelgrove.errors import DataError
from labelgrove.methods.explaining.explain import explain, explain_best
from labelgrove.methods.explaining.explanation import BOUND_CHARS, ExplanationRequest
from labelgrove.methods.explaining.words import NEAREST, SMALLEST, word_paths, word_places
from support.small_models import NEURAL, NEURAL_VARIANTS, new, planted

TEXT = "item 7 is a red shoe that we sell"
RERANKED = "cascadexml in three levels"
NETWORKS = [pytest.param(name, marks=pytest.mark.slow) for name in (*NEURAL, *NEURAL_VARIANTS)]


@cache
def fitted(method: str) -> Any:
    texts, labels = planted()
    if method in ("neighbours", "matcher"):
        names = sorted({label for row in labels for label in row})
        index = LabelIndex(names, names=[name.split()[1] for name in names])
        return {"neighbours": Neighbours, "matcher": Matcher}[method]().fit(
            texts, labels, index=index
        )
    pytest.importorskip("torch")
    return new(method, held_out=0.0).fit(texts, labels)


@pytest.mark.parametrize("method", ["neighbours", "matcher", *NETWORKS])
def test_the_score_is_that_of_predict_and_sums_hold(method: str) -> None:
    model = fitted(method)
    predicted = model.predict([TEXT], k=3)
    explanations = explain_best(model, TEXT, k=3)
    assert [why.id for why in explanations] == predicted.ids()[0]
    for why, score in zip(explanations, predicted.scores[0], strict=True):
        # Some networks read short batches in another order.
        assert why.score == pytest.approx(float(score), rel=2e-3, abs=2e-3)
        assert why.score_kind == predicted.score_kind
        ((step,),) = (path.steps for path in why.paths)
        assert step.total == pytest.approx(step.margin, abs=1e-6)
        assert step.probability == (None if why.score_kind == "margin" else why.score)
        assert all([TEXT[slice(*span)]] == [r.text] for r in why.reasons for span in r.spans)
    assert json.loads(json.dumps(explanations[0].to_dict()))["name"] == explanations[0].name
    assert model.predict([TEXT], k=3).scores.tobytes() == predicted.scores.tobytes()


@pytest.mark.parametrize("method", ["neighbours", "matcher", *NETWORKS])
def test_the_word_that_names_the_label_is_the_reason(method: str) -> None:
    texts, labels = planted(8)
    hits = [
        max(explain(fitted(method), text, name).reasons, key=lambda r: r.contribution).text
        == name.split()[1]
        for text, names in zip(texts, labels, strict=True)
        for name in names
    ]
    assert np.mean(hits) >= 0.5  # by chance it would be one in ten; some encoders learn nothing


def scored(document: str, weights: dict[str, float], kind: Any, **question: Any) -> Any:
    """The step for a score that adds up weights of words, and how many texts were read."""
    read: list[str] = []

    def scores(documents: Any) -> Any:
        read.extend(documents)
        return np.array([sum(w for word, w in weights.items() if word in d) for d in documents])

    request = ExplanationRequest(document, 3, lambda columns: (), **question)
    (path,) = word_paths(scores, request, kind, 5).paths
    return path.steps[0], len(read)


@pytest.mark.parametrize(("bounded", "most"), [(False, 300), (True, 90)])
def test_a_long_text_is_searched_in_groups(bounded: bool, most: int) -> None:
    text = f"{'lorem ipsum ' * 400}one {'dolor ' * 300}two"
    step, read = scored(text, {"one": 2.0, "two": -1.0, "three": 5.0}, "margin", bounded=bounded)
    strong = {r.text: r.contribution for r in step.reasons if r.contribution}
    assert strong == {"one": 2.0, "two": -1.0} and step.margin == 1.0
    assert (step.rest, step.unattributed, step.node, step.nodes) == (0.0, 0.0, 3, 5)
    assert read < most
    cut, _ = scored(f"{'a ' * 5001}one", {"one": 1.0}, "margin", bounded=True)
    assert (cut.unattributed, any(r.contribution for r in cut.reasons)) == (1.0, False)


def test_a_bounded_explanation_reads_a_long_text_once() -> None:
    sizes: list[int] = []

    def scores(documents: Any) -> Any:
        sizes.extend(map(len, documents))
        return np.array([float("red" in d[:50]) + ("end" in d) for d in documents])

    text = f"a red hat {'lorem ' * 20_000}end"
    request = ExplanationRequest(text, 0, lambda columns: (), bounded=True)
    (step,) = word_paths(scores, request, "margin", 5).paths[0].steps
    assert {r.text: r.contribution for r in step.reasons if r.contribution} == {"red": 1.0}
    assert (step.margin, step.unattributed) == (2.0, 1.0)
    assert sorted(sizes)[-2:] == [BOUND_CHARS, len(text)]


def test_a_record_may_be_cut_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"t": f"book {n}", "u": "red", "by": ["Ada", "Ben"][n % 2]} for n in range(12)]
    documents = labelgrove.records(rows, text=["t", "u"], fields="by")
    model = Neighbours().fit(documents, [[["a"], ["b"]][n % 2] for n in range(12)])
    for chars in range(1, len(documents[1]) + 1):
        monkeypatch.setattr("labelgrove.methods.explaining.explanation.BOUND_CHARS", chars)
        (step,) = explain(model, documents[1], "b", bounded=True).paths[0].steps
        assert step.total == pytest.approx(step.margin, abs=1e-6)


def test_probabilities_count_by_their_odds() -> None:
    step, _ = scored("red hat", {"red": 0.5, "hat": 0.5}, "product")
    sure = -np.log(NEAREST)
    assert step.margin == pytest.approx(sure) and step.probability == 1.0
    assert [r.contribution for r in step.reasons] == pytest.approx([sure, sure])
    assert step.unattributed == pytest.approx(-sure)
    empty, _ = scored("", {}, "product")
    assert empty.reasons == () and empty.margin == pytest.approx(np.log(SMALLEST))
    tiny, _ = scored("red hat", {"red": 2e-9, "hat": 1e-12}, "product")
    assert [round(r.contribution, 1) for r in tiny.reasons] == [7.6, 0.0]


def test_words_of_scripts_without_spaces_and_of_fields() -> None:
    names = [place.name for place in word_places("Ein Café, 東京!")]
    assert names == ["Ein", "Café", "東", "京"]
    rows = [{"title": "item", "note": None, "body": "a shoe", "by": ["Ada B.", "red"], "of": []}]
    (record,) = labelgrove.records(rows, text=["title", "note", "body"], fields=["by"])
    places = word_places(record)
    assert [place.name for place in places] == ["item", "a", "shoe", "by: Ada B.", "by: red"]
    spans = [place.spans for place in places]
    assert spans == [((0, 4),), ((5, 6),), ((7, 11),), (), ()]  # in "item\na shoe"
    without = record[: places[3].start] + record[places[3].end :]
    assert [place.name for place in word_places(without)][3:] == ["by: red"]


@pytest.mark.slow
def test_fields_and_given_rows_are_read_with_every_text() -> None:
    pytest.importorskip("torch")
    texts, labels = planted(60)
    rows = [{"title": "item", "by": t.split()[4], "body": t.split()[5]} for t in texts]
    documents = labelgrove.records(rows, text=["title", "body"], fields="by")
    encoder = new(RERANKED).encoder.get_params() | {"fields": ["by"]}
    model = new(RERANKED, held_out=0.0, encoder=encoder).fit(documents, labels)
    (why,) = explain_best(model, {"title": "item", "by": "red", "body": "shoe"}, k=1, top=None)
    assert {reason.text: len(reason.spans) for reason in why.reasons}.items() >= {
        ("by: red", 0),
        ("shoe", 1),
    }


def test_features() -> None:
    matrix = np.eye(3, dtype=np.float32)
    with pytest.raises(DataError, match="this method reads text"):
        explain(Neighbours().fit(matrix, [["a"], ["b"], ["c"]]), matrix[[1]], "b")
    texts, labels = planted()
    corpus = Corpus.from_lists(texts, labels)
    with pytest.raises(DataError, match="cannot use dense="):
        explain(fitted("matcher"), TEXT, "colour red", dense=[1.0])
    given = labelgrove.Documents(texts, labelgrove.Features(corpus.labels))
    model = Neighbours(features="given").fit(given, labels)
    why = explain(model, given.take(slice(1)), labels[0][0])
    score = model.score_labels(given.take(slice(1)), labels[0][:1])[0, 0]
    assert why.score == pytest.approx(score, rel=1e-5) and why.reasons == ()
