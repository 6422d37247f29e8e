"""Runs to report on: models or ready predictions, made comparable over one set of label columns."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from labelgrove.core.arrays import Int32
from labelgrove.core.memory import peak_rss
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.predictions import Predictions
from labelgrove.exchange.loading import load
from labelgrove.methods.base import Model


@dataclass(frozen=True)
class Run:
    """The predictions of one run; of a model, also the model and what predicting cost."""

    name: str
    predictions: Predictions
    model: Model | None = None
    folder: Path | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory: int | None = None


# What can be reported on: a fitted model, its folder, predictions, or a file of them.
Subject: TypeAlias = Model | Predictions | Run | str | Path
Subjects: TypeAlias = Mapping[str, Subject] | Sequence[Subject] | str | Path


def predicted(
    model: Subject, corpus: Corpus, *, k: int, name: str | None = None, threads: int | None = None
) -> Run:
    """A run from what can be reported on; a Run is returned as it is."""
    if isinstance(model, Run):
        return model
    folder = None
    if isinstance(model, (str, Path)):
        path = Path(model)
        name = name or path.name or str(path)
        if path.is_dir():
            model, folder = load(path), path
        else:
            from labelgrove.evaluation.prediction_files import read_predictions

            model = read_predictions(path, corpus)
    if isinstance(model, Predictions):
        if len(model) != len(corpus):
            raise DataError(f"{len(model):,} predictions but {len(corpus):,} documents")
        return Run(name or "predictions", model.top(k))
    if not isinstance(model, Model):
        raise ConfigError(
            f"cannot report on {type(model).__name__}; give a fitted model, a model folder, "
            "Predictions or a file of them"
        )
    # The first call maps files and starts libraries; speeds are those of the calls after it.
    model.predict(corpus.take(range(min(1, len(corpus)))), k=k, threads=threads or 0)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = model.predict(corpus, k=k, threads=threads or 0)
    costs = time.perf_counter() - wall, time.process_time() - cpu, peak_rss()
    return Run(name or model.method, predictions, model, folder, *costs)


def named(against: Subjects) -> list[tuple[str | None, Subject]]:
    """The other runs with the names they were given, if any."""
    if isinstance(against, Mapping):
        return list(against.items())
    if isinstance(against, (str, Path)):
        return [(None, against)]
    return [(None, model) for model in against]


def with_unique_names(runs: Sequence[Run]) -> list[Run]:
    """The runs, with numbers after names that occur again."""
    seen: dict[str, int] = {}
    renamed = []
    for run in runs:
        number = seen[run.name] = seen.get(run.name, 0) + 1
        renamed.append(run if number == 1 else replace(run, name=f"{run.name} ({number})"))
    return renamed


def on_one_index(runs: Sequence[Run]) -> list[Run]:
    """The same predictions with columns of one index: the first run's labels, then those that only
    other runs know. Labels are matched by id, or by name where one side lacks the id."""
    first = runs[0].predictions.index
    if all(run.predictions.index is first or run.predictions.index == first for run in runs[1:]):
        return [_moved(run, run.predictions.columns, first) for run in runs]
    ids, names = list(first.ids), list(first.names)
    extra: dict[str, int] = {}
    moves = []
    for run in runs:
        index, taken = run.predictions.index, set()
        move = np.full(len(index) + 1, -1, np.int32)  # the last is that of padding
        for column, label in enumerate(index.ids):
            place = first.get(label)
            if place is None or place in taken:
                place = extra.setdefault(label, len(first) + len(extra))
                if place == len(ids):
                    ids.append(label)
                    names.append(index.names[column])
            taken.add(place)
            move[column] = place
        moves.append(move)
    both = LabelIndex(ids, names=names)
    return [
        _moved(run, move[run.predictions.columns], both)
        for run, move in zip(runs, moves, strict=True)
    ]


def _moved(run: Run, columns: Int32, index: LabelIndex) -> Run:
    return replace(run, predictions=replace(run.predictions, columns=columns, index=index))
