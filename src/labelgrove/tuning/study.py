"""The trials of one search: Optuna proposes settings, a model is fitted and measured with them."""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import Corpus
from labelgrove.disk.atomic import write_file
from labelgrove.disk.run_folder import RunFolder, run_status
from labelgrove.errors import ConfigError, DataError, LabelgroveError, StorageError
from labelgrove.methods import create
from labelgrove.model.interface import Model
from labelgrove.tuning.journal import open_journal
from labelgrove.tuning.result import Trial, Tuned
from labelgrove.tuning.space import Choice, Space, laid_over, value_of

HALVING_SHARE = 4  # a trial first learns from one document in this many
CACHE_BYTES = 8 << 30  # size of the stages that a study keeps


@dataclass(eq=False)
class Study:
    """One search, in one folder."""

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

    def search(
        self, budget: float, trials: int | None, reporter: Reporter, say: Callable[[str], None]
    ) -> None:
        """Run trials until the time or their number is used up."""
        if not self._complete():
            self.study.enqueue_trial(self.defaults)
        durations: list[float] = []
        with reporter.stage("tuning", total=round(budget)) as progress:
            while True:
                spent = time.perf_counter() - self.started
                progress.update(min(round(spent), round(budget)), round(budget))
                if trials is not None and len(durations) >= trials:
                    break
                # Do not start a trial that would most likely end far behind the budget.
                usual = statistics.median(durations) if durations else 0.0
                if spent + usual / 2 >= budget and durations:
                    break
                start = time.perf_counter()
                message = self._try(reporter)
                durations.append(time.perf_counter() - start)
                say(message)

    def _try(self, reporter: Reporter) -> str:
        """Run one trial; the message says how it went."""
        trial = self.study.ask()
        settings = {key: self._suggest(trial, key) for key in self.space}
        start = time.perf_counter()
        best = self.study.best_trial.value if self._complete() else None
        log = self.run.path / "log.jsonl"
        before = log.stat().st_size if log.exists() else 0
        try:
            model = create(self.method, laid_over(self.base, settings))
            value = 0.0
            for rung, part in enumerate(self.parts, 1):
                model.fit(part, run=self.run if self.reuse else None, callbacks=reporter.callbacks)
                value = self._measured(model)
                if rung < len(self.parts):
                    trial.report(value, rung)
                    if trial.number and trial.should_prune():
                        trial.set_user_attr("seconds", time.perf_counter() - start)
                        self.study.tell(trial, state=self.states.PRUNED)
                        self._tidy(before, best=False)
                        return f"trial {trial.number}: pruned"
        except Exception as error:
            if not _is_about_settings(error):
                raise
            trial.set_user_attr("note", str(error))
            self.study.tell(trial, state=self.states.FAIL)
            if best is None and trial.number == 0:
                raise  # not even the defaults work: the caller must change something
            return f"trial {trial.number}: failed: {error}"
        trial.set_user_attr("seconds", time.perf_counter() - start)
        self.study.tell(trial, value)
        better = best is None or value > best
        self._tidy(before, best=better)
        mark = " (defaults)" if self._is_default(trial) else " (best so far)" if better else ""
        return f"trial {trial.number}: {self.score.metric} {100 * value:.2f}{mark}"

    def _measured(self, model: Model) -> float:
        from labelgrove.metrics import evaluate

        metric = self.score.metric
        result = evaluate(
            model.predict(self.dev, k=self.score.k),
            self.dev.labels,
            unknown=self.dev.unknown,
            metrics=[metric],
            train_frequencies=model.facts_.frequencies,
            n_train=model.facts_.documents,
        )
        value = float(result[metric])
        if np.isnan(value):
            raise DataError(f"{metric} is undefined on these held-out documents")
        return value

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

    def _tidy(self, log_from: int, *, best: bool) -> None:
        """Delete stages that do not fit; keep those of the best trial and the last used ones."""
        with (self.run.path / "log.jsonl").open("rb") as log:
            log.seek(log_from)
            events = [json.loads(line) for line in log]
        kinds = ("stage_reused", "stage_stored")
        stages = [(e["stage"], e["key"]) for e in events if e.get("kind") in kinds]
        self._best = stages if best else self._best
        for key in (*stages, *self._best):
            self._used.pop(key, None)
            self._used[key] = None
        stored = {(s.name, s.key): s.bytes for s in run_status(self.run.path).stages}
        total = sum(stored.values())
        order = [key for key in stored if key not in self._used] + list(self._used)
        for name, digest in order:
            if total <= CACHE_BYTES:
                break
            total -= stored.get((name, digest), 0)
            shutil.rmtree(self.run.path / "stages" / name.replace("/", ".") / digest, True)
            self._used.pop((name, digest), None)

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
    # torch's error is checked by name, because linear methods must not import torch.
    if type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, (LabelgroveError, MemoryError)) and not isinstance(error, StorageError)


def _name(value: Any) -> Any:
    return repr(value) if isinstance(value, (tuple, list)) else value
