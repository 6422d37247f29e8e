"""The trials of one search: Optuna proposes settings, a model is fitted and measured with them."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.params import Settings, to_toml
from labelgrove.core.storing import storing
from labelgrove.data.corpus import Corpus
from labelgrove.disk.atomic import replace_file
from labelgrove.disk.run_folder import RunFolder, run_status
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref
from labelgrove.errors import ConfigError, LabelgroveError, StorageError
from labelgrove.evaluation.metrics.evaluation import Scorer
from labelgrove.experiments.attempts import Attempt, Outcome, read_lines
from labelgrove.experiments.tuning.space import Space, default_settings, laid_over, load_optuna
from labelgrove.methods import create
from labelgrove.methods.base import Model

if TYPE_CHECKING:
    import optuna

CACHE_BYTES = 8 << 30  # size of the stages that a study keeps
STATES = {"complete": "COMPLETE", "failed": "FAIL"}  # ours and Optuna's


@dataclass(frozen=True)
class Trial:
    """One trial. ``value`` is None if it failed."""

    number: int
    settings: Settings
    value: float | None
    seconds: float
    state: str  # complete or failed
    note: str = ""
    defaults: bool = False  # whether the settings are the method's defaults

    @classmethod
    def from_record(cls, record: JsonObject) -> Trial:
        """A trial from its JSON, where tuples are lists."""
        settings = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in record["settings"].items()
        }
        return cls(**{**record, "settings": settings})


@dataclass(frozen=True)
class Tuned:
    """The result of a search; ``settings`` and ``config`` (tables) are those of the best trial."""

    method: str
    metric: str
    config: Settings
    settings: Settings
    value: float
    default_value: float | None
    trials: list[Trial]
    seconds: float
    folder: Path | None = None

    def create(self) -> Model:
        """An unfitted model with the best settings."""
        model: Model = create(self.method, self.config)
        return model

    def to_toml(self) -> str:
        """The best settings as a config file."""
        return to_toml({"method": self.method, **self.config})

    def to_json(self) -> JsonObject:
        """Plain values for programs."""
        states = [trial.state for trial in self.trials]
        values = {name: value for name, value in vars(self).items() if name != "config"}
        values |= {"trials": len(states), "seconds": round(self.seconds, 3)}
        values |= {state: states.count(state) for state in STATES}
        values["folder"] = None if self.folder is None else str(self.folder)
        plain: JsonObject = jsonio.plain(values)
        return plain

    def table(self, best: int = 5) -> str:
        """The best trials, as text."""
        finished = [t for t in self.trials if t.value is not None]
        finished.sort(key=lambda trial: -(trial.value or 0.0))
        names = list(self.settings)[:6]
        head = ["trial", self.metric, "seconds", *names]
        rows = [head]
        for trial in finished[:best]:
            number = f"{trial.number}{' (defaults)' if trial.defaults else ''}"
            values = [trial.settings.get(name) for name in names]
            cells = [f"{value:.3g}" if isinstance(value, float) else str(value) for value in values]
            rows.append([number, f"{100 * (trial.value or 0):.2f}", f"{trial.seconds:.1f}", *cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


@dataclass(frozen=True)
class Search:
    """What is searched: settings in ``space``, over the settings ``base`` of all trials."""

    method: str
    base: Mapping[str, object]
    space: Space
    score: Scorer


class Study:
    """One search in one folder, whose file ``trials.jsonl`` has the finished trials.

    With an ``engine``, as many trials run at the same time as it has workers. Results are taken in
    the order in which trials began, so they do not depend on which worker is faster.
    """

    def __init__(
        self,
        search: Search,
        train: Corpus,
        dev: Corpus,
        folder: Path,
        run: RunFolder,
        *,
        seed: int,
        engine: Engine | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.search, self.folder, self.run = search, folder, run
        self.seed, self.engine, self.callbacks = seed, engine, callbacks
        self.optuna = optuna = load_optuna()
        self.states = optuna.trial.TrialState
        self.file = folder / "trials.jsonl"
        finished = sorted(read_lines(self.file), key=lambda record: record["number"])
        # With the same seed, the same first settings would come again after each interruption.
        sampler = optuna.samplers.TPESampler(
            seed=seed + len(finished), multivariate=True, n_startup_trials=8
        )
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        self.trials: list[Trial] = []
        for number, record in enumerate(finished):
            self._take_over(Trial.from_record(record | {"number": number}))
        model = create(search.method, search.base)
        self.defaults = default_settings(model, search.space, train)
        self.started = time.perf_counter()
        self._used: dict[tuple[str, str], None] = {}  # stages, in the order of their last use
        self._best: list[tuple[str, str]] = []
        self._workers = engine or Engine()
        self._corpora = [self._workers.put(corpus) for corpus in (train, dev)]

    def _take_over(self, trial: Trial) -> None:
        """Lets Optuna learn from a trial that an earlier process finished."""
        self.trials.append(trial)
        earlier = self.optuna.trial.create_trial(
            state=getattr(self.states, STATES[trial.state]),
            value=trial.value,
            params=trial.settings,
            distributions=self.search.space,
        )
        self.study.add_trial(earlier)

    def run_trials(
        self, budget: float, trials: int | None, reporter: Reporter, say: Callable[[str], None]
    ) -> None:
        """Run trials until the time or their number is used up."""
        if self._best_value() is None:
            self.study.enqueue_trial(self.defaults)
        durations: list[float] = []
        pending: deque[tuple[optuna.Trial, Ref]] = deque()
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
                    seconds, message = self._take(*pending.popleft())
                    durations.append(seconds)
                    say(message)
            finally:
                self._workers.cancel([ref for _, ref in pending])

    def _ask(self) -> tuple[optuna.Trial, Ref]:
        """Starts one more trial."""
        search, trial = self.search, self.study.ask(self.search.space)
        whole = laid_over(search.base, trial.params)
        model = create(search.method, search.base)
        if self.engine and model.get_params(deep=False).get("n_jobs", 0) is None:
            whole["n_jobs"] = self.engine.threads
        attempt = Attempt(search.method, whole, search.score)
        if self.engine is None:
            ref = self._workers.call(attempt, *self._corpora, self.run, self.callbacks)
            return trial, ref
        folder, gpu = str(self.run.path.resolve()), bool(model.encoders())
        return trial, self.engine.call(attempt.as_guest, *self._corpora, folder, gpu=gpu)

    def _take(self, trial: optuna.Trial, ref: Ref) -> tuple[float, str]:
        """Waits for a trial: its seconds, and a message how it went."""
        number, best = trial.number, self._best_value()
        start = time.perf_counter()
        try:
            outcome: Outcome = self._workers.get(ref)
        except Exception as error:
            if not _is_about_settings(error) or (best is None and number == 0):
                raise  # not even the defaults work: the caller must change something
            self._finish(trial, "failed", 0.0, note=str(error))
            return time.perf_counter() - start, f"trial {number}: failed: {error}"
        seconds, value = outcome.seconds, outcome.value
        done = self._finish(trial, "complete", seconds, value)
        better = best is None or value > best
        self._tidy(outcome, best=better)
        mark = " (defaults)" if done.defaults else " (best so far)" if better else ""
        return seconds, f"trial {number}: {self.search.score.metric} {100 * value:.2f}{mark}"

    def _finish(
        self,
        trial: optuna.Trial,
        state: str,
        seconds: float,
        value: float | None = None,
        note: str = "",
    ) -> Trial:
        """Tells Optuna how a trial ended, and adds it to the file."""
        self.study.tell(trial, value, state=getattr(self.states, STATES[state]))
        defaults = len(self.defaults) == len(self.search.space) and trial.params == self.defaults
        seconds = round(seconds, 3)
        done = Trial(trial.number, trial.params, value, seconds, state, note, defaults)
        self.trials.append(done)
        with storing(self.file):
            jsonio.append_line(self.file, vars(done))
        return done

    def _tidy(self, outcome: Outcome, *, best: bool) -> None:
        """Delete stages that do not fit; keep those of the best trial and the last used ones."""
        stages = [(name, key) for name, key, _ in outcome.stages]
        self._best = stages if best else self._best
        for stage in (*stages, *self._best):
            self._used.pop(stage, None)
            self._used[stage] = None
        sizes = {(s.name, s.key): s.bytes for s in run_status(self.run.path).stages}
        total = sum(sizes.values())
        order = [stage for stage in sizes if stage not in self._used] + list(self._used)
        for name, key in order:
            if total <= CACHE_BYTES:
                break
            total -= sizes.get((name, key), 0)
            self.run.discard(name, key)
            self._used.pop((name, key), None)

    def _best_value(self) -> float | None:
        return max((t.value for t in self.trials if t.value is not None), default=None)

    def result(self) -> Tuned:
        """The result, also written to the study's folder."""
        trials = sorted(self.trials, key=lambda trial: trial.number)
        complete = [trial for trial in trials if trial.value is not None]
        if not complete:
            raise ConfigError("no trial finished; give a larger budget or another space")
        best = max(complete, key=lambda trial: trial.value or 0.0)
        search = self.search
        result = Tuned(
            method=search.method,
            metric=search.score.metric,
            config=laid_over(search.base, best.settings),
            settings=best.settings,
            value=best.value or 0.0,
            default_value=next((t.value for t in complete if t.defaults), None),
            trials=trials,
            seconds=time.perf_counter() - self.started,
            folder=self.folder,
        )
        lines = b"".join(jsonio.dump(vars(trial), indent=None) + b"\n" for trial in trials)
        replace_file(self.file, lines)
        replace_file(self.folder / "best.toml", result.to_toml().encode())
        return result


def _is_about_settings(error: Exception) -> bool:
    """Whether other settings may work: these were refused or did not fit into memory."""
    # torch's error is checked by name, because linear methods must not import torch. An error of a
    # worker is of its own class and of one that tells where it was raised.
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return isinstance(error, (LabelgroveError, MemoryError)) and not isinstance(error, StorageError)
