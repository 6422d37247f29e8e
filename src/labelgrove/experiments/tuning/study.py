"""The trials of one search: Optuna proposes settings, a model is fitted and measured with them."""

from __future__ import annotations

import json
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import Corpus
from labelgrove.disk.atomic import write_file
from labelgrove.disk.run_folder import RunFolder, run_status
from labelgrove.engines import Engine, LocalEngine
from labelgrove.engines.engine import Ref
from labelgrove.errors import ConfigError, LabelgroveError, StorageError
from labelgrove.experiments.tuning.attempts import Attempt, Found, attempt_elsewhere
from labelgrove.experiments.tuning.journal import open_journal
from labelgrove.experiments.tuning.result import Trial, Tuned
from labelgrove.experiments.tuning.space import Choice, Space, laid_over, value_of
from labelgrove.methods import create

HALVING_SHARE = 4  # a trial first learns from one document in this many
CACHE_BYTES = 8 << 30  # size of the stages that a study keeps
HELD_BYTES = 2 << 30  # of these, what an engine holds


@dataclass(frozen=True)
class Pending:
    """A trial whose model is being fitted to one of the parts of the corpus."""

    trial: Any
    settings: dict[str, Any]
    rung: int
    seconds: float  # of the rungs before
    ref: Ref


@dataclass(eq=False)
class Study:
    """One search, in one folder.

    With an ``engine``, as many trials run at the same time as it has workers. Results are taken in
    the order in which trials began, so they do not depend on which worker is faster.
    """

    optuna: Any
    place: Path
    run: RunFolder
    method: str
    base: Mapping[str, Any]
    space: Space
    score: Any
    corpus: Corpus
    dev: Corpus
    halving: bool
    reuse: bool
    seed: int
    engine: Engine | None = None
    callbacks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        optuna, corpus = self.optuna, self.corpus
        self.parts = [corpus]
        if self.halving:
            rng = np.random.default_rng([self.seed, 1])
            few = np.sort(rng.permutation(len(corpus))[: len(corpus) // HALVING_SHARE])
            self.parts = [corpus.take(few), corpus]
        self.study = optuna.create_study(
            study_name="labelgrove",
            storage=open_journal(optuna, self.place / "journal.log"),
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
        )
        before = self.study.get_trials(deepcopy=False)
        # With the same seed, the same first settings would come again after each interruption.
        self.study.sampler = optuna.samplers.TPESampler(
            seed=self.seed + len(before), multivariate=True, n_startup_trials=8
        )
        self.states = states = optuna.trial.TrialState
        for trial in before:
            if trial.state == states.RUNNING:  # we hold the lock, so its process is gone
                self.study.tell(trial.number, state=states.FAIL)
        self.defaults = self._defaults()
        self.started = time.perf_counter()
        self._used: dict[tuple[str, str], None] = {}  # stages, in the order of their last use
        self._best: list[tuple[str, str]] = []
        self._workers = self.engine or LocalEngine()
        self._corpora = [self._workers.put(each) for each in (self.dev, *self.parts)]
        self._held: dict[str, Ref] = {}  # stages that several trials used, by their keys
        self._held_bytes = 0

    def search(
        self, budget: float, trials: int | None, reporter: Reporter, say: Callable[[str], None]
    ) -> None:
        """Run trials until the time or their number is used up."""
        if not self._complete():
            self.study.enqueue_trial(self.defaults)
        durations: list[float] = []
        pending: deque[Pending] = deque()
        begun = 0
        with reporter.stage("tuning", total=round(budget)) as progress:
            try:
                while True:
                    spent = time.perf_counter() - self.started
                    progress.update(min(round(spent), round(budget)), round(budget))
                    # Do not start a trial that would most likely end far behind the budget.
                    usual = statistics.median(durations) if durations else 0.0
                    late = spent + usual / 2 >= budget and bool(durations)
                    if len(pending) < self._workers.workers and not late and begun != trials:
                        pending.append(self._ask())
                        begun += 1
                        continue
                    if not pending:
                        break
                    first = pending.popleft()
                    outcome = self._take(first)
                    if isinstance(outcome, Pending):
                        pending.append(outcome)
                        continue
                    message, seconds = outcome
                    durations.append(seconds)
                    say(message)
            finally:
                self._workers.cancel([each.ref for each in pending])

    def _ask(self) -> Pending:
        """Starts one more trial."""
        trial = self.study.ask()
        settings = {key: self._suggest(trial, key) for key in self.space}
        return Pending(trial, settings, 1, 0.0, self._start(settings, 1))

    def _start(self, settings: Mapping[str, Any], rung: int) -> Ref:
        whole = laid_over(self.base, settings)
        attempt = Attempt(self.method, whole, self.score.metric, self.score.k)
        dev, part = self._corpora[0], self._corpora[rung]
        if self.engine is None:
            run = self.run if self.reuse else None
            return self._workers.call(attempt.here, part, dev, run, self.callbacks)
        model = create(self.method, self.base)
        if model.get_params(deep=False).get("n_jobs", 0) is None:
            attempt = replace(attempt, settings={**whole, "n_jobs": self.engine.threads})
        folder = str(self.run.path.resolve()) if self.reuse else None
        arguments = (attempt, part, dev, folder, *self._held.values())
        return self.engine.call(attempt_elsewhere, *arguments, gpu=bool(model.encoders()))

    def _take(self, pending: Pending) -> tuple[str, float] | Pending:
        """Waits for a trial: a message that says how it went and its seconds, or its next rung."""
        trial, rung = pending.trial, pending.rung
        best = self.study.best_trial.value if self._complete() else None
        start = time.perf_counter()
        try:
            found: Found = self._workers.get(pending.ref)
        except Exception as error:
            if not _is_about_settings(error):
                raise
            trial.set_user_attr("note", str(error))
            self.study.tell(trial, state=self.states.FAIL)
            if best is None and trial.number == 0:
                raise  # not even the defaults work: the caller must change something
            seconds = pending.seconds + time.perf_counter() - start
            return f"trial {trial.number}: failed: {error}", seconds
        seconds, value = pending.seconds + found.seconds, found.value
        if rung < len(self.parts):
            trial.report(value, rung)
            if not (trial.number and trial.should_prune()):
                self._tidy(found, best=False)
                ref = self._start(pending.settings, rung + 1)
                return replace(pending, rung=rung + 1, seconds=seconds, ref=ref)
            trial.set_user_attr("seconds", seconds)
            self.study.tell(trial, state=self.states.PRUNED)
            self._tidy(found, best=False)
            return f"trial {trial.number}: pruned", seconds
        trial.set_user_attr("seconds", seconds)
        self.study.tell(trial, value)
        better = best is None or value > best
        self._tidy(found, best=better)
        mark = " (defaults)" if self._is_default(trial) else " (best so far)" if better else ""
        return f"trial {trial.number}: {self.score.metric} {100 * value:.2f}{mark}", seconds

    def _suggest(self, trial: Any, key: str) -> Any:
        span = self.space[key]
        if isinstance(span, Choice):
            # Optuna stores choices as plain values, so lists are stored as text.
            names = {_name(value): value for value in span.values}
            return names[trial.suggest_categorical(key, list(names))]
        if span.whole:
            step = int(span.step or 1)
            return trial.suggest_int(key, int(span.low), int(span.high), log=span.log, step=step)
        return trial.suggest_float(key, span.low, span.high, log=span.log, step=span.step)

    def _defaults(self) -> dict[str, Any]:
        """The base settings, as far as the space contains them."""
        model = create(self.method, self.base)
        settled = model.settled(self.corpus)  # numbers for settings that are "auto"
        defaults = {}
        for key, span in self.space.items():
            value = value_of(model, key)
            if isinstance(span, Choice):
                if value in span.values:
                    defaults[key] = _name(value)
                continue
            value = value_of(settled, key) if value == "auto" else value
            if isinstance(value, (int, float)) and span.low <= value <= span.high:
                defaults[key] = value
        return defaults

    def _is_default(self, trial: Any) -> bool:
        return len(self.defaults) == len(self.space) and trial.params == self.defaults

    def _tidy(self, found: Found, *, best: bool) -> None:
        """Delete stages that do not fit; keep those of the best trial and the last used ones."""
        stages = [(name, key) for name, key, _ in found.stages]
        self._best = stages if best else self._best
        for stage in (*stages, *self._best):
            self._used.pop(stage, None)
            self._used[stage] = None
        stored = {(s.name, s.key): s.bytes for s in run_status(self.run.path).stages}
        if self.engine is not None:
            for name, key, there in found.stages:
                if there:
                    self._hold(name, key, stored.get((name, key)))
        total = sum(stored.values())
        order = [stage for stage in stored if stage not in self._used] + list(self._used)
        for name, key in order:
            if total <= CACHE_BYTES:
                break
            total -= stored.get((name, key), 0)
            self.run.discard(name, key)
            self._used.pop((name, key), None)

    def _hold(self, name: str, key: str, size: int | None) -> None:
        """Gives the engine a stage that a second trial needed, so that no other reads the disk."""
        if size is None or key in self._held or self._held_bytes + size > HELD_BYTES:
            return
        self._held[key] = self._workers.put({key: self.run.read(name, key)})
        self._held_bytes += size

    def _complete(self) -> list[Any]:
        trials = self.study.get_trials(deepcopy=False)
        return [t for t in trials if t.state == self.states.COMPLETE]

    def result(self, folder: Path | None) -> Tuned:
        """The result, also written to the study's folder."""
        complete = self._complete()
        if not complete:
            raise ConfigError("no trial finished; give a larger budget or another space")
        trials = [self._record(t) for t in self.study.get_trials(deepcopy=False)]
        best = self.study.best_trial
        chosen = next(t for t in trials if t.number == best.number)
        defaults = next((t.value for t in trials if t.defaults and t.value is not None), None)
        result = Tuned(
            method=self.method,
            metric=self.score.metric,
            config=laid_over(self.base, chosen.settings),
            settings=chosen.settings,
            value=float(best.value),
            default_value=defaults,
            trials=trials,
            importances=self._importances(complete),
            seconds=time.perf_counter() - self.started,
            folder=folder,
        )
        lines = "".join(
            json.dumps(jsonio.plain(vars(trial)), ensure_ascii=False) + "\n" for trial in trials
        )
        write_file(self.place / "trials.jsonl", lines.encode(), exclusive=False)
        write_file(self.place / "best.toml", result.to_toml().encode(), exclusive=False)
        return result

    def _record(self, trial: Any) -> Trial:
        names = {"COMPLETE": "complete", "PRUNED": "pruned"}
        state = names.get(trial.state.name, "failed")
        settings = dict(trial.params)
        for key, value in settings.items():
            span = self.space[key]
            if isinstance(span, Choice):
                settings[key] = next(v for v in span.values if _name(v) == value)
        value = float(trial.value) if state == "complete" else None
        seconds = round(float(trial.user_attrs.get("seconds", 0.0)), 3)
        note = str(trial.user_attrs.get("note", ""))
        return Trial(trial.number, settings, value, seconds, state, note, self._is_default(trial))

    def _importances(self, complete: list[Any]) -> dict[str, float]:
        """How much each setting explains of the differences; empty for fewer than 8 trials."""
        if len(complete) < 8 or len({t.value for t in complete}) < 2:
            return {}
        evaluator = self.optuna.importance.FanovaImportanceEvaluator(seed=self.seed)
        try:
            shares = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        except (ValueError, RuntimeError):  # no setting was common to all trials, or none varied
            return {}
        return {name: round(float(share), 4) for name, share in shares.items()}


def _is_about_settings(error: Exception) -> bool:
    """Whether other settings may work: these were refused or did not fit into memory."""
    # torch's error is checked by name, because linear methods must not import torch. An error of a
    # worker is of its own class and of one that tells where it was raised.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, (LabelgroveError, MemoryError)) and not isinstance(error, StorageError)


def _name(value: Any) -> Any:
    return repr(value) if isinstance(value, (tuple, list)) else value
