"""How models are judged, and how a training that would take too long is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove import Corpus, Linear
from labelgrove.core.callbacks import Event
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods.auto import trials as module
from labelgrove.methods.auto.trials import Clock, OutOfTimeError, Trials, pace
from labelgrove.methods.ensemble.members import Training
from support.small_models import Messages


class Told:
    """A fitted model that gives each document the label it is told."""

    def __init__(self, corpus: Corpus, right: Any) -> None:
        truth = corpus.labels.toarray().argmax(axis=1)
        columns = np.where(right, truth, (truth + 1) % len(corpus.index)).astype(np.int32)
        shape = (len(corpus), 1)
        self.found = Predictions(
            columns.reshape(shape),
            np.ones(shape, np.float32),
            np.ones(len(corpus), np.int32),
            corpus.index,
            "product",
        )

    def predict(self, *_: Any, **__: Any) -> Predictions:
        return self.found


@pytest.fixture
def corpus() -> Corpus:
    return Corpus.from_lists(["red", "blue"] * 200, [["x"], ["y"]] * 200)


@pytest.fixture
def said() -> Messages:
    return Messages()


@pytest.fixture
def trials(corpus: Corpus, said: Messages, tmp_path: Path) -> Any:
    with RunFolder(tmp_path / "run") as run:
        yield Trials(corpus, Clock(None), Training(run, [said]))


def right(share: float) -> Any:
    return np.arange(400) < round(share * 400)


def test_a_model_must_be_better_by_more_than_noise(
    trials: Any, corpus: Corpus, said: list[str]
) -> None:
    first = trials.judge("first", Told(corpus, right(0.5)), 1.0)
    assert trials.best is first
    little = Told(corpus, right(0.505))  # two documents
    trials.judge("a little better", little, 1.0, noise=2.0)
    assert trials.best is first
    assert said[-1].endswith(
        "not better than first by more than noise (+0.26, standard error 0.18)"
    )
    assert trials.judge("a little better", little, 1.0) is trials.best
    better = trials.judge("better", Told(corpus, right(0.55)), 1.0)
    assert trials.best is better and better.figures == "55.00 / 18.33 / 11.00"
    trials.judge("worse", Told(corpus, right(0.4)), 1.0)
    assert trials.best is better
    assert [record["P@1"] for record in trials.records] == [0.5, 0.505, 0.505, 0.55, 0.4]


def test_what_the_budget_does_not_have_is_not_tried(trials: Any, said: list[str]) -> None:
    assert trials.affords("anything", 1e9)
    trials.clock = Clock(10.0)
    assert trials.affords("short", 5.0) and not said
    assert not trials.affords("long", 3600.0)
    assert said == ["long: not tried, it would take about 1 h 0 min, and 10.00 s of the budget "
                    "are left"]  # fmt: skip
    trials.clock = Clock(10.0, start=trials.clock.start - 20)
    assert not trials.affords("late", 1.0)
    assert said[-1].endswith("the budget is spent")
    assert [record["verdict"][:9] for record in trials.records] == ["not tried"] * 2


def test_models_share_stages_and_their_times_are_kept(trials: Any, corpus: Corpus) -> None:
    trials.fit("one", Linear(), corpus)
    trials.fit("two", Linear(), corpus)
    assert (
        not trials.training.timings["one: ranker"].reused
        and trials.training.timings["two: ranker"].reused
    )


def progress(done: float, seconds: float, stage: str = "training") -> Event:
    return Event("progress", stage, done, 100, time=seconds)


def test_what_was_trained_beside_is_taken_or_fails_as_it_would_have(
    trials: Any, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, real = Linear(), Linear(), Linear.fit
    fitted = []

    def fit(self: Linear, *arguments: Any, **how: Any) -> Linear:
        fitted.append(self)
        if self is bad:
            raise DataError("no labels")
        return real(self, *arguments, **how)

    monkeypatch.setattr(Linear, "fit", fit)
    for model in (good, bad):
        trials.training.begin_beside(model, corpus)
    trials.fit("good", good, corpus)
    assert good.predict(["red"], k=1).names() == [["x"]]
    assert "good: ranker" in trials.training.timings
    with pytest.raises(DataError, match="no labels"):
        trials.fit("bad", bad, corpus)
    assert fitted == [good, bad]  # once each


def test_a_training_that_would_end_too_late_is_stopped_as_soon_as_it_shows() -> None:
    watch = pace(Clock(60.0))
    watch(progress(1, 0))  # compiling came before it
    watch(progress(2, 1))  # too early to tell
    watch(progress(9, 500, "ranker"))
    with pytest.raises(OutOfTimeError) as stopped:
        watch(progress(11, 10))  # a second per step
    assert stopped.value.seconds == pytest.approx(100 * (1 + module.AFTERWARDS))
    assert "2 min 10 s" in str(stopped.value)


def test_a_training_in_time_goes_on() -> None:
    for budget in (None, 200.0):
        watch = pace(Clock(budget))
        for step in range(1, 100):
            watch(progress(step, step))


@pytest.mark.parametrize("method", ["lightxml", "xrtransformer"])
def test_networks_are_watched(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from support import small_models

    monkeypatch.setattr(module, "PACE_SECONDS", 0.0)
    spent = Clock(1.0, start=-1e9)
    with pytest.raises(OutOfTimeError):
        small_models.new(method).fit(*small_models.planted(60), callbacks=[pace(spent)])
