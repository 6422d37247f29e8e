"""Models that workers of an engine train at the same time, each in a task of its own.

A task leaves its finished stages in the run folder. The process that began it then fits the same
model and finds all stages there, so that the model and its bits are those of one process.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

from labelgrove.core.callbacks import StageTiming
from labelgrove.data.corpus import Corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.engines.engine import Ref
from labelgrove.methods.base import Model


class Ahead:
    """Begins trainings ahead of those that use their stages; without an engine, does nothing."""

    def __init__(self, engine: Engine | None, run: RunFolder) -> None:
        self._engine, self._run = engine, run
        self._tasks: dict[int, tuple[Model, Ref]] = {}  # by the model's id
        self._corpora: dict[int, tuple[Corpus, Ref]] = {}
        self._open = ExitStack()

    @property
    def possible(self) -> bool:
        """Whether there are workers."""
        return self._engine is not None

    def begin(self, model: Model, corpus: Corpus, **given: Any) -> None:
        """Starts to train a copy of the model; ``given`` are arguments of its ``fit``."""
        if self._engine is None:
            return
        if id(corpus) not in self._corpora:
            self._corpora[id(corpus)] = (corpus, self._engine.put(corpus))
        _, held = self._corpora[id(corpus)]
        folder = str(self._run.path.resolve())
        gpu = bool(model.encoders())
        ref = self._engine.call(leave_stages, model, held, folder, given, gpu=gpu)
        self._tasks[id(model)] = (model, ref)

    def wait(self, model: Model) -> dict[str, StageTiming] | None:
        """What a task needed for each stage of the model; None if none was begun.

        Raises the error of the training.
        """
        if self._engine is None or id(model) not in self._tasks:
            return None
        _, ref = self._tasks.pop(id(model))
        timings: dict[str, StageTiming] = self._engine.get(ref)
        return timings

    def __enter__(self) -> Self:
        if self._engine is not None:
            self._open.enter_context(self._run.shared())
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.cancel([ref for _, ref in self._tasks.values()])
        self._open.close()


def leave_stages(
    model: Model, corpus: Corpus, folder: str, given: dict[str, Any]
) -> dict[str, StageTiming]:
    """Trains a model into a run folder that the process which asks for it shares."""
    with RunFolder.join(folder) as run:
        model.fit(corpus, run=run, **given)
    return dict(model.timings_)
