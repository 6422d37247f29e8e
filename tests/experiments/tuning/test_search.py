"""Searches reuse stages, keep to their budget, resume, and never end below the defaults."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("optuna")

from labelgrove import Corpus, Linear, tune
from labelgrove.core.params import read_toml
from labelgrove.data.shop import shop_corpus
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError, DataError, StorageError
from labelgrove.experiments import attempts
from labelgrove.experiments.tuning import study
from labelgrove.experiments.tuning.search import Tuned
from labelgrove.methods import create
from support.run_logs import computed

pytestmark = pytest.mark.slow
RANKER = {"ranker.C": {"low": 0.1, "high": 10, "log": True}, "ranker.threshold": [0.0, 0.1, 0.2]}


@pytest.fixture(scope="module")
def parts() -> tuple[Corpus, Corpus]:
    train = shop_corpus(600, labels=60, seed=0)
    dev = shop_corpus(200, labels=60, seed=0, part="dev")
    return train, dev.reindex(train.index)


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_features_and_trees_are_computed_once(parts: Any, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    result = tune("linear", *parts, trials=6, space=RANKER, folder=folder)
    assert len(result.trials) == 6
    stages = computed(folder / "stages")
    assert stages.count("tfidf") == 1
    assert stages.count("tree") == 1
    assert stages.count("ranker") == 6


def test_settings_of_the_search_alone_train_nothing_again(parts: Any, tmp_path: Path) -> None:
    space = {"search.beam": [5, 10, 20, 40]}
    base = {"ranker": {"negatives": "tfn"}}
    tune("linear", *parts, trials=5, space=space, base=base, folder=tmp_path / "study")
    assert computed(tmp_path / "study" / "stages") == ["tfidf", "tree", "ranker"]


def test_the_best_is_what_a_model_with_its_settings_reaches(parts: Any, tmp_path: Path) -> None:
    train, dev = parts
    result = tune("linear", train, dev, trials=6, metric="P@3", folder=tmp_path / "study")
    assert result.default_value is not None
    assert result.value >= result.default_value
    assert result.value == max(t.value for t in result.trials if t.value is not None)
    config = read_toml(tmp_path / "study" / "best.toml")
    model = create(config.pop("method"), config).fit(train)
    from labelgrove.evaluation.metrics import evaluate

    again = evaluate(model.predict(dev, k=3), dev.labels, unknown=dev.unknown, metrics=["P@3"])
    assert float(again["P@3"]) == pytest.approx(result.value)
    assert result.create().ranker.C == model.ranker.C
    first = result.trials[0]
    defaults = {key: getattr(Linear().ranker, key) for key in ("C", "threshold", "negatives")}
    assert {key: first.settings[f"ranker.{key}"] for key in defaults} == defaults


def test_a_study_resumes(parts: Any, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    tune("linear", *parts, trials=3, space=RANKER, folder=folder)

    with pytest.raises(KeyboardInterrupt):
        tune("linear", *parts, trials=3, space=RANKER, folder=folder, say=interrupt)
    result = tune("linear", *parts, trials=2, space=RANKER, folder=folder)
    assert [t.number for t in result.trials] == list(range(6))
    assert len({t.settings["ranker.C"] for t in result.trials}) == 6  # none is tried again
    assert computed(folder / "stages").count("tfidf") == 1
    lines = (folder / "trials.jsonl").read_text().splitlines()
    assert [json.loads(line)["value"] for line in lines] == [t.value for t in result.trials]


def test_a_trial_that_was_killed_is_forgotten(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "s"
    tune("linear", *parts, trials=1, space=RANKER, folder=folder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(attempts, "measure", interrupt)
        tune("linear", *parts, trials=3, space=RANKER, folder=folder)
    with (folder / "trials.jsonl").open("a") as file:
        file.write('{"number": 1, "set')  # by a process that was killed while it wrote
    result = tune("linear", *parts, trials=1, space=RANKER, folder=folder)
    assert [(t.number, t.state) for t in result.trials] == [(0, "complete"), (1, "complete")]


def test_failed_trials_are_remembered(parts: Any, tmp_path: Path) -> None:
    ngrams = [(1, 1), (1, 2)]
    space = {"ranker.threshold": {"low": 0.05, "high": 1.5}, "tfidf.ngram_range": ngrams}
    settings: dict[str, Any] = {"space": space | {"n_trees": [1, 0]}, "folder": tmp_path / "s"}
    first = tune("linear", *parts, trials=8, **settings)
    assert {t.state for t in first.trials} == {"complete", "failed"}
    again = tune("linear", *parts, trials=1, **settings)
    assert again.trials[:8] == first.trials
    assert {t.settings["tfidf.ngram_range"] for t in again.trials} == set(ngrams)


def test_a_full_disk_names_the_file(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("labelgrove.core.jsonio.append_line", full)
    with pytest.raises(StorageError, match="No space left"):
        tune("linear", *parts, trials=1, space=RANKER, folder=tmp_path / "s")


def test_another_search_does_not_mix_with_a_study(parts: Any, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    tune("linear", *parts, trials=1, space=RANKER, folder=folder)
    with pytest.raises(ConfigError, match="differs in metric"):
        tune("linear", *parts, trials=1, space=RANKER, metric="P@1", folder=folder)
    with pytest.raises(ConfigError, match="differs in data"):
        few = parts[0].take(np.arange(300))
        tune("linear", few, parts[1], trials=1, space=RANKER, folder=folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="not a study"):
        tune("linear", *parts, trials=1, space=RANKER, folder=tmp_path / "mine")


def test_no_trial_starts_that_would_end_far_behind_the_budget(
    parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    real = attempts.measure

    def measure(*arguments: Any) -> Any:
        clock[0] += 3.0
        return real(*arguments)

    monkeypatch.setattr(attempts, "measure", measure)
    for module in (study, attempts):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    messages: list[str] = []
    result = tune("linear", *parts, budget=10.0, space=RANKER, say=messages.append)
    assert [t.seconds for t in result.trials] == [3.0, 3.0, 3.0]  # a fourth would end at 12
    assert result.seconds == 9.0
    assert len(messages) == 3
    assert "(defaults)" in messages[0]


def test_stages_are_deleted_when_they_grow_too_large(
    parts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "CACHE_BYTES", 1)
    tune("linear", *parts, trials=2, space=RANKER, folder=tmp_path / "small")
    assert not list((tmp_path / "small" / "stages" / "stages").glob("*/*"))
    monkeypatch.undo()
    tune("linear", *parts, trials=2, space=RANKER, folder=tmp_path / "large")
    assert len(list((tmp_path / "large" / "stages" / "stages").glob("*/*"))) == 4


def test_without_dev_a_part_of_the_corpus_chooses(parts: Any) -> None:
    train, _ = parts
    result = tune("linear", train, trials=1)
    assert result.value > 0
    with pytest.raises(DataError, match="too few"):
        tune("linear", train.take(np.arange(12)), trials=1)


def test_a_trial_that_fails_does_not_stop_the_others(parts: Any) -> None:
    result = tune("linear", *parts, trials=6, space={"tfidf.min_df": ["auto", 10**6]}, seed=1)
    assert {t.state for t in result.trials} == {"complete", "failed"}
    assert any("min_df" in t.note for t in result.trials)
    with pytest.raises(ConfigError, match="min_df"):
        tune("linear", *parts, trials=2, base={"tfidf": {"min_df": 10**6}}, space=RANKER)


@pytest.mark.parametrize(
    "error", [MemoryError("too large"), type("OutOfMemoryError", (RuntimeError,), {})("too large")]
)
def test_settings_that_do_not_fit_into_memory_are_a_failed_trial(
    parts: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fit = Linear.fit

    def greedy(self: Any, *given: Any, **options: Any) -> Any:
        if self.ranker.threshold != 0.1:
            raise error
        return fit(self, *given, **options)

    monkeypatch.setattr(Linear, "fit", greedy)
    result = tune("linear", *parts, trials=4, space={"ranker.threshold": [0.1, 0.2]}, seed=1)
    assert {(t.settings["ranker.threshold"], t.state) for t in result.trials} == {
        (0.1, "complete"),
        (0.2, "failed"),
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": "soon"}, "10m"),
        ({"budget": -1}, "10m"),
        ({"metric": "Q@1"}, "Q"),
        ({"trials": 0}, "at least 1"),
        ({"space": {"ranker.D": [1]}}, r"space: ranker\.D: unknown key"),
        ({"base": {"ranker": {"C": -1}}}, "ranker.C"),
        ({"method": "liner"}, "linear"),
        ({"method": "ensemble", "base": {"members": [{"method": "linear"}]}}, "search space"),
    ],
)
def test_wrong_arguments(parts: Any, settings: dict[str, Any], message: str) -> None:
    arguments = {"method": "linear"} | settings
    with pytest.raises(ConfigError, match=message):
        tune(arguments.pop("method"), *parts, **arguments)


class Two(Engine):
    """An engine with two workers, which are this process."""

    workers = 2


def outcomes(result: Tuned) -> list[Any]:
    return [(t.number, t.settings, t.value, t.state, t.note) for t in result.trials]


def test_workers_find_what_one_process_finds(parts: Any, tmp_path: Path) -> None:
    space = {"ranker.threshold": {"low": 0.05, "high": 1.5}, "n_trees": [1, 0]}
    settings: dict[str, Any] = {"trials": 8, "space": space, "seed": 0}
    one = tune("linear", *parts, **settings)
    states = [trial.state for trial in one.trials]
    assert set(states) == {"complete", "failed"}, states
    assert outcomes(tune("linear", *parts, **settings, engine="local")) == outcomes(one)
    # Settings are drawn at random as long as few trials have ended, so two at a time are the same.
    two = tune("linear", *parts, **settings, engine=Two(), folder=tmp_path / "two")
    assert [t.settings for t in two.trials] == [t.settings for t in one.trials]
    values = {t.number: t.value for t in one.trials}
    assert all(t.value == values[t.number] for t in two.trials if t.state == "complete")
    assert outcomes(tune("linear", *parts, **settings, engine=Two())) == outcomes(two)
    stages = computed(tmp_path / "two" / "stages")
    assert stages.count("tfidf") == 1
    assert tune("linear", *parts, **settings | {"trials": 1}, folder=tmp_path / "two").folder


def test_settings_that_fail_first_are_an_error_of_the_search(parts: Any) -> None:
    for engine in (None, "local"):
        with pytest.raises(ConfigError, match="n_trees"):
            tune("linear", *parts, trials=2, base={"n_trees": 0}, space=RANKER, engine=engine)
