"""Labels that mean nearly the same, found by a text tower, as LEVER's teacher finds them.

The tower is a copy of the encoder that learns to place a document near the texts of its labels. It
sees each label once in an epoch, with one of its documents, so that labels with few documents
count as much as others. Labels whose texts lie close together afterwards are related: the document
made of a label's text is then a document of these labels, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from labelgrove.core.arrays import CSR, Float32, Int64, as_csr, csr_arrays, csr_from_arrays
from labelgrove.core.callbacks import Reporter
from labelgrove.core.late import sparse
from labelgrove.core.params import AutoFloat, Params, fixed, param
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.disk.stages import Stages
from labelgrove.labels.documents import label_documents
from labelgrove.methods.neighbours.memory import Vectors
from labelgrove.methods.preparation import tokens_stage
from labelgrove.nn.batches.padded import Batch, Batches, Movable, prefetched
from labelgrove.nn.embed import embed
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.heads.losses import contrast_loss
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.loop import LoopParams, train

PAIRS_TO_SEE, MOST_EPOCHS = 200_000, 20
SHOWN = 3  # examples in the message


@dataclass
class TowerParams(Params):
    """How related labels are found (``label_texts = "related"``)."""

    related: int = param(3, ge=1, help="most labels that a label's text stands for besides its own")
    similarity: float = param(0.6, gt=0, le=1, help="least cosine of the texts of related labels")
    epochs: AutoFloat = param(
        "auto", gt=0, help="passes over the labels; auto = about 200,000 pairs, 1 to 20 passes"
    )
    batch_size: int = param(256, ge=2, help="labels per batch; those of the others are wrong")
    lr: float = param(5e-5, gt=0, help="learning rate")
    temperature: float = param(0.05, gt=0, help="small = the nearest wrong labels count most")
    max_tokens: int = param(64, ge=8, help="tokens to read of documents and label texts")

    def passes(self, labels: int) -> float:
        """Epochs for so many labels."""
        usual = min(max(1.0, PAIRS_TO_SEE / max(labels, 1)), float(MOST_EPOCHS))
        return float(fixed(self.epochs, usual))


@dataclass(frozen=True)
class Related:
    """A row for each label, with its related labels."""

    matrix: CSR

    def state(self) -> Part:
        return Part({"labels": self.matrix.shape[0]}, csr_arrays(self.matrix, "related"))

    @classmethod
    def from_state(cls, part: Part) -> Related:
        return cls(csr_from_arrays(part.arrays, "related"))


def related_stage(
    stages: Stages,
    corpus: Corpus,
    encoder: EncoderParams,
    params: TowerParams,
    *,
    precision: str,
    seed: int,
    device: str,
    threads: int | None,
) -> CSR:
    """The related labels of each label, from the documents to learn from; said with examples."""
    texts, own = label_documents(corpus.index)
    if len(texts) < 2:
        stages.reporter.message("label_texts: no label is related to another: they have no words")
        return as_csr(sparse.csr_array((len(corpus.index),) * 2, dtype=np.float32))
    reading = replace(encoder, max_tokens=_shorter(encoder.max_tokens, params.max_tokens))
    reader = load_encoder(reading)
    related = stages(
        "related",
        find_related,
        tokens=tokens_stage(stages, "tower-tokens", corpus.texts, reader, threads=threads),
        label_tokens=tokens_stage(stages, "tower-label-tokens", texts, reader, threads=threads),
        columns=own.indices.astype(np.int64),
        labels=corpus.labels,
        encoder=stages.derive(lambda: reader, content=EncoderContent(reading)),
        params=params,
        precision=precision,
        seed=seed,
        device=device,
        threads=threads,
        reporter=stages.reporter,
    ).value.matrix
    stages.reporter.message(_summary(related, corpus.index))
    return related


def find_related(
    tokens: Tokens,
    label_tokens: Tokens,
    columns: Int64,
    labels: CSR,
    encoder: Encoder,
    params: TowerParams,
    precision: str,
    seed: int,
    *,
    device: str,
    threads: int | None,
    reporter: Reporter,
    checkpoints: Path | None = None,
) -> Related:
    """Trains the encoder as a tower and compares label texts, which belong to ``columns``."""
    pairs = PairBatches(tokens, label_tokens, labels[:, columns], encoder, params, seed)
    if len(pairs):
        train_tower(encoder, pairs, params, precision, device, reporter, checkpoints)
    near = nearest_labels(encoder, label_tokens, params, device=device, threads=threads)
    place = sparse.csr_array(
        (np.ones(len(columns), np.float32), (columns, np.arange(len(columns)))),
        shape=(labels.shape[1], len(columns)),
    )
    return Related(as_csr(place @ near @ place.T))


def train_tower(
    encoder: Encoder,
    pairs: PairBatches,
    params: TowerParams,
    precision: str,
    device: str,
    reporter: Reporter,
    checkpoints: Path | None = None,
) -> None:
    """Trains the encoder in place."""
    epochs = params.passes(len(pairs.used))
    train(
        Tower(encoder),
        pairs,
        partial(tower_loss, temperature=params.temperature),
        LoopParams(epochs=epochs, lr=params.lr, precision=cast(Any, precision)),
        folder=checkpoints,
        reporter=Reporter(reporter.callbacks),  # its seconds are the stage's already
        device=choose_device(device),
        seed=pairs.seed,
        prefetch=prefetched,
        stage="tower",
    )


def nearest_labels(
    encoder: Encoder, texts: Tokens, params: TowerParams, *, device: str, threads: int | None
) -> CSR:
    """For each text the others that are related to it."""
    where = choose_device(device)
    vectors = embed(encoder, texts, device=where)
    return nearest_rows(vectors, params, device=where, threads=threads)


class Tower(nn.Module):
    """An encoder as the training loop wants it."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, batch: Batch) -> Tensor:
        states: Tensor = self.encoder(batch.ids, batch.attention)[0]
        return states


