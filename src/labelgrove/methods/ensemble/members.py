"""The members of an ensemble: their settings, their labels, and how they are trained together."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labelgrove.core.aliases import Table, TableView
from labelgrove.core.callbacks import Callback, Event, StageTiming
from labelgrove.core.params import overridden, unknown_key
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine, engine_for
from labelgrove.engines.engine import Ref
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods import create, method_class
from labelgrove.methods.base import Model


def with_members(own: Sequence[str], config: TableView) -> Table:
    """Config tables of an ensemble with models in place of ``[[members]]``.

    Keys that the ensemble does not have (``own``), ``random_state`` and ``n_jobs`` are defaults for
    the members that have them.
    """
    tables = config.get("members", [])
    if not isinstance(tables, Sequence) or not all(isinstance(t, Mapping) for t in tables):
        raise ConfigError("members: must be tables, [[members]], each with a method")
    defaults = {
        key: value
        for key, value in config.items()
        if key not in own or key in ("random_state", "n_jobs")
    }
    members, known = [], set(own)
    for number, table in enumerate(tables, 1):
        if "method" not in table:
            raise ConfigError(f"members: number {number} has no method")
        method = table["method"]
        arguments = method_class(method)._get_param_names()
        known.update(arguments)
        settings = {key: value for key, value in defaults.items() if key in arguments}
        own_settings = {key: value for key, value in table.items() if key != "method"}
        members.append(create(method, overridden(settings, own_settings)))
    for key in defaults:
        if key not in known:
            raise ConfigError(unknown_key(key, sorted(known)))
    return {key: value for key, value in config.items() if key in own} | {"members": members}


def check_kinds(members: Sequence[Model], rule: str) -> None:
    """Refuses the mean of scores of different kinds, before anything is trained."""
    kinds: dict[bool, str] = {}
    for number, member in enumerate(members, 1):
        kind = "probability" if member.calibration_ is not None else member.score_kind
        if kind is not None:
            kinds.setdefault(kind == "margin", f"{number} {member.method}")
    if rule == "mean" and len(kinds) > 1:
        raise ConfigError(
            f"rule: {kinds[True]} gives margins and {kinds[False]} scores between 0 and 1, whose "
            "mean is meaningless; choose rank, softmax, sigmoid, round-robin or learnt"
        )


def check_same_labels(first: LabelIndex, other: LabelIndex, who: str) -> None:
    """Refuses a member whose labels are not those of member 1."""
    if other is first or other == first:
        return
    what = "other labels than member 1, or another order"
    if len(other) != len(first):
        what = f"{len(other):,} labels, member 1 {len(first):,}"
    raise DataError(f"{who} has {what}; fit all members with one label index: fit(..., index=)")


class Training:
    """Trains members one after the other; workers of an engine may begin with them before.

    A worker leaves its finished stages in the run folder. Then :meth:`fit` finds all stages there,
    so that the model and its bits are those of one process.
    """

    def __init__(
        self, run: RunFolder, callbacks: Sequence[Callback] = (), engine: Engine | None = None
    ) -> None:
        self.run, self.callbacks, self.engine = run, callbacks, engine
        self.timings: dict[str, StageTiming] = {}
        self._tasks: dict[int, tuple[Model, Ref]] = {}  # by the model's id
        self._corpora: dict[int, tuple[Corpus, Ref]] = {}
        self.thread = ThreadPoolExecutor(1, "labelgrove-beside")
        self._beside: dict[int, Future[Model]] = {}

    def begin_beside(self, model: Model, corpus: Corpus) -> None:
        """Trains the model in a thread, on cores that nobody needs while a GPU is at work."""
        if self.engine is not None:
            return
        run = copy_context().run  # with the caller's threads
        self._beside[id(model)] = self.thread.submit(run, partial(model.fit, corpus, run=self.run))

    def begin(self, model: Model, corpus: Corpus, **given: Any) -> None:
        """Lets a worker train a copy of the model; ``given`` are arguments of its ``fit``."""
        if self.engine is None:
            return
        if id(corpus) not in self._corpora:
            self._corpora[id(corpus)] = (corpus, self.engine.put(corpus))
        _, held = self._corpora[id(corpus)]
        folder = str(self.run.path.resolve())
        gpu = bool(model.encoders())
        ref = self.engine.call(leave_stages, model, held, folder, given, gpu=gpu)
        self._tasks[id(model)] = (model, ref)

    def fit(
        self, name: str, model: Model, corpus: Corpus, watch: Callback | None = None, **given: Any
    ) -> None:
        """Trains the model; its stages get its name, except for ``watch``."""
        elsewhere: dict[str, StageTiming] = {}
        if self.engine is not None and id(model) in self._tasks:
            elsewhere = self.engine.get(self._tasks.pop(id(model))[1])  # raises its error

        def tell(event: Event) -> None:
            for callback in self.callbacks:
                callback(replace(event, stage=f"{name}: {event.stage}" if event.stage else name))

        callbacks = [tell] if watch is None else [tell, watch]
        if id(model) in self._beside:
            self._beside.pop(id(model)).result()  # raises its error
        else:
            model.fit(corpus, callbacks=callbacks, run=self.run, **given)
        model.timings_ = elsewhere or model.timings_
        self.timings |= {f"{name}: {stage}": t for stage, t in model.timings_.items()}

    def cancel(self) -> None:
        """Ends what workers have begun."""
        if self.engine is not None:
            self.engine.cancel([ref for _, ref in self._tasks.values()])


@contextmanager
def training_in(
    run: RunFolder | None, callbacks: Sequence[Callback], engine: Engine | str | None
) -> Iterator[Training]:
    """Members share the stages of the run folder that is given, or of a temporary one."""
    with ExitStack() as opened:
        workers = opened.enter_context(engine_for(engine))
        if run is None:
            # Members' arrays are maps of files here; they stay valid when the files are deleted.
            temporary = tempfile.TemporaryDirectory(
                prefix="labelgrove-", ignore_cleanup_errors=True
            )
            folder = Path(opened.enter_context(temporary))
            run = opened.enter_context(RunFolder(folder / "run"))
        if workers is not None:
            opened.enter_context(run.shared())
        training = Training(run, callbacks, workers)
        opened.enter_context(training.thread)
        opened.callback(training.cancel)
        yield training


def leave_stages(model: Model, corpus: Corpus, folder: str, given: Table) -> dict[str, StageTiming]:
    """Trains a model into a run folder that the process which asks for it shares."""
    with RunFolder.join(folder) as run:
        model.fit(corpus, run=run, **given)
    return dict(model.timings_)
