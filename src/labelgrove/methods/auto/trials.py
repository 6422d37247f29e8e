"""Models that are tried one after the other and judged by the same held-out documents."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from labelgrove.core.aliases import Table, TableView
from labelgrove.core.callbacks import Callback, Event, Reporter
from labelgrove.core.durations import format_duration
from labelgrove.data.corpus import Corpus
from labelgrove.evaluation.merging import MEASURED_AT, precision_rows
from labelgrove.evaluation.metrics.measures import widest
from labelgrove.methods.base import Model
from labelgrove.methods.ensemble.members import Training

M = TypeVar("M", bound=Model)
Rows = npt.NDArray[np.float64]  # P@1, P@3 and P@5 of each document
# Speed is measured from the first progress on, for at least so many seconds; ranking, measuring and
# saving take this share of a training besides.
PACE_SECONDS, AFTERWARDS = 8.0, 0.3
NOISE = 1.0  # standard errors by which a model must be better


class OutOfTimeError(Exception):
    """A training would take ``seconds`` in all, more than the budget has."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"would take {format_duration(seconds)}")
        self.seconds = seconds


@dataclass
class Clock:
    """The time of a search: what is gone, and what is left of the budget, if there is one."""

    budget: float | None
    start: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        return math.inf if self.budget is None else self.budget - self.spent


@dataclass(frozen=True)
class MemberTrial:
    """A fitted model, its P@1, P@3 and P@5 on each held-out document, and its training time."""

    name: str
    model: Model
    seconds: float
    rows: Rows | None = None

    @property
    def figures(self) -> str:
        assert self.rows is not None
        return " / ".join(f"{100 * value:.2f}" for value in self.rows.mean(axis=0))


class Trials:
    """Trains models, judges them, and keeps the best one; ``best`` is there after the first."""

    def __init__(self, validation: Corpus | None, clock: Clock, training: Training) -> None:
        self.validation, self.clock, self.training = validation, clock, training
        self.reporter = Reporter(training.callbacks)
        self.best: MemberTrial | None = None
        self.first_seconds = 0.0  # of the first model
        self.took: dict[int, float] = {}  # seconds of each training, by the model's id
        self.records: list[Table] = []

    def begin(self, model: Model, corpus: Corpus, seconds: float, **given: Any) -> None:
        """Lets a worker train what :meth:`fit` will be given; networks stay here, to be stopped."""
        engine = self.training.engine
        if engine is not None and seconds <= self.clock.left and not model.encoders():
            self.training.begin(model, corpus, **given)

    def fit(
        self, name: str, model: M, corpus: Corpus, watch: Callback | None = None, **given: Any
    ) -> tuple[M, float]:
        """The model, trained on a corpus, and the seconds that it took."""
        start = time.monotonic()
        self.training.fit(name, model, corpus, watch, **given)
        self.took[id(model)] = time.monotonic() - start
        return model, self.took[id(model)]

    def judge(
        self,
        name: str,
        model: Model,
        seconds: float,
        *,
        noise: float = NOISE,
        rows: Rows | None = None,
    ) -> MemberTrial:
        """Measures a model, unless ``rows`` are given; the best is better by ``noise`` errors."""
        best = self.best
        if self.validation is not None and rows is None:
            with self.reporter.stage(f"{name}: measuring"):
                predictions = model.predict(self.validation, k=max(MEASURED_AT))
                rows = precision_rows(predictions, self.validation.labels)
        trial = MemberTrial(name, model, seconds, rows)
        if best is None:
            self.first_seconds = seconds
        if best is None or best.rows is None or rows is None:
            self.best, verdict = trial, "kept"
        else:
            gain, error = _difference(rows, best.rows)
            better = gain > noise * error
            self.best = trial if better else best
            verdict = "kept" if better else f"not better than {best.name} by more than noise"
            verdict += f" ({100 * gain:+.2f}, standard error {100 * error:.2f})"
        # Without times: a training that was interrupted writes the same bytes as any other.
        record: Table = {"name": name, "verdict": verdict}
        if rows is not None:
            means = rows.mean(axis=0)
            record |= {
                f"P@{k}": round(float(m), 6) for k, m in zip(MEASURED_AT, means, strict=True)
            }
            assert self.validation is not None
            record["documents"] = len(self.validation)
            where = f"P@1 / P@3 / P@5 on {len(self.validation):,} held-out documents"
            self.say(f"{name}: {trial.figures} ({where}), {format_duration(seconds)}; {verdict}")
        self.records.append(record)
        return trial

    def skip(self, name: str, why: str) -> None:
        """Records what was not tried."""
        self.records.append({"name": name, "verdict": f"not tried: {why}"})
        self.say(f"{name}: not tried, {why}")

    def affords(self, name: str, seconds: float) -> bool:
        """Whether the budget has these seconds; says so if not."""
        left = self.clock.left
        if seconds > left:
            rest = f"{format_duration(left)} of the budget are left"
            rest = rest if left > 0 else "the budget is spent"
            self.skip(name, f"it would take about {format_duration(seconds)}, and {rest}")
        return seconds <= left

    def say(self, text: str) -> None:
        self.reporter.message(text)


def _difference(rows: Rows, others: Rows) -> tuple[float, float]:
    """The mean difference of two models over the same documents, and its standard error."""
    change = rows.mean(axis=1) - others.mean(axis=1)
    return float(change.mean()), float(change.std() / math.sqrt(max(1, len(change))))


def pace(clock: Clock) -> Callable[[Event], None]:
    """A callback that stops a network which would end after the budget, as soon as it shows.

    XR-Transformer trains level by level: then it is the level that would end too late.
    """
    first: dict[str, Event] = {}

    def watch(event: Event) -> None:
        if event.kind != "progress" or not event.stage.startswith("training") or not event.total:
            return
        start = first.setdefault(event.stage, event)
        passed, done = event.time - start.time, event.done - start.done
        if passed < PACE_SECONDS or done <= 0:
            return
        whole = passed / done * event.total * (1 + AFTERWARDS)
        if whole * (1 - event.done / event.total) > clock.left:
            raise OutOfTimeError(whole)

    return watch


def trial_line(trial: TableView) -> str:
    """A model that auto compared with others on held-out documents."""
    name = f"{'auto kept' if trial['chosen'] else 'auto tried':<20} {trial['name']}"
    if "P@1" not in trial:
        return f"{name}: {trial['verdict']}"
    figures = ", ".join(f"P@{k} {100 * trial[f'P@{k}']:.2f}" for k in (1, 3, 5))
    if "documents" not in trial:  # models of version 0.1.0
        return f"{name}: {figures} on held-out documents"
    margin = max(widest(trial[f"P@{k}"], trial["documents"]) for k in (1, 3, 5))
    return (
        f"{name}: {figures} on {trial['documents']:,} held-out documents "
        f"(± {100 * margin:.1f} on others)"
    )