@dataclass(frozen=True)
class PairBatch(Movable):
    """Documents and the texts of labels: those at the same place belong together.

    ``belongs`` says of every document (row) and label (column) whether it has it.
    """

    documents: Batch
    labels: Batch
    belongs: Tensor

    @property
    def rows(self) -> Any:
        return self.documents.rows

    @property
    def tokens(self) -> int:
        return self.documents.tokens + self.labels.tokens

    def __len__(self) -> int:
        return len(self.documents)


class PairBatches:
    """Every label that has documents once in an epoch, beside one of its documents.

    Batches depend on (seed, epoch) alone, so a run can continue in the middle of an epoch.
    """

    def __init__(
        self,
        tokens: Tokens,
        label_tokens: Tokens,
        labels: CSR,
        encoder: Encoder,
        params: TowerParams,
        seed: int,
    ) -> None:
        self.labels, self.seed, self.size = as_csr(labels), seed, params.batch_size
        self.documents_of = as_csr(self.labels.T)
        self.used = np.flatnonzero(np.diff(self.documents_of.indptr))
        how: dict[str, Any] = {"pad_id": encoder.pad_id, "pad_left": encoder.pad_left}
        if len(self):
            self._documents = Batches(tokens, self.size, **how)
            self._names = Batches(label_tokens, self.size, **how)

    def __len__(self) -> int:
        return math.ceil(len(self.used) / self.size) if len(self.used) > 1 else 0

    def epoch(self, number: int, *, start: int = 0) -> Iterator[PairBatch]:
        """The batches of an epoch, from batch ``start`` on."""
        names, documents = self.pairs(number)
        for first in range(start * self.size, len(names), self.size):
            piece = slice(first, first + self.size)
            yield self._batch(documents[piece], names[piece])

    def pairs(self, epoch: int) -> tuple[Int64, Int64]:
        """The labels in the order of an epoch, and the document of each."""
        random = np.random.default_rng([self.seed, epoch])
        names = random.permutation(self.used)
        begin = self.documents_of.indptr[names]
        count = self.documents_of.indptr[names + 1] - begin
        places = begin + (random.random(len(names)) * count).astype(np.int64)
        return names, self.documents_of.indices[places].astype(np.int64)

    def _batch(self, documents: Int64, names: Int64) -> PairBatch:
        has = self.labels[documents].tocsc()[:, names].toarray() != 0
        return PairBatch(
            self._documents.batch(documents), self._names.batch(names), torch.from_numpy(has)
        )


def tower_loss(tower: Tower, batch: PairBatch, *, temperature: float) -> Tensor:
    """How hard it is to find a document's label among those of the batch, and the reverse."""
    documents, labels = tower(batch.documents), tower(batch.labels)
    return contrast_loss(documents, labels, temperature, ignored=batch.belongs)


def nearest_rows(
    vectors: Float32, params: TowerParams, *, device: Any = None, threads: int | None
) -> CSR:
    """For each row of unit length the nearest others, as many and as near as ``params`` say."""
    stored = Vectors(vectors.astype(np.float16))
    best = stored.nearest(vectors, params.related + 1, threads=threads, device=device)
    rows = np.arange(len(vectors))[:, None]
    taken: npt.NDArray[np.bool_] = (best.columns != rows) & (best.scores >= params.similarity)
    # A label with the same text may stand before the label itself.
    taken &= taken.cumsum(1) <= params.related
    taken &= np.arange(best.columns.shape[1]) < best.counts[:, None]
    entries = (np.broadcast_to(rows, taken.shape)[taken], best.columns[taken])
    ones = np.ones(len(entries[0]), np.float32)
    return as_csr(sparse.csr_array((ones, entries), shape=(len(vectors), len(vectors))))


def _shorter(longest: Any, most: int) -> int:
    return most if longest == "auto" else min(longest, most)


def _summary(related: CSR, index: LabelIndex) -> str:
    counts = np.diff(related.indptr)
    some = np.flatnonzero(counts)
    if not len(some):
        return (
            "label_texts: no two labels are related, so each name is a document of its label "
            "alone; lower tower.similarity to relate more"
        )
    spread = some[np.linspace(0, len(some) - 1, min(SHOWN, len(some))).astype(int)]
    examples = "; ".join(
        f"{index.names[row]} ~ {', '.join(index.names[column] for column in _row(related, row))}"
        for row in spread.tolist()
    )
    mean = counts[some].mean()
    return (
        f"label_texts: {len(some):,} of {len(counts):,} labels have related ones, {mean:.1f} each; "
        f"for example {examples}"
    )


def _row(matrix: CSR, row: int) -> list[int]:
    entries: list[int] = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
    return entries
