"""Ensembles of quick linear models, trained here or by workers of an engine."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone

import labelgrove
from labelgrove import (
    Auto,
    Corpus,
    Ensemble,
    LabelIndex,
    Linear,
    RankerParams,
    SearchParams,
    TfidfParams,
)
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import (
    ConfigError,
    DataError,
    LabelgroveWarning,
    ModelFormatError,
    NotFittedError,
)
from labelgrove.evaluation.merging import merge
from labelgrove.methods import create
from labelgrove.text.tfidf import Tfidf
from support.forging import forge_manifest
from support.run_logs import computed
from support.sharding import assert_same_bits
from support.small_models import Messages, planted, same

SYLLABLES = TfidfParams(analyzer="char_wb", ngram_range=(2, 3))
LEARNT_FROM = 114  # of the 120 planted documents, 5 % are held out


def two(**settings: Any) -> Ensemble:
    return Ensemble([Linear(), Linear(tfidf=SYLLABLES, random_state=1)], **settings)


@pytest.mark.parametrize("rule", ["mean", "rank", "softmax", "sigmoid", "round-robin"])
def test_members_are_trained_on_the_same_documents_and_merged(rule: Any) -> None:
    texts, labels = planted()
    model = two(rule=rule).fit(texts, labels)
    assert not hasattr(model.members[0], "index_")  # the originals stay as they were
    alone = [Linear(), Linear(tfidf=SYLLABLES, random_state=1)]
    found = [m.fit(texts, labels).predict(texts, k=11) for m in alone]
    assert same(model.predict(texts, k=4), merge(found, k=4, rule=rule, places=11))
    joined = Ensemble(alone, rule=rule).join()
    assert same(joined.predict(texts, k=4), model.predict(texts, k=4))
    assert joined.facts_.documents == 120


def test_each_member_brings_so_many_candidates() -> None:
    texts, labels = planted()
    members = [Linear().fit(texts, labels), Linear(tfidf=SYLLABLES).fit(texts, labels)]
    few = Ensemble(members, candidates=2).join()
    found = [member.predict(texts, k=2) for member in members]
    assert same(few.predict(texts, k=1), merge(found, k=1))
    found = [member.predict(texts, k=3) for member in members]
    assert same(few.predict(texts, k=3), merge(found, k=3))


def test_weights_are_used() -> None:
    texts, labels = planted()
    members = [Linear().fit(texts, labels), Linear(tfidf=SYLLABLES).fit(texts, labels)]
    assert Ensemble(members).join().weights_ == [1.0, 1.0]
    only_second = Ensemble(members, weights=[0, 2]).join()
    del only_second.members_[0].rankers_  # what counts for nothing is not asked, either
    assert same(only_second.predict(texts, k=3), members[1].predict(texts, k=3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "median"}, "rule: must be one of 'mean', 'rank'"),
        ({"weights": [1.0]}, "weights: must be 2 numbers"),
        ({"weights": ["a", "b"]}, "weights: must be 2 numbers"),
        ({"weights": [0.0, 0.0]}, "nor all 0"),
        ({"weights": [-1.0, 1.0]}, "must not be negative"),
        ({"weights": [1.0, 1.0], "rule": "round-robin"}, "must be left out"),
        ({"weights": [1.0, 1.0], "rule": "learnt"}, "must be left out"),
        ({"candidates": 0}, "candidates: must be a whole number"),
        ({"candidates": True}, "candidates: must be a whole number"),
        ({"members": []}, "needs at least one"),
        ({"members": ["linear"]}, "number 1 is no labelgrove model"),
        ({"members": [Linear, Linear]}, "number 1 is no labelgrove model"),
        ({"members": 7}, "must be a list"),
        ({"held_out": 1.0, "rule": "learnt"}, "held_out"),
        ({"held_out": 0, "rule": "learnt"}, "held_out: must be above 0"),
    ],
)
def test_wrong_arguments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Ensemble(**{"members": [Linear(), Linear()], **settings}).fit(["a", "b"], [["x"], ["y"]])


def test_members_over_different_labels_are_refused() -> None:
    first = Linear().fit(["red", "blue"], [["a"], ["b"]])
    more = Linear().fit(["red", "blue"], [["a"], ["c", "d"]])
    with pytest.raises(DataError, match=r"member 2 \(linear\) has 3 labels, member 1 2"):
        Ensemble([first, more]).join()
    other = Linear().fit(["red", "blue"], [["a"], ["c"]])
    with pytest.raises(DataError, match="other labels than member 1"):
        Ensemble([first, other]).join()
    turned = Linear().fit(["red", "blue"], [["a"], ["b"]], index=LabelIndex(["b", "a"]))
    with pytest.raises(DataError, match="another order; fit all members"):
        Ensemble([first, turned]).join()
    with pytest.raises(NotFittedError, match="member 2"):
        Ensemble([first, Linear()]).join()


def test_margins_have_no_mean_with_probabilities() -> None:
    mixed = [Linear(), Linear(search=SearchParams(last_level="noop"))]
    texts, labels = planted()
    events: list[Any] = []
    with pytest.raises(ConfigError, match="2 linear gives margins and 1 linear scores"):
        Ensemble(mixed).fit(texts, labels, callbacks=[events.append])
    assert not events  # nothing was trained
    trained = [member.fit(texts, labels) for member in mixed]
    with pytest.raises(ConfigError, match="whose mean is meaningless"):
        Ensemble(trained).join()
    found = Ensemble(mixed, rule="rank").fit(texts, labels).predict(texts[:3], k=2)
    assert found.score_kind == "margin"


def test_learnt_weights_come_from_documents_that_no_member_saw() -> None:
    texts, labels = planted()
    heard = Messages()
    model = two(rule="learnt").fit(texts, labels, callbacks=[heard])
    assert [member.facts_.documents for member in model.members_] == [LEARNT_FROM] * 2
    assert model.facts_.documents == 120
    assert model.rule_ == "learnt" and model.predict(texts, k=2).score_kind == "probability"
    assert model.report_["held_out"] == 6
    assert model.report_["ensemble"][0] >= max(
        model.report_[name][0] for name in ("1 linear", "2 linear")
    )
    assert any(text.startswith("held-out P@1/3/5: ensemble") for text in heard)
    assert any(
        text.endswith("members did not learn from the 6 held-out documents") for text in heard
    )
    heard.clear()
    few = two(rule="learnt").fit(texts[:20], labels[:20], callbacks=[heard])
    assert any(text.startswith("too few documents to learn weights") for text in heard)
    assert (few.rule_, few.weights_, few.report_) == ("rank", [1.0, 1.0], {})
    assert [member.facts_.documents for member in few.members_] == [20, 20]


@pytest.mark.slow
def test_weights_of_fitted_members_are_learnt_from_what_join_is_given(tmp_path: Path) -> None:
    texts, labels = planted(200)
    wrong = [labels[0]] * 100
    index = LabelIndex.from_label_lists(labels)
    good = Linear().fit(texts[:100], labels[:100], index=index)
    bad = Linear().fit(texts[:100], wrong, index=index)
    with pytest.raises(DataError, match="join"):
        Ensemble([good, bad], rule="learnt").join()
    held_out = Corpus.from_lists(texts[100:], labels[100:], index=index)
    with pytest.warns(LabelgroveWarning, match="all of these documents were in"):
        Ensemble([good, bad]).join(texts[:100], labels[:100])
    model = Ensemble([good, bad], rule="learnt").join(held_out)
    assert same(
        model.predict(texts, k=3),
        Ensemble([good, bad], rule="learnt").join(texts[100:], labels[100:]).predict(texts, k=3),
    )
    assert model.weights_[0] > model.weights_[1]
    model.save(tmp_path / "m")
    loaded = labelgrove.load(tmp_path / "m")
    assert (loaded.rule_, loaded.weights_) == (model.rule_, model.weights_)
    assert loaded.report_ == model.report_
    assert same(loaded.predict(texts, k=3), model.predict(texts, k=3))


def test_an_ensemble_that_learnt_a_rule_and_weights_predicts_as_before(tmp_path: Path) -> None:
    """What ``rule="learnt"`` saved before there were learnt merges."""
    texts, labels = planted()
    model = two(rule="sigmoid", weights=[2.0, 0.5]).fit(texts, labels)
    model.set_params(rule="learnt", weights=None).save(tmp_path / "m")
    loaded = labelgrove.load(tmp_path / "m")
    assert (loaded.rule, loaded.rule_, loaded.weights_) == ("learnt", "sigmoid", [2.0, 0.5])
    lists = [member.predict(texts, k=11) for member in model.members_]
    expected = merge(lists, k=4, rule="sigmoid", weights=[2.0, 0.5], places=11)
    assert same(loaded.predict(texts, k=4), expected)


def test_members_share_without_a_run_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []
    original = Tfidf.fit_transform

    def counted(self: Tfidf, *arguments: Any, **options: Any) -> Any:
        fitted.append(self)
        return original(self, *arguments, **options)

    monkeypatch.setattr(Tfidf, "fit_transform", counted)
    texts, labels = planted()
    model = Ensemble([Linear(ranker=RankerParams(C=c)) for c in (0.5, 2.0)]).fit(texts, labels)
    assert len(fitted) == 1
    assert model.predict(texts[:2], k=2).counts.tolist() == [2, 2]


@pytest.mark.slow
def test_the_folder_holds_whole_models(tmp_path: Path) -> None:
    texts, labels = planted()
    model = two(rule="softmax").fit(texts, labels)
    model.save(tmp_path / "m")
    second = labelgrove.load(tmp_path / "m" / "members" / "2")
    assert same(second.predict(texts, k=3), model.members_[1].predict(texts, k=3))
    settings = tomllib.loads((tmp_path / "m" / "config.toml").read_text())
    assert settings.pop("method") == "ensemble"
    repeated = create("ensemble", settings).fit(texts, labels)
    assert same(repeated.predict(texts, k=3), model.predict(texts, k=3))
    two(rule="rank").fit(texts, labels).save(tmp_path / "m", overwrite=True)
    assert labelgrove.load(tmp_path / "m").rule_ == "rank"
    weights = next((tmp_path / "m" / "members" / "2").glob("ranker*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    pytest.raises(ModelFormatError, labelgrove.load, tmp_path / "m").match("members/2/ranker")


def test_parameters_of_members_have_names() -> None:
    model = two(rule="rank")
    assert model.get_params()["members__2__tfidf__ngram_range"] == (2, 3)
    assert "members__1__ranker" not in model.get_params(deep=False)
    copied = clone(model).set_params(members__2__ranker__C=3.0, rule="mean")
    assert [m.ranker.C for m in copied.members] == [1.0, 3.0]
    assert [m.ranker.C for m in model.members] == [1.0, 1.0]
    assert (copied.rule, model.rule) == ("mean", "rank")
    for wrong in ("members__3__ranker__C", "members__x__ranker__C", "members__0__n_trees"):
        with pytest.raises(ConfigError, match="has members 1 to 2"):
            model.set_params(**{wrong: 1})


def test_config_tables() -> None:
    tables = {
        "rule": "rank",
        "random_state": 7,
        "ranker": {"C": 2.0},
        "members": [
            {"method": "parabel", "ranker": {"eps": 0.2}, "random_state": 1},
            {"method": "linear", "ranker": {"C": 3.0}},
        ],
    }
    model = create("ensemble", tables)
    first, second = model.members
    assert (first.n_trees, first.ranker.C, first.ranker.eps, first.random_state) == (3, 2.0, 0.2, 1)
    assert (second.ranker.C, second.random_state, model.random_state) == (3.0, 7, 7)
    with pytest.raises(ConfigError, match=r"ranke: unknown key; did you mean ranker\?"):
        create("ensemble", {"members": [{"method": "linear"}], "ranke": {}})
    with pytest.raises(ConfigError, match=r"ranker.Z: unknown key"):
        create("ensemble", {"members": [{"method": "linear", "ranker": {"Z": 1}}]})
    with pytest.raises(ConfigError, match="number 2 has no method"):
        create("ensemble", {"members": [{"method": "linear"}, {"ranker": {"C": 3.0}}]})
    with pytest.raises(ConfigError, match="unknown method"):
        create("ensemble", {"members": [{"method": "liner"}]})
    with pytest.raises(ConfigError, match=r"\[\[members\]\]"):
        create("ensemble", {"members": ["linear"]})


def test_an_ensemble_may_be_a_member(tmp_path: Path) -> None:
    texts, labels = planted()
    model = Ensemble([Linear(), two(rule="rank")], rule="sigmoid").fit(texts, labels)
    model.save(tmp_path / "m")
    loaded = labelgrove.load(tmp_path / "m")
    assert same(loaded.predict(texts, k=3), model.predict(texts, k=3))
    settings = tomllib.loads((tmp_path / "m" / "config.toml").read_text())
    assert len(settings["members"][1]["members"]) == 2


def test_a_member_outside_the_folder_is_refused(tmp_path: Path) -> None:
    Ensemble(members=[Linear(), Linear()]).fit(*planted(20)).save(tmp_path / "model")
    member = tmp_path / "model" / "members" / "2"
    member.rename(tmp_path / "elsewhere")
    member.symlink_to(tmp_path / "elsewhere")
    files = json.loads((tmp_path / "model" / "manifest.json").read_text())["files"]
    listed = {name: entry for name, entry in files.items() if not name.startswith("members/2/")}
    forge_manifest(tmp_path / "model", {"files": listed})
    with pytest.raises(ModelFormatError, match="link to outside the folder"):
        labelgrove.load(tmp_path / "model")


class Counting(Engine):
    """An engine that notes what it was asked for."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.ended = 0

    def call(self, function: Any, *arguments: Any, gpu: bool = False) -> Any:
        self.called.append(arguments[0].method)
        return super().call(function, *arguments, gpu=gpu)

    def cancel(self, refs: Any) -> None:
        self.ended += len(refs)


