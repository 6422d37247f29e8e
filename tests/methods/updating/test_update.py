"""add_labels and update: what models do before, after, and when something goes wrong."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Ensemble, LabelIndex, Linear, Matcher, TfidfParams, TreeParams
from labelgrove.errors import DataError, NotFittedError, UnsupportedError
from labelgrove.evaluation.merge_weights import frequency_bins
from labelgrove.methods.explaining.explain import explain_best
from labelgrove.methods.updating import report
from labelgrove.methods.updating.report import GrowthParams, rebuild_reasons
from labelgrove.ranking import growing
from labelgrove.ranking.solver import RankerParams
from support.models import Plain
from support.small_models import COLOURS, THINGS, planted

KNOWN = {f"colour {c}" for c in COLOURS} | {f"kind {t}" for t in THINGS}
SMALL = TreeParams(branching=2, max_leaf_size=3)


OLD = planted(150)
NEW = planted(40, 1, ["sofa", "spoon"])
QUESTIONS = planted(30, 2, ["sofa", "spoon", *THINGS])


@pytest.fixture
def model() -> Linear:
    # The vocabulary knows what new things are called: texts on anything may mention them.
    texts, labels = OLD
    unlabelled = ["a sofa and a spoon"] * 2
    index = LabelIndex(sorted(KNOWN))
    return Linear(tree=SMALL).fit([*texts, *unlabelled], [*labels, [], []], index=index)


def scores(model: Any, labels: list[str]) -> Any:
    return model.score_labels(QUESTIONS[0], labels, raw=True)


@pytest.mark.parametrize("with_old", [False, True])
def test_new_labels_are_learnt_and_old_ones_are_not_forgotten(
    model: Linear, with_old: bool
) -> None:
    before = list(model.index_.ids)
    old = ([*OLD[0], "a sofa and a spoon", ""], [*OLD[1], [], []])
    growth = model.update(*NEW, corpus=old if with_old else None)
    assert growth.added == ("kind sofa", "kind spoon")
    assert set(growth.retrained) == {f"colour {c}" for c in COLOURS}
    assert growth.documents == 40
    assert list(model.index_.ids) == [*before, "kind sofa", "kind spoon"]
    found = model.predict(QUESTIONS[0], k=2).names()
    hits = sum(set(names) == set(true) for names, true in zip(found, QUESTIONS[1], strict=True))
    assert hits >= 27
    assert model.facts_.documents == 192
    assert model.facts_.frequencies[-2:].sum() == 40
    assert model.facts_.grown == 2
    assert bool(growth.notes) != with_old


@pytest.mark.parametrize("with_old", [False, True])
def test_costs_by_propensity_count_old_and_new_documents(
    with_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = RankerParams(label_weights="propensity")
    model = Linear(tree=SMALL, ranker=ranker).fit(*OLD, index=LabelIndex(sorted(KNOWN)))
    calls, solve = [], growing.solve_columns

    def spied(*arguments: Any, frequencies: Any, **options: Any) -> Any:
        calls.append(frequencies)
        return solve(*arguments, frequencies=frequencies, **options)

    monkeypatch.setattr(growing, "solve_columns", spied)
    model.update(*NEW, corpus=OLD if with_old else None)
    assert calls
    for labels, documents in calls:
        assert documents == 190 and labels.sum() == 380
        assert np.array_equal(labels, model.facts_.frequencies)


def test_a_label_without_documents_is_found_by_its_own_text(model: Linear) -> None:
    growth = model.add_labels(["Couches"], ids=["c1"], texts=["sofa"])
    assert growth.added == ("c1",) and growth.documents == 0
    assert model.index_.names[-1] == "Couches" and model.index_.texts is not None
    assert model.index_.texts[0] == model.index_.names[0]
    best = model.predict(["my sofa"], k=1)
    assert best.names() == [["Couches"]]
    # Later documents train the label where it stands.
    later = model.update(["my spoon is large"] * 3, [["Couches"]] * 3)
    assert later.added == () and later.retrained == ("c1",)
    assert model.predict(["a spoon"], k=1).names() == [["Couches"]]


def test_labels_with_documents_of_their_own(model: Linear) -> None:
    documents = [["a sofa", "some sofa and a spoon"], [], ["a spoon", "some sofa and a spoon"]]
    growth = model.add_labels(["sofas", "lamp shades", "spoons"], documents=documents)
    assert growth.documents == 3 and growth.retrained == ()
    assert model.facts_.frequencies[-3:].tolist() == [2, 0, 2]
    assert set(model.predict(["sofa spoon"], k=2).names()[0]) == {"sofas", "spoons"}


def test_the_same_bits_for_any_number_of_threads_and_after_loading(
    model: Linear, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    grown = []
    for threads in (1, 3):
        loaded = labelgrove.load(tmp_path / "model")
        assert not loaded.rankers()[0].levels[-1].values.flags.writeable  # a read-only memory map
        loaded.n_jobs = threads
        loaded.update(*NEW)
        grown.append(loaded)
    model.update(*NEW)
    everything = list(model.index_.ids)
    assert np.array_equal(scores(grown[0], everything), scores(grown[1], everything))
    assert np.array_equal(scores(grown[0], everything), scores(model, everything))
    # The folder is as it was, and takes the grown model when told so.
    assert len(labelgrove.load(tmp_path / "model").index_) == len(everything) - 2
    grown[0].save(tmp_path / "model", overwrite=True)
    again = labelgrove.load(tmp_path / "model")
    assert np.array_equal(scores(again, everything), scores(model, everything))
    assert again.facts_.grown == 2
    assert again.update(*NEW).added == ()


def test_everything_else_goes_on_working(model: Linear) -> None:
    labelgrove.calibrate(model, *planted(60, 5), by="frequency", target="macro-F1")
    assert model.calibration_ is not None
    before = model.score_labels(QUESTIONS[0], ["kind shoe"])
    growth = model.update(*NEW, params=GrowthParams(retrain="new"))
    assert any("calibrate again" in note for note in growth.notes)
    assert any("few negative documents" in note for note in growth.notes)
    found = model.predict(QUESTIONS[0], k=3)
    assert found.score_kind == "probability"
    assert np.allclose(model.score_labels(QUESTIONS[0], ["kind shoe"]), before, atol=1e-5)
    model.predict(QUESTIONS[0], k=3, threshold="auto")
    masked = model.predict(["a red sofa"], k=2, allow=["kind sofa", "kind hat"])
    assert masked.names()[0][0] == "kind sofa"
    assert "kind sofa" not in model.predict(["a red sofa"], k=3, deny=["kind sofa"]).names()[0]
    reasons = explain_best(model, "a red sofa", k=2)
    assert {why.name for why in reasons} == {"kind sofa", "colour red"}


def test_an_error_midway_leaves_the_model_as_it_was(
    model: Linear, monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = dict(vars(model))
    expected = scores(model, ["kind shoe"])

    def broken(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "reported", broken)
    with pytest.raises(KeyboardInterrupt):
        model.update(*NEW)
    assert {name: id(value) for name, value in vars(model).items()} == {
        name: id(value) for name, value in attributes.items()
    }
    assert np.array_equal(scores(model, ["kind shoe"]), expected)


def test_features_in_place_of_texts() -> None:
    tfidf = labelgrove.Tfidf(TfidfParams()).fit([*OLD[0], *NEW[0]])
    dense = np.random.default_rng(0).normal(size=(150, 4)).astype(np.float32)
    model = Linear(tree=SMALL).fit(tfidf.transform(OLD[0]), OLD[1], dense=dense)
    growth = model.update(tfidf.transform(NEW[0]), NEW[1], dense=dense[:40])
    assert len(growth.added) == 2
    found = model.predict(tfidf.transform(NEW[0]), k=1, allow=list(growth.added), dense=dense[:40])
    hits = [a[0] == b[1] for a, b in zip(found.names(), NEW[1], strict=True)]
    assert np.mean(hits) > 0.9
    with pytest.raises(DataError, match="give their documents"):
        model.add_labels(["nothing known of it"])


def test_ensembles_grow_as_a_whole() -> None:
    members = [
        Matcher(),
        Linear(tree=SMALL),
        Linear(tfidf=TfidfParams(analyzer="char_wb", ngram_range=(3, 3))),
    ]
    model = Ensemble(members).fit(*OLD)
    growth = model.update(*NEW)
    assert growth.added == ("kind sofa", "kind spoon") and growth.retrained
    assert model.learns_names()
    (note,) = growth.notes
    assert note.startswith("0 of the 150 training documents were given")
    assert not model.add_labels(["zyxzyx"]).notes  # the matcher finds it
    assert all(member.index_ is model.index_ for member in model.members_)
    assert model.predict([NEW[0][0]], k=2).k == 2
    assert model.facts_.documents == 190
    first = model.members_[0]
    attributes = dict(vars(first))
    model.members_.append(Plain(model, method="lightxml"))
    pytest.raises(UnsupportedError, model.add_labels, ["one more"]).match("Train it again")
    assert all(vars(first)[name] is value for name, value in attributes.items())


@pytest.mark.slow
@pytest.mark.parametrize("with_old", [False, True])
def test_a_learnt_merge_has_room_for_new_labels(with_old: bool, tmp_path: Path) -> None:
    words = [f"{a}{b}{c}o" for a in "bdfghjpt" for b in "aiu" for c in "cfgklmprtvwz"]

    def named(n: int, seed: int, late: list[str]) -> tuple[list[str], list[list[str]]]:
        """Texts that name a label, often a rare one, and have a mark of another one."""
        random = np.random.default_rng(seed)
        numbers = random.exponential(50, size=n).astype(int) % len(words)
        chosen = [late[number % 2] if late else words[number] for number in numbers]
        marks = random.integers(4, size=n).tolist()
        texts = [f"About {word}, mark{mark}" for word, mark in zip(chosen, marks, strict=True)]
        return texts, [[w, f"kind {mark}"] for w, mark in zip(chosen, marks, strict=True)]

    late = ["ruko", "zuzo"]
    old, new = named(500, 0, []), named(40, 1, late)
    model = Ensemble([Linear(tree=SMALL), Matcher()], rule="learnt", held_out=0.2)
    model.fit(*old, index=LabelIndex([*words, *(f"kind {mark}" for mark in range(4))]))
    assert model.merge_ is not None and all(model.merge_.shares)
    before, rare = model.merge_.bins, words[-1]
    assert model.update(*new, corpus=old if with_old else None).added == tuple(late)
    assert np.array_equal(model.merge_.bins[: len(words)], before[: len(words)])
    counts = [sum(row[0] == word for row in new[1]) for word in late]
    assert model.merge_.bins[-2:].tolist() == frequency_bins(counts).tolist()
    assert model.predict(["About zuzo", "About ruko"], k=1).names() == [["zuzo"], ["ruko"]]
    # An old label with new documents is no longer one without any.
    assert before[model.index_.column(rare)] == 0
    model.update([f"About {rare}"] * 5, [[rare]] * 5)
    assert model.merge_.bins[model.index_.column(rare)] == frequency_bins([5])[0]
    model.save(tmp_path / "model")
    found, loaded = model.predict(old[0], k=5), labelgrove.load(tmp_path / "model")
    assert np.array_equal(found.columns, loaded.predict(old[0], k=5).columns)


def test_a_calibrated_ensemble_has_groups_for_new_labels() -> None:
    model = Ensemble([Linear(tree=SMALL), Linear(tree=SMALL, random_state=1)]).fit(*OLD)
    labelgrove.calibrate(model, *planted(60, 5), by="frequency")
    old = model.calibration_
    for by, group in (("frequency", 3), ("level", -1)):  # levels are those of earlier releases
        model.calibration_ = replace(old, by=by)
        assert "calibrate again" in model.add_labels([f"new by {by}"]).notes[0]
        old = model.calibration_
        assert old.groups[-1] == group and len(old.groups) == len(model.index_)
        assert model.predict(["a red hat"], k=3).score_kind == "probability"


def test_it_says_when_a_rebuild_is_due(model: Linear) -> None:
    quiet = GrowthParams(max_added=1.0, max_leaf=10.0)
    assert not model.update(*NEW, params=quiet).rebuild_due
    growth = model.update(
        ["entirely strange words here"] * 3,
        [["more"]] * 3,
        params=GrowthParams(max_added=0.1, max_leaf=1.0),
    )
    assert growth.rebuild_due
    for named in ("max_added", "max_leaf"):
        assert any(named in reason for reason in growth.reasons)
    assert growth.to_json()["rebuild_due"] is True
    partial = model.update(*NEW, corpus=(OLD[0][:50], OLD[1][:50]))
    assert any(note.startswith("50 of the 195 training documents") for note in partial.notes)


def test_mistakes_are_named(model: Linear) -> None:
    for call, message in [
        (lambda: model.add_labels("red"), "must be a list"),
        (lambda: model.add_labels(["kind shoe"]), "already has"),
        (lambda: model.add_labels(["a", "a"]), "given twice"),
        (lambda: model.add_labels([""]), "non-empty"),
        (lambda: model.add_labels(["a"], texts=["x", "y"]), "2 texts"),
        (lambda: model.add_labels(["a"], documents=["one text"]), "give a list of texts"),
        (lambda: model.add_labels(["a"], documents=[]), "for each of 1 labels"),
        (lambda: model.update(["a text"], [[]]), "no document has a label"),
        (lambda: model.update(["a text"], [["a"]], corpus=["x"]), "a pair"),
    ]:
        pytest.raises(DataError, call).match(message)
    with pytest.raises(labelgrove.errors.ConfigError, match="caution"):
        model.update(*NEW, params=GrowthParams(caution=-1))
    with pytest.raises(NotFittedError):
        Linear().update(*NEW)
    assert len(model.index_) == len(KNOWN)


def test_labels_whose_text_has_no_known_word_are_spread_and_told_of(model: Linear) -> None:
    growth = model.add_labels(["sofa", *(f"qqqq{n}" for n in range(12))])
    assert any("documents teach them: 12; their names" in note for note in growth.notes)
    tree = model.rankers()[0].tree
    assert np.diff(tree.children(len(tree.parents) - 1)).max() <= 6
    assert model.predict(["my sofa"], k=1).names() == [["sofa"]]
    one = model.add_labels(["lamps"], documents=[["qqqq"]], params={"caution": 0.1})
    assert "documents teach them: 1; their names" in one.notes[-1]


def test_vectors_find_labels_whose_text_has_no_known_word() -> None:
    pytest.importorskip("torch")
    from support.exported_models import trained

    model = copy.copy(trained("parabel-pretrained-tfidf"))
    growth = model.add_labels(["qqqq"])
    assert growth.added == ("qqqq",) and growth.notes == ()


def test_nothing_to_add_is_no_mistake(model: Linear) -> None:
    before = model.rankers()[0]
    growth = model.add_labels([])
    assert growth.added == () and model.rankers()[0] is before


def test_reasons_name_the_limit() -> None:
    reasons = rebuild_reasons(GrowthParams(), added=0.5, leaf=9, leaf_size=100)
    assert reasons == ("50.0 % more labels than were trained together (max_added 20.0 %)",)
    at_limits = {"added": 0.2, "leaf": 400, "leaf_size": 100}
    assert rebuild_reasons(GrowthParams(), **at_limits) == ()  # type: ignore[arg-type]
