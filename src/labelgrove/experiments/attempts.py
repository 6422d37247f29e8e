"""Attempts: models that are described by settings, trained over one run folder and measured.

A search makes attempts in this process or lets workers make them. A bench starts a process for each
(``bench/run.py``), because it also measures memory.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labelgrove.core.callbacks import Callback
from labelgrove.core.jsonio import JsonObject
from labelgrove.data.corpus import Corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import DataError
from labelgrove.evaluation.metrics import Evaluation, evaluate
from labelgrove.evaluation.metrics.evaluation import Scorer
from labelgrove.evaluation.predictions import Predictions
from labelgrove.methods import create
from labelgrove.methods.base import Model


class Outcome(NamedTuple):
    """The metric, the seconds that it took, and the stages: name, key, and whether it was there."""

    value: float
    seconds: float
    stages: list[tuple[str, str, bool]]


@dataclass(frozen=True)
class Attempt:
    """A model and the metric that it is measured by, in values that other processes can read."""

    method: str
    settings: Mapping[str, object]
    score: Scorer

    def __call__(
        self, part: Corpus, dev: Corpus, run: RunFolder, callbacks: Sequence[Callback] = ()
    ) -> Outcome:
        """Fits the model to ``part`` and measures it on ``dev``."""
        start = time.perf_counter()
        before = len(run.used)
        model = create(self.method, self.settings)
        model.fit(part, run=run, callbacks=callbacks)
        metric, predictions = self.score.metric, model.predict(dev, k=self.score.k)
        value = measure(model, predictions, dev, [metric])[metric]
        if np.isnan(value):
            raise DataError(f"{metric} is undefined on these held-out documents")
        return Outcome(float(value), time.perf_counter() - start, run.used[before:])

    def as_guest(self, part: Corpus, dev: Corpus, folder: str) -> Outcome:
        """The same in a worker, with the stages in a run folder."""
        with RunFolder.join(folder) as run:
            return self(part, dev, run)


def measure(
    model: Model, predictions: Predictions, corpus: Corpus, metrics: Sequence[str], **options: Any
) -> Evaluation:
    """Evaluates predictions of a model; ``options`` are those of ``evaluate``."""
    return evaluate(
        predictions,
        corpus.labels,
        unknown=corpus.unknown,
        metrics=metrics,
        train_frequencies=model.facts_.frequencies,
        n_train=model.facts_.documents,
        **options,
    )


def read_lines(file: Path) -> list[JsonObject]:
    """The records in a file of JSON lines, without a line that a killed process left unfinished."""
    records = []
    for line in file.read_bytes().splitlines() if file.exists() else []:
        with suppress(ValueError):
            records.append(json.loads(line))
    return records