def three() -> Ensemble:
    syllables = TfidfParams(analyzer="char_wb", ngram_range=(2, 3))
    return Ensemble([Linear(), Linear(tfidf=syllables), Linear(random_state=1)], rule="learnt")


def test_members_are_those_of_one_process(tmp_path: Path) -> None:
    texts, labels = planted()
    engine, messages = Counting(), Messages()
    with RunFolder(tmp_path / "run") as run:
        model = three().fit(texts, labels, run=run, engine=engine, callbacks=[messages])
    assert_same_bits(three().fit(texts, labels), model)
    assert engine.called == ["linear"] * 3 and engine.ended == 0
    shared = {"tfidf": 2, "tree": 3, "ranker": 3}  # three members share tf-idf
    assert Counter(computed(tmp_path / "run")) == shared
    assert not model.timings_["1 linear: ranker"].reused  # the worker's time, not that of reading
    assert any(message.startswith("held-out P@1/3/5") for message in messages)


def test_an_error_of_a_member_is_that_of_one_process() -> None:
    texts, labels = planted()
    members = [Linear(), Linear(n_trees=0), Linear(random_state=1)]
    with pytest.raises(ConfigError) as one:
        Ensemble(members).fit(texts, labels)
    engine = Counting()
    with pytest.raises(ConfigError) as many:
        Ensemble(members).fit(texts, labels, engine=engine)
    assert str(one.value) == str(many.value)
    assert engine.ended == 1  # the third member is not needed any more


@pytest.mark.slow
def test_auto_tries_and_keeps_the_same() -> None:
    corpus = shop_corpus(400, labels=30)
    settings: dict[str, Any] = {"budget": "1h"}
    engine = Counting()
    one, many = Auto(**settings).fit(corpus), Auto(**settings).fit(corpus, engine=engine)
    assert one.tried_ == many.tried_
    assert_same_bits(one.chosen_, many.chosen_)
    # Trees, the matcher, and with a budget a memory and three more linear models.
    first = ["linear", "matcher", "neighbours", "linear", "linear", "linear"]
    assert engine.called[:6] == first
