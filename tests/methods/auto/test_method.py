"""Auto: what it tries, what it keeps, and what an interrupt or a budget leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelgrove
from labelgrove import Auto, Corpus, Ensemble, LabelIndex, Linear, Neighbours
from labelgrove.core.callbacks import Event
from labelgrove.data.inputs import hold_out
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.evaluation.merge_weights import LearntMerge, cross_fitted
from labelgrove.evaluation.merging import precision_of
from labelgrove.methods import create
from labelgrove.methods.auto import method as module
from labelgrove.methods.auto import search
from labelgrove.methods.auto.search import GrowingEnsemble
from labelgrove.methods.auto.trials import Clock, MemberTrial, Trials
from labelgrove.methods.ensemble.members import Training
from support.small_models import Messages, planted, same, tiny_training


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return shop_corpus(400, labels=30)


def names(model: Any) -> list[str]:
    return [trial["name"] for trial in model.tried_]


@pytest.fixture(scope="module")
def plain(corpus: Corpus) -> tuple[Auto, Messages]:
    """With nothing set."""
    messages = Messages()
    return Auto().fit(corpus, callbacks=[messages]), messages


def test_without_a_gpu_it_tries_trees_and_a_matcher(
    corpus: Corpus, plain: tuple[Auto, Messages]
) -> None:
    model, said = plain
    tried = names(model)
    assert not any("neighbours" in name for name in tried)  # that takes a budget
    assert tried[:3] == ["linear", "cascadexml", "linear with 3 trees"]
    assert tried[3].endswith(" and matcher")
    assert sum(trial["chosen"] for trial in model.tried_) == 1
    assert "there is no GPU" in said[1] and len(said) == 4
    # The kept settings learn from all documents, and predict like models of that kind.
    linear, matcher = model.submodels()
    alone = type(linear).from_config(linear.to_config()).fit(corpus)
    assert same(linear.predict(corpus, k=5), alone.predict(corpus, k=5))
    alone = type(matcher).from_config(matcher.to_config()).fit(corpus)  # other weights
    for name, counts in alone.evidence_.counts._asdict().items():
        assert np.array_equal(getattr(matcher.evidence_.counts, name), counts)
    assert np.array_equal(matcher.evidence_.stem_texts, alone.evidence_.stem_texts)
    assert model.facts_.documents == 400
    assert "linear on all documents: ranker" in model.timings_


def test_a_matcher_is_joined_where_labels_have_names_that_texts_use(
    corpus: Corpus, plain: tuple[Auto, Messages]
) -> None:
    model = plain[0]
    assert [member.method for member in model.submodels()] == ["linear", "matcher"]
    assert all(member.facts_.documents == 400 for member in model.submodels())
    numbers = LabelIndex([str(number) for number in range(len(corpus.index))])
    coded = Auto().fit(Corpus(corpus.texts, corpus.labels, numbers))
    assert not any("matcher" in name for name in names(coded))


def test_few_documents_get_linear_without_a_comparison() -> None:
    said = Messages()
    model = Auto().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]], callbacks=[said])
    assert names(model) == ["linear"] and "too few documents are held out" in said[0]
    assert "P@1" not in model.tried_[0]


def test_a_budget_leaves_the_first_model(corpus: Corpus) -> None:
    model = Auto(budget="0.001s").fit(corpus)
    verdicts = {trial["name"]: trial["verdict"] for trial in model.tried_}
    assert verdicts["linear"] == "kept"
    assert all(v.startswith("not tried") for name, v in verdicts.items() if name != "linear")
    assert model.chosen_.facts_.documents == 320  # there was no time to learn from the others
    with pytest.raises(ConfigError, match="budget: must be a time such as"):
        Auto(budget="soon").fit(corpus)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("linear with 3 trees: ranker-1", "linear"),
        ("linear on all documents: tfidf", "linear and matcher"),
    ],
)
def test_an_interrupt_keeps_the_best_so_far(corpus: Corpus, where: str, kept: str) -> None:
    said = Messages()

    def interrupt(event: Event) -> None:
        if event.kind == "stage_start" and event.stage == where:
            raise KeyboardInterrupt

    model = Auto().fit(corpus, callbacks=[said, interrupt])
    assert said[-1] == f"auto: interrupted; {kept} is kept"
    assert model.chosen_.facts_.documents == 320
    assert same(model.predict(corpus, k=5), model.chosen_.predict(corpus, k=5))


def test_an_interrupt_of_the_first_model_ends_the_training(corpus: Corpus) -> None:
    def interrupt(event: Event) -> None:
        if event.stage == "linear: tree":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Auto().fit(corpus, callbacks=[interrupt])


def test_settings_of_linear_reach_it_and_others_are_explained(corpus: Corpus) -> None:
    model = create("auto", {"ranker": {"C": 0.5}, "random_state": 3}).fit(corpus)
    first = model.submodels()[0]
    assert first.ranker.C == 0.5 and first.random_state == 3
    with pytest.raises(ConfigError, match="n_trees: auto chooses it; name the method linear"):
        create("auto", {"n_trees": 2})


def test_features_and_given_trees_stay_linear(corpus: Corpus) -> None:
    tree = Linear().fit(corpus).rankers()[0].tree
    model = Auto().fit(corpus, label_tree=tree)
    assert names(model) == ["linear", "cascadexml"]  # several trees and names do not fit it
    rows = labelgrove.Tfidf().fit_transform(corpus.texts)
    model = Auto().fit(rows, corpus.labels, index=corpus.index)
    assert names(model) == ["linear", "cascadexml", "linear with 3 trees"]
    assert "have features" in model.tried_[1]["verdict"]


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trained as on a GPU, with a tiny encoder on the CPU."""
    said, (texts, labels) = Messages(), planted(200)
    encoder = tiny_training()["encoder"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_has_gpu", lambda device: True)
        with RunFolder(tmp_path_factory.mktemp("auto") / "run") as run:
            model = create("auto", {"encoder": encoder}).fit(
                texts, labels, callbacks=[said], run=run
            )
    return model, said


@pytest.mark.slow
def test_with_a_gpu_a_network_is_joined_with_linear(joined: Any) -> None:
    model, said = joined
    assert names(model)[:2] == ["linear", "cascadexml"]
    assert any("reads with" in text and "as set" in text for text in said)
    assert any(name == "linear and cascadexml" for name in names(model))
    texts, labels = planted(40, seed=1)
    assert model.score(texts, labels) > 0.9


@pytest.mark.slow
def test_both_members_of_an_ensemble_learn_from_all_documents(
    joined: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The planted problem is too easy for an ensemble to win, so here it wins by decree."""
    texts, labels = planted(200)
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)
    win_by_decree(monkeypatch)
    model = create("auto", {"encoder": tiny_training()["encoder"]}).fit(texts, labels)
    chosen = model.chosen_
    assert isinstance(chosen, Ensemble) and chosen.weights_ == [1 / 3] * 3
    assert [member.method for member in chosen.members_] == ["linear", "cascadexml", "matcher"]
    linear = Linear().fit(texts, labels)
    assert same(chosen.members_[0].predict(texts, k=3), linear.predict(texts, k=3))
    assert chosen.facts_.documents == 200
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    assert isinstance(loaded, Ensemble) and loaded.tried_ == model.tried_
    assert same(loaded.predict(texts, k=3), model.predict(texts, k=3))


def win_by_decree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model is better than the ones before, and an ensemble takes all its members."""

    def learn(self: Ensemble, _: Corpus) -> Any:
        count = len(self.members_)
        values, bins = np.ones((count, 1)), np.zeros(len(self.index_), np.int8)
        merge = LearntMerge(values, values, 1.0, bins, (1 / count,) * count, (1.0, 1.0, 1.0))
        return merge, {"1 linear": [1.0, 1.0, 1.0]}

    monkeypatch.setattr("labelgrove.methods.auto.trials._difference", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(Ensemble, "_learn", learn)


@pytest.mark.slow
def test_a_budget_joins_more_linear_models(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    win_by_decree(monkeypatch)
    said = Messages()
    model = Auto(budget="1h").fit(corpus, callbacks=[said])
    members = model.submodels()
    methods = ["linear", "matcher", "neighbours", "linear", "linear"]
    assert [member.method for member in members] == methods
    assert members[3].ranker.label_weights == "propensity"
    assert members[4].tfidf.analyzer == "char_wb"
    assert all(member.facts_.documents == 400 for member in members)  # validation, too
    assert names(model)[-3].endswith(" and neighbours")
    assert names(model)[-1].endswith("linear for rare labels and linear on parts of words")
    assert sum("held-out documents" in text for text in said) == 6  # a sentence for each step
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    assert same(loaded.predict(corpus, k=3), model.predict(corpus, k=3))


@pytest.mark.slow
def test_members_are_added_only_while_there_is_time(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    win_by_decree(monkeypatch)
    # Trees, the matcher, neighbours and rare labels have time.
    spent = iter([0.0] * 4 + [1e6] * 99)
    monkeypatch.setattr(Clock, "spent", property(lambda self: next(spent)))
    model = Auto(budget="1h").fit(corpus)
    methods = ["linear", "matcher", "neighbours", "linear"]
    assert [member.method for member in model.submodels()] == methods
    verdicts = {trial["name"]: trial["verdict"] for trial in model.tried_}
    assert "the budget is spent" in verdicts["linear on parts of words"]
    assert all(member.facts_.documents == 320 for member in model.submodels())
    assert model.facts_.documents == 320


@pytest.mark.slow
def test_an_ensemble_is_judged_by_lists_that_are_cross_fitted(
    corpus: Corpus, tmp_path: Path
) -> None:
    learnt_from, validation = hold_out(corpus, 0.25, 0)
    assert validation is not None
    with RunFolder(tmp_path / "run") as run:
        trials = Trials(validation, Clock(None), Training(run))
    first, second = Linear().fit(learnt_from), Neighbours().fit(learnt_from)
    trials.judge("linear", first, 1.0)
    GrowingEnsemble(trials, [MemberTrial("linear", first, 1.0)], None).add(
        MemberTrial("neighbours", second, 1.0)
    )
    lists = [model.predict(validation, k=30) for model in (first, second)]
    merged = cross_fitted(lists, validation.labels, first.facts_.frequencies, k=5)
    record = trials.records[-1]
    assert record["name"] == "linear and neighbours"
    assert record["P@5"] == pytest.approx(precision_of(merged, validation.labels)[2], abs=1e-6)


@pytest.mark.slow
def test_a_budget_joins_more_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = planted(200)
    win_by_decree(monkeypatch)
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)
    tiny = tiny_training()["encoder"]
    model = create("auto", {"encoder": tiny, "budget": "1h"}).fit(texts, labels)
    quick, networks = ["matcher", "neighbours"], ["cascadexml", "lightxml", "xrtransformer"]
    members = model.submodels()
    assert [member.method for member in members] == ["linear", "cascadexml", *quick, *networks]
    assert [members[1].random_state, members[4].random_state] == [0, 1]
    assert {member.encoder.encoder for member in members[4:]} == {tiny["encoder"]}
    # What is quick learns from the validation part in the end; networks held the same one out.
    assert [members[n].facts_.documents for n in (0, 2, 3)] == [200] * 3
    assert len({member.held_out for member in (members[1], *members[4:])}) == 1


@pytest.mark.parametrize(("documents", "kept"), [(20, 1), (200, 0)])
def test_labels_with_few_documents_are_also_found_by_meaning(documents: int, kept: int) -> None:
    texts, labels = planted(documents)
    corpus = Corpus.from_lists(texts, labels)
    network = create("cascadexml", {"encoder": tiny_training()["encoder"], "held_out": 0.1})
    candidates = search.two_towers(network, corpus, 10.0)
    assert len(candidates) == kept
    if candidates:
        model = candidates[0].make()
        assert (model.method, model.held_out, candidates[0].seconds) == ("dual", 0.1, 15.0)
        assert model.encoders() == network.encoders()
        coded = Corpus(corpus.texts, corpus.labels, LabelIndex(list(map(str, range(11)))))
        assert len(coded.index) == len(corpus.index) and not search.two_towers(network, coded, 1.0)


@pytest.mark.slow
def test_a_network_that_is_too_slow_gets_fewer_epochs_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, labels = planted(120)
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)
    monkeypatch.setattr("labelgrove.methods.auto.trials.PACE_SECONDS", 0.0)
    slow = {"seconds": 300.0}

    def watched(clock: Any) -> Any:
        def watch(event: Event) -> None:
            if event.kind == "stage_start" and event.stage == "network":
                raise search.OutOfTimeError(slow["seconds"])

        return watch

    monkeypatch.setattr(search, "pace", watched)
    settings = {"encoder": tiny_training()["encoder"], "budget": "200s"}
    said = Messages()
    model = create("auto", settings).fit(texts, labels, callbacks=[said])
    assert any("the budget has time for 5." in text for text in said), said
    assert "linear and cascadexml" in names(model)
    slow["seconds"] = 1e5
    said = Messages()
    model = create("auto", settings).fit(texts, labels, callbacks=[said])
    assert any("not tried, it would take" in text for text in said)
    assert model.chosen_.method == "linear"


def test_without_an_encoder_linear_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = planted(120)
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)

    def none(texts: Any) -> Any:
        raise ConfigError("no encoder can be reached")

    monkeypatch.setattr("labelgrove.nn.encoders.files.choose_encoder", none)
    model = Auto().fit(texts, labels)
    assert model.tried_[1]["verdict"] == "not tried: no encoder can be reached"


def test_a_training_that_fails_leaves_linear_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = planted(120)
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)

    def too_large(self: Any, *_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("labelgrove.methods.cascadexml.method.CascadeXML.fit", too_large)
    settings = {"encoder": tiny_training()["encoder"]}
    model = create("auto", settings).fit(texts, labels)
    assert model.tried_[1]["verdict"] == "not tried: its training failed: out of memory"
    assert model.chosen_.method == "linear" and model.facts_.documents == 120
    with pytest.raises(ConfigError, match="there is no such folder"):
        create("auto", {"encoder": {"encoder": "./not/there"}}).fit(texts, labels)


def test_a_plan_names_what_will_be_tried(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Auto().resolve_defaults(corpus)
    assert "3 trees" in plain.derived_["method"][0] and plain.submodels() == []
    monkeypatch.setattr(module, "_has_gpu", lambda device: True)
    resolved = create("auto", {"encoder": tiny_training()["encoder"]}).resolve_defaults(corpus)
    assert [step.models[0].method for step in resolved.planned_[:2]] == ["linear", "cascadexml"]
    assert "training.lr" in resolved.derived_ and "encoder.encoder" in resolved.derived_


def test_several_processes_are_refused(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "process_count", lambda: 2)
    with pytest.raises(UnsupportedError, match="name a neural method"):
        Auto().fit(corpus)


def test_more_networks_keep_the_epochs_that_the_budget_left() -> None:
    from labelgrove.methods.auto.search import more_networks

    texts, labels = planted(40)
    corpus = Corpus.from_lists(texts, labels)
    first = create("cascadexml", {"training": {"epochs": 2.5}, "held_out": 0.1})
    models = [candidate.make() for candidate in more_networks(first, corpus, 60.0)]
    assert [model.training.epochs for model in models] == [2.5] * 3
    assert [model.held_out for model in models] == [0.1] * 3
    assert models[0].random_state == 1
