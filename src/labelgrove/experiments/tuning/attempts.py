"""A model with proposed settings, fitted and measured: in this process or by a worker."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.callbacks import Callback
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import DataError
from labelgrove.methods import create
from labelgrove.methods.base import Model


class Found(NamedTuple):
    """The metric, the seconds that it took, and the stages: name, key, and whether it was there."""

    value: float
    seconds: float
    stages: list[tuple[str, str, bool]]


@dataclass(frozen=True)
class Attempt:
    """What to try, in values that other processes can be given."""

    method: str
    settings: Mapping[str, Any]
    metric: str
    k: int

    def here(
        self, part: Corpus, dev: Corpus, run: RunFolder | None, callbacks: Sequence[Callback] = ()
    ) -> Found:
        """Fits to ``part`` and measures on ``dev``."""
        start = time.perf_counter()
        before = 0 if run is None else len(run.used)
        model = create(self.method, self.settings)
        model.fit(part, run=run, callbacks=callbacks)
        value = self._measured(model, dev)
        stages = [] if run is None else run.used[before:]
        return Found(value, time.perf_counter() - start, stages)

    def _measured(self, model: Model, dev: Corpus) -> float:
        from labelgrove.evaluation.metrics import evaluate

        result = evaluate(
            model.predict(dev, k=self.k),
            dev.labels,
            unknown=dev.unknown,
            metrics=[self.metric],
            train_frequencies=model.facts_.frequencies,
            n_train=model.facts_.documents,
        )
        value = float(result[self.metric])
        if np.isnan(value):
            raise DataError(f"{self.metric} is undefined on these held-out documents")
        return value


def attempt_elsewhere(
    attempt: Attempt, part: Corpus, dev: Corpus, folder: str | None, *held: Mapping[str, Part]
) -> Found:
    """An attempt by a worker, with the stages that a run folder and an engine hold."""
    if folder is None:
        return attempt.here(part, dev, None)
    with RunFolder.join(folder) as run:
        run.held = {key: stage for each in held for key, stage in each.items()}
        return attempt.here(part, dev, run)
