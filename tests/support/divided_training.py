"""Networks with tables that processes divide, small enough to train in a test.

Runs as one of several processes, too: ``divided_training.py FOLDER [KIND ...]``.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from labelgrove.disk.tensors import write_tensors
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.cascadexml.net import CascadeNet, CascadeParams
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams
from labelgrove.nn.batches.padded import Movable
from labelgrove.nn.heads.ragged import RaggedLabels
from labelgrove.nn.heads.sharded import whole_state
from labelgrove.nn.network import labels_of
from labelgrove.nn.training.devices import Workers
from labelgrove.nn.training.loop import LoopParams, LoopResult, Task, train
from support.toy_training import stopped_after

DOCUMENTS, WIDTH, LABELS, SIZE = 42, 6, 23, 4
PARAMS = LoopParams(
    epochs=2,
    lr=0.01,
    head_lr=0.02,
    weight_decay=0.1,
    head_weight_decay=0.1,
    log_every=3,
    evaluations_per_epoch=1,
    clip_norm=0.5,
    accumulate=2,
    average="swa",
    swa_start=1,
    swa_every=1,
    precision="fp32",
    checkpoint_minutes=0,
)


def labels() -> Any:
    generator = np.random.default_rng(3)
    rows = [
        generator.choice(LABELS, generator.integers(1, 5), replace=False) for _ in range(DOCUMENTS)
    ]
    pointers = np.cumsum([0] + [len(row) for row in rows])
    columns = np.concatenate([np.sort(row) for row in rows])
    shape = DOCUMENTS, LABELS
    return sp.csr_matrix((np.ones(len(columns), np.float32), columns, pointers), shape=shape)


def tree() -> LabelTree:
    parents = np.arange(LABELS, dtype=np.int32) * 6 // LABELS
    leaves = np.random.default_rng(1).permutation(LABELS).astype(np.int32)
    return LabelTree([np.zeros(6, np.int32), parents], leaves)


def light(grouped: bool = False, **params: Any) -> LightXmlNet:
    settings = LightXmlParams(layers=1, dropout=0.0, groups_kept=3, bottleneck=5, **params)
    return LightXmlNet(WIDTH, LABELS, tree() if grouped else None, settings)


def cascade(**params: Any) -> CascadeNet:
    shape = tree()
    if params.pop("flat", False):
        shape = LabelTree([np.zeros(LABELS, np.int32)], shape.leaf_labels)
    settings = CascadeParams(layers="last", dropout=0.0, mix_dropout=0.0, **params)
    return CascadeNet(WIDTH, shape, replace(settings, kept=3))


KINDS: dict[str, Callable[[], Any]] = {
    "full head": lambda: light(full=True, chunk=5, label_weights="propensity"),
    "one head": lambda: light(reduction="mean"),
    "one head, weighted": lambda: light(label_weights="propensity"),
    "groups": lambda: light(grouped=True),
    "groups, rows": lambda: light(grouped=True, row_table_from=0),
    "cascade": lambda: cascade(logits="full"),
    "cascade, rows": lambda: cascade(row_table_from=0),
    "cascade without clusters": lambda: cascade(flat=True, row_table_from=0),
}


@dataclass(frozen=True)
class Batch(Movable):
    rows: np.ndarray[Any, Any]
    x: Tensor
    labels: RaggedLabels

    @property
    def tokens(self) -> int:
        return len(self.rows)


class Batches:
    """Two batches of one size have the documents of one batch of twice the size."""

    def __init__(self, size: int) -> None:
        self.labels, self.size = labels(), size
        noise = np.random.default_rng(4).normal(0, 0.2, (DOCUMENTS, LABELS))
        self.x = (self.labels.toarray() + noise).astype(np.float32)

    def __len__(self) -> int:
        return math.ceil(DOCUMENTS / self.size)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        order = np.random.default_rng([7, number]).permutation(DOCUMENTS)
        for i in range(start, len(self)):
            yield self.batch(order[i * self.size : (i + 1) * self.size])

    def batch(self, rows: Any) -> Batch:
        return Batch(rows, torch.from_numpy(self.x[rows]), labels_of(self.labels, rows))


class Model(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.encoder = nn.Sequential(nn.Linear(LABELS, WIDTH), nn.LayerNorm(WIDTH))
        self.heads = KINDS[kind]()
        self.heads.start_from(labels())

    def states(self, x: Tensor) -> list[Tensor]:
        state = self.encoder(x)
        return [state] * sum(getattr(self.heads, "joined", [1]))

    def forward(self, batch: Batch) -> Tensor:
        loss: Tensor = self.heads.loss(self.states(batch.x), batch.labels)[0]
        return loss


def run(model: Model, size: int, folder: Path | None = None) -> LoopResult:
    batches = Batches(size)
    everything = batches.batch(np.arange(DOCUMENTS))

    def evaluate() -> float:
        top = model.heads.predict(model.states(everything.x), 3)
        return float(top.scores.sum() - torch.log1p(top.columns.float()).sum() / 1e3)

    task = Task(batches, lambda m, batch: m(batch), evaluate)
    return train(model, task, PARAMS, seed=5, folder=folder)


def arrays_of(model: Model, result: LoopResult) -> dict[str, np.ndarray[Any, Any]]:
    """The whole model after training, its history, and what it predicts."""
    arrays = {f"model {n}": v.detach().numpy().copy() for n, v in whole_state(model).items()}
    for name in ("loss", "score"):
        values = [record[name] for record in result.history if name in record]
        arrays[name] = np.array(values)
    everything = Batches(SIZE).batch(np.arange(DOCUMENTS))
    with torch.no_grad():
        top = model.heads.predict(model.states(everything.x), 4)
    return arrays | {"columns": top.columns.numpy(), "scores": top.scores.numpy()}


def divided(kind: str) -> Model:
    model, workers = Model(kind), Workers.start(torch.device("cpu"))
    model.heads.divide(workers.rank, workers.count, torch.device("cpu"))
    return model


def worker(folder: Path, kinds: list[str]) -> None:
    """Trains each kind of head, is stopped on the way and continues; writes what came out."""
    torch.set_num_threads(1)
    for kind in kinds:
        with contextlib.suppress(KeyboardInterrupt), stopped_after(2):
            run(divided(kind), SIZE, folder=folder / kind)
        model = divided(kind)
        result = run(model, SIZE, folder=folder / kind)
        assert result.resumed_from == 2
        write_tensors(folder / f"{kind} {os.environ['RANK']}", arrays_of(model, result))


if __name__ == "__main__":
    worker(Path(sys.argv[1]), sys.argv[2:])
