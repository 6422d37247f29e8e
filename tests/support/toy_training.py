"""A model, data and batches small enough to train in a test; also runs as one of two processes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.callbacks import Event, Reporter
from labelgrove.disk.run_folder import Checkpoints
from labelgrove.disk.tensors import write_tensors
from labelgrove.nn.batches import Movable
from labelgrove.nn.heads.rows import RowTable
from labelgrove.nn.training.loop import LoopResult, Task, train
from labelgrove.nn.training.params import TrainingParams
from labelgrove.nn.training.updates import Updates

DOCUMENTS, WIDTH, LABELS = 46, 12, 12


@dataclass(frozen=True)
class Batch(Movable):
    rows: np.ndarray[Any, Any]
    x: Tensor
    y: Tensor

    @property
    def tokens(self) -> int:
        return len(self.rows) * 3


class Batches:
    """Shuffled in each epoch; the last batch is smaller."""

    def __init__(self, size: int = 4) -> None:
        generator = np.random.default_rng(0)
        self.y = generator.integers(0, LABELS, DOCUMENTS)
        self.x = np.eye(LABELS, WIDTH)[self.y] + generator.normal(0, 0.3, (DOCUMENTS, WIDTH))
        self.size = size

    def __len__(self) -> int:
        return math.ceil(DOCUMENTS / self.size)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng([7, number]).permutation(DOCUMENTS)
        for i in range(start, len(self)):
            rows = order[i * self.size : (i + 1) * self.size]
            x = torch.tensor(self.x[rows], dtype=torch.float32)
            yield Batch(rows, x, torch.tensor(self.y[rows]))


class Model(nn.Module):
    """A dense head, and a table of which each document reads three rows."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 8), nn.LayerNorm(8), nn.Dropout(dropout))
        self.head = nn.Linear(8, LABELS)
        self.table = RowTable(1000, 8, bias=True, generator=generator)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3, generator=generator)

    def loss(self, batch: Batch) -> Tensor:
        hidden = self.encoder(batch.x)
        dense = nn.functional.cross_entropy(self.head(hidden), batch.y)
        candidates = torch.stack([batch.y, 100 + batch.y, torch.full_like(batch.y, 999)], dim=1)
        ids, place = torch.unique(candidates, return_inverse=True)
        logits = (hidden @ self.table.rows(ids).T + self.table.biases(ids)).gather(1, place)
        targets = torch.tensor([1.0, 0.0, 0.0]).expand_as(logits)
        rows = nn.functional.binary_cross_entropy_with_logits(logits, targets)
        return dense + rows


def loss_of(model: Model, batch: Batch) -> Tensor:
    return model.loss(batch)


PARAMS = TrainingParams(
    epochs=2,
    batch_size=32,
    lr=0.01,
    head_lr=0.03,
    weight_decay=0.1,
    head_weight_decay=0.1,
    log_every=4,
    average="none",
    swa_every=100,
    evaluations_per_epoch=2,
    precision="fp32",
)


def run(
    model: Model, params: TrainingParams, *, folder: Path | None = None, **options: Any
) -> LoopResult:
    held_out = next(Batches(DOCUMENTS).epoch(0))

    def evaluate() -> float:
        assert not model.training
        return -model.loss(held_out).item()

    task = Task(Batches(), options.pop("loss", loss_of), options.pop("evaluate", evaluate))
    return train(model, task, params, folder=folder, **{"seed": 5} | options)


def interrupting(step: int) -> Reporter:
    """A reporter that presses Ctrl-C in update ``step``, before its checkpoint is saved."""

    def callback(event: Event) -> None:
        if event.kind == "progress" and event.done == step:
            raise KeyboardInterrupt

    return Reporter([callback], interval=0)


@contextlib.contextmanager
def stopped_after(updates: int) -> Iterator[None]:
    """A context in which Ctrl-C ends a training after so many updates."""
    make = Updates.make

    def stop(self: Updates, step: int, *rest: Any) -> None:
        if step == updates:
            raise KeyboardInterrupt
        make(self, step, *rest)

    Updates.make = stop  # type: ignore[method-assign]
    try:
        yield
    finally:
        Updates.make = make  # type: ignore[method-assign]


def run_until_killed(folder: Path, params: TrainingParams, *, deadly: int) -> None:
    """Trains and kills its process in update ``deadly``; checkpoints come every third update."""
    save, make = Checkpoints.save, Updates.make

    def rare_save(self: Checkpoints, part: Any, *, step: int) -> None:
        if step % 3 == 0:
            save(self, part, step=step)

    def deadly_make(self: Updates, step: int, *rest: Any) -> None:
        if step == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        make(self, step, *rest)

    Checkpoints.save = rare_save  # type: ignore[method-assign]
    Updates.make = deadly_make  # type: ignore[method-assign]
    run(Model(), params, folder=folder)


def gradients_of_updates(params: TrainingParams, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Trains without dropout; returns the gradients of each update and the final weights."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    descend = Updates._descend
    model = Model(dropout=0.0)

    def recorded(self: Updates, step: int) -> None:
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            arrays[f"{step} {name}"] = parameter.grad.numpy().copy()
        for name, (ids, gradient) in self.rows._gradients.items():
            full = torch.zeros(1000, *gradient.shape[1:]).index_add_(0, ids, gradient)
            arrays[f"{step} {name}"] = full.numpy()
        descend(self, step)

    Updates._descend = recorded  # type: ignore[method-assign]
    try:
        result = run(model, params, **options)
    finally:
        Updates._descend = descend  # type: ignore[method-assign]
    arrays |= {name: value.numpy() for name, value in model.state_dict().items()}
    losses = [record["loss"] for record in result.history if "loss" in record]
    scores = [record["score"] for record in result.history if "score" in record]
    return arrays | {"losses": np.array(losses), "scores": np.array(scores)}


def worker() -> None:
    """One of several processes that train together; each writes its arrays to files."""
    torch.set_num_threads(1)
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    params = replace(PARAMS, epochs=1.5, checkpoint_minutes=0)
    with contextlib.suppress(KeyboardInterrupt), stopped_after(4):
        run(Model(dropout=0.0), params, folder=folder / "run")
    arrays = gradients_of_updates(params, folder=folder / "run")
    write_tensors(folder / f"{rank}.safetensors", arrays)
    arrays = gradients_of_updates(replace(PARAMS, max_steps=3, accumulate=2))
    write_tensors(folder / f"accumulated-{rank}.safetensors", arrays)


if __name__ == "__main__":
    worker()
