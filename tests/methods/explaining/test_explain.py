"""Explanations of linear models: sums and products hold, and words stand where it is said."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import (
    Corpus,
    LabelIndex,
    Linear,
    Matcher,
    Neighbours,
    SearchParams,
    TfidfParams,
    TreeParams,
    records,
)
from labelgrove.errors import ConfigError, DataError, NotFittedError
from labelgrove.methods.explaining.explain import (
    CUT,
    NEAREST,
    SMALLEST,
    explain,
    explain_best,
    word_paths,
    word_places,
)
from labelgrove.methods.explaining.explanation import BOUND_CHARS, Explanation, ExplanationRequest
from support.small_models import NEURAL, NEURAL_VARIANTS, new, planted

TEXT = "We sell a RED shoe, a very red one"
REDS = [(10, 13), (27, 30)]
SMALL = TreeParams(branching=2, max_leaf_size=3)


def fitted(**settings: Any) -> Linear:
    texts, labels = planted(80)
    return Linear(tree=SMALL, **settings).fit(texts, labels)


def check_sums(why: Explanation) -> None:
    """Contributions and bias are the margin on every level; probabilities multiply to the score."""
    for path in why.paths:
        for step in path.steps:
            assert step.total == pytest.approx(step.margin, abs=1e-9)
        probabilities = [step.probability or 0.0 for step in path.steps if step.counts]
        assert float(np.prod(probabilities)) == pytest.approx(path.score, rel=1e-4, abs=1e-7)
    total = sum(path.weight * path.score for path in why.paths)
    assert why.score == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("top", [None, 1, 3])
def test_contributions_and_bias_add_up_to_each_margin(top: int | None) -> None:
    model = fitted()
    scores = model.score_labels([TEXT], list(model.index_.ids))[0]
    for label, score in zip(model.index_.ids, scores, strict=True):
        why = explain(model, TEXT, label, top=top)
        check_sums(why)
        assert why.score == pytest.approx(float(score), rel=1e-6)
        assert len(why.paths) == 1
        assert [step.nodes for step in why.paths[0].steps] == list(model.rankers()[0].tree.widths)
        if top is not None:
            assert all(len(step.reasons) <= top for step in why.paths[0].steps)
            assert len(why.reasons) <= top
        elif why.reasons:
            listed = sum(reason.contribution for reason in why.reasons)
            steps = why.paths[0].steps
            margins = sum(step.weight * (step.margin - step.bias) for step in steps)
            assert sum(step.weight for step in steps) == pytest.approx(1.0)
            assert listed == pytest.approx(margins, abs=1e-9)


def test_a_label_is_explained_by_its_word_wherever_it_stands() -> None:
    model = fitted()
    predicted = model.predict([TEXT], k=2)
    found = explain_best(model, TEXT, k=2)
    assert [why.name for why in found] == predicted.names()[0]
    assert [why.score for why in found] == pytest.approx(predicted.scores[0].tolist(), rel=1e-6)
    why = next(why for why in found if why.name == "colour red")
    best = why.reasons[0]
    assert (best.text, best.kind) == ("red", "term")
    assert model.vectorizer_ is not None
    column = model.vectorizer_.terms().index("red")
    assert best.value == model.vectorizer_.transform([TEXT])[0, column]
    assert [TEXT[slice(*span)] for span in best.spans] == ["RED", "red"]
    assert [TEXT[h.start : h.end] for h in why.highlights() if h.strength == 1.0] == ["RED", "red"]


def test_a_bounded_explanation_of_a_long_text_has_the_same_margins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("labelgrove.methods.explaining.explanation.BOUND_WORDS", 3)
    model, text = fitted(), f"{'blue ' * 3000}{TEXT}"
    for label in model.index_.ids:
        whole, why = explain(model, text, label), explain(model, text, label, bounded=True)
        check_sums(why)
        assert why.score == whole.score and why.notes == (CUT,) and not whole.notes
        assert all(len(step.reasons) <= 3 for path in why.paths for step in path.steps)
        spans = {reason.text: reason.spans for reason in why.reasons}
        assert len(spans["blue"]) == 50 and spans["blue"] == tuple(
            next(r for r in whole.reasons if r.text == "blue").spans[:50]
        )
        assert all(span.end <= 10_000 for place in spans.values() for span in place)
        assert spans["red"] == ()  # behind the first characters: a name without a position
    monkeypatch.undo()
    assert explain(model, TEXT, label, bounded=True) == explain(model, TEXT, label)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_trees": 3},
        {"tfidf": TfidfParams(ngram_range=(1, 2))},
        {"tfidf": TfidfParams(analyzer="char_wb", ngram_range=(2, 3))},
        {"search": SearchParams(post_processor="sigmoid")},
    ],
    ids=str,
)
def test_other_settings_are_explained_as_well(settings: dict[str, Any]) -> None:
    model = fitted(**settings)
    why = explain(model, TEXT, "colour red")
    check_sums(why)
    assert why.score == pytest.approx(
        float(model.score_labels([TEXT], ["colour red"])[0, 0]), rel=1e-6
    )
    assert len(why.paths) == model.n_trees
    strong = why.reasons[0].spans
    assert any(span.start < end and span.end > start for span in strong for start, end in REDS)


def test_a_dense_block_and_features_without_texts() -> None:
    texts, labels = planted(80)
    names = sorted({label for row in labels for label in row})
    dense = np.array([[float(name in row) for name in names] for row in labels], np.float32)
    both = Linear(tree=SMALL).fit(texts, labels, dense=dense)
    label = labels[0][0]
    why = explain(both, texts[0], label, dense=dense[0])
    check_sums(why)
    assert any(step.vector != 0 for step in why.paths[0].steps)
    expected = both.predict([texts[0]], k=1, dense=dense[:1]).scores[0, 0]
    best = explain_best(both, texts[0], k=1, dense=dense[0])[0]
    assert best.score == pytest.approx(float(expected), rel=1e-6)

    matrix = sparse.csr_array(dense)
    alone = Linear(tree=SMALL).fit(matrix, labels)
    why = explain(alone, matrix[[0]], label)
    check_sums(why)
    assert why.reasons[0].kind == "feature"
    assert why.reasons[0].text == f"feature {names.index(label)}"
    assert why.highlights() == []
    pytest.raises(DataError, explain, alone, matrix[[0, 1]], label).match("one document, got 2")


def test_texts_without_any_known_word_and_empty_texts() -> None:
    model = fitted()
    for text in ("", "qqqq", "🌳"):
        why = explain(model, text, "colour red")
        check_sums(why)
        assert why.reasons == () and why.highlights() == []
        assert "no word of the text counts" in why.notes[0]
    assert explain(model, "red", "colour red").notes == ()


def test_a_calibrated_model_tells_its_probability_besides() -> None:
    model = fitted()
    plain = explain(model, TEXT, "colour red")
    halves = SimpleNamespace(label_probabilities=lambda scores, columns: scores / (1 + columns))
    model.calibration_ = halves  # type: ignore[attr-defined]
    why = explain(model, TEXT, "colour red")
    assert plain.calibrated is None and plain.score is not None
    assert why.calibrated == pytest.approx(plain.score / (1 + model.index_.column("colour red")))
    assert why.score == plain.score


def test_nearest_documents_bear_the_label_and_are_like_the_text() -> None:
    texts, labels = planted(80)
    corpus = Corpus.from_lists(texts, labels, ids=[f"d{n}" for n in range(80)])
    model = Linear().fit(corpus)
    row = next(n for n, names in enumerate(labels) if "colour red" in names)
    near = explain(model, texts[row], "colour red", corpus=corpus, neighbours=4).neighbours
    assert len(near) == 4
    assert near[0].similarity == pytest.approx(1.0, abs=1e-5)
    assert texts[row].startswith(near[0].excerpt.rstrip("…")[:20])
    assert all("colour red" in labels[n.document] and n.id == f"d{n.document}" for n in near)
    similarities = [n.similarity for n in near]
    assert similarities == sorted(similarities, reverse=True)
    assert "red" in near[0].terms
    unknown = explain(model, texts[row], "colour red", corpus=Corpus.from_lists(["x"], [["z"]]))
    assert unknown.neighbours == ()


def test_a_bounded_search_reads_some_documents_of_the_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, labels = ["red hat", "red shoe", "red coat", "blue hat"], [["r"]] * 3 + [["b"]]
    corpus = Corpus.from_lists(texts, labels)
    model = Linear().fit(corpus)
    monkeypatch.setattr("labelgrove.methods.explaining.explain.MOST_CHARS", 10)
    for bounded, number in ((False, 3), (True, 2)):
        near = explain(model, "a red coat", "r", corpus=corpus, bounded=bounded).neighbours
        assert len(near) == number and all(n.document < number for n in near)


def test_what_cannot_be_explained_is_refused_with_a_sentence() -> None:
    model = fitted()
    pytest.raises(DataError, explain, model, TEXT, "pink").match("unknown label 'pink'")
    pytest.raises(DataError, explain, model, [TEXT], "colour red").match("one text, not a list")
    with pytest.raises(DataError, match="fitted on texts alone"):
        explain(model, TEXT, "colour red", dense=[1.0])
    for options in ({"top": 0}, {"top": True}):
        with pytest.raises(ConfigError, match=f"{next(iter(options))}: must be"):
            explain(model, TEXT, "colour red", **options)
    with pytest.raises(NotFittedError):
        explain(Linear(), TEXT, "colour red")


def test_an_ensemble_is_explained_by_its_members() -> None:
    from labelgrove.methods.ensemble.method import Ensemble

    texts, labels = planted(80)
    pairs = TfidfParams(ngram_range=(1, 2))
    model = Ensemble([Linear(tree=SMALL), Linear(tfidf=pairs)], rule="rank").fit(texts, labels)
    found = explain_best(model, TEXT, k=2)
    predicted = model.predict([TEXT], k=2)
    assert [why.name for why in found] == predicted.names()[0]
    assert [why.score for why in found] == pytest.approx(predicted.scores[0].tolist(), rel=1e-6)
    for member, alone in zip(found[0].members, model.members_, strict=True):
        check_sums(member)
        assert member == explain(alone, TEXT, found[0].name)
    why = explain(model, TEXT, "colour red", top=5)
    assert why.members[1] == explain(model.members_[1], TEXT, "colour red", top=5)
    assert "RED" in [TEXT[h.start : h.end] for h in why.highlights() if h.strength > 0.9]
    assert [member["method"] for member in why.to_dict()["members"]] == ["linear", "linear"]
    model.candidates = 2
    why = explain(model, TEXT, model.predict([TEXT], k=11).names()[0][-1])
    assert why.score is None and why.notes == ("no member predicts this label for this text",)


def test_values_of_fields_are_reasons() -> None:
    rows = [{"t": f"book {n} by: Ben", "by": ["Ada", "Ben"][n % 2]} for n in range(12)]
    documents = records(rows, text="t", fields="by")
    labels = [[["a"], ["b"]][n % 2] for n in range(12)]
    for model in (Linear(), Neighbours()):
        model.fit(documents, labels)
        for asked in ({"t": "book 1 by: ben", "by": "ben"}, documents[1]):
            why = explain(model, asked, "b", corpus=Corpus.from_lists(documents, labels))
            values = [reason for reason in why.reasons if reason.text.lower() == "by: ben"]
            assert len(values) == 1 and values[0].contribution > 0 and values[0].spans == ()
            assert "by: ben" in why.neighbours[0].terms
            assert why.neighbours[0].excerpt.startswith("book")
    with pytest.raises(DataError, match="trained on plain texts"):
        explain(Linear().fit(["red", "blue"], [["a"], ["b"]]), {"t": "x"}, "a")


# By leaving words out: scores are those of predict, words those that matter.

SHOE = "item 7 is a red shoe that we sell"
RERANKED = "cascadexml in three levels"
NETWORKS = [pytest.param(name, marks=pytest.mark.slow) for name in (*NEURAL, *NEURAL_VARIANTS)]


@cache
def by_words(method: str) -> Any:
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
    model = by_words(method)
    predicted = model.predict([SHOE], k=3)
    explanations = explain_best(model, SHOE, k=3)
    assert [why.id for why in explanations] == predicted.ids()[0]
    for why, score in zip(explanations, predicted.scores[0], strict=True):
        # Some networks read short batches in another order.
        assert why.score == pytest.approx(float(score), rel=2e-3, abs=2e-3)
        assert why.score_kind == predicted.score_kind
        ((step,),) = (path.steps for path in why.paths)
        assert step.total == pytest.approx(step.margin, abs=1e-6)
        assert step.probability == (None if why.score_kind == "margin" else why.score)
        assert all([SHOE[slice(*span)]] == [r.text] for r in why.reasons for span in r.spans)
    assert json.loads(json.dumps(explanations[0].to_dict()))["name"] == explanations[0].name
    assert model.predict([SHOE], k=3).scores.tobytes() == predicted.scores.tobytes()


@pytest.mark.parametrize("method", ["neighbours", "matcher", *NETWORKS])
def test_the_word_that_names_the_label_is_the_reason(method: str) -> None:
    texts, labels = planted(8)
    hits = [
        max(explain(by_words(method), text, name).reasons, key=lambda r: r.contribution).text
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
        explain(by_words("matcher"), SHOE, "colour red", dense=[1.0])
    given = labelgrove.Documents(texts, labelgrove.Features(corpus.labels))
    model = Neighbours(features="given").fit(given, labels)
    why = explain(model, given.take(slice(1)), labels[0][0])
    score = model.score_labels(given.take(slice(1)), labels[0][:1])[0, 0]
    assert why.score == pytest.approx(score, rel=1e-5) and why.reasons == ()
