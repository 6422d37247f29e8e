"""Explanations of linear models: sums and products hold, and words stand where it is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import (
    Corpus,
    Linear,
    Neighbours,
    SearchParams,
    TfidfParams,
    TreeParams,
    records,
)
from labelgrove.errors import ConfigError, DataError, NotFittedError
from labelgrove.methods.explaining.explain import CUT, explain, explain_best
from labelgrove.methods.explaining.explanation import Explanation
from support.small_models import planted

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


def test_the_steps_say_what_their_nodes_are_about() -> None:
    model = fitted()
    steps = explain(model, TEXT, "colour red").paths[0].steps
    assert [step.level for step in steps] == list(range(1, len(steps) + 1))
    assert steps[-1].labels == 1 and steps[-1].examples == ()
    for step in steps[:-1]:
        assert step.labels >= len(step.examples) >= 1
        assert set(step.examples) <= set(model.index_.names)


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
    halves = SimpleNamespace(label_chances=lambda scores, columns: scores / (1 + columns))
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
