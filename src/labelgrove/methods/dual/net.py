"""Two towers: documents and labels' texts are read by one encoder and compared by their cosine.

The loss is DEXML's decoupled softmax (Gupta et al., ICLR 2024): each label of a document competes
with labels that the document does not have, and never with its other labels. Wrong labels are those
of the other documents of a batch and, from the second epoch on, labels that the encoder itself
placed near the document at the end of the epoch before (NGAME; Dahiya et al., WSDM 2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.arrays import CSR, Float32, Int32, Int64
from labelgrove.core.params import Params, param
from labelgrove.labels.tree import children_of
from labelgrove.methods.dual.search import SCORES_AT_ONCE
from labelgrove.nn.batches import Batch, Batches, Movable, PackedBatch, PackedBatches, packed_batch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Network, Runner, unit_vectors

NEAREST = 32  # wrong labels near a document that an epoch draws from
_MULTIPLE = 128  # the tokens of a packed batch of labels are a multiple of this


@dataclass
class TowerParams(Params):
    """How documents and labels learn to be near each other."""

    temperature: float = param(0.05, gt=0, help="cosines are divided by it in the softmax")
    positives: int = param(4, ge=1, help="labels of a document in its batch; rare ones first")
    negatives: int = param(4, ge=0, help="wrong labels near a document in its batch")
    label_tokens: int = param(32, ge=4, help="most tokens that are read of a label's text")


class Towers(nn.Module):
    """What the training of two towers remembers: wrong labels that were near each document."""

    near: Tensor

    def __init__(self, documents: int, labels: int) -> None:
        super().__init__()
        count = min(NEAREST, labels)
        self.register_buffer("near", torch.full((documents, count), -1, dtype=torch.int32))


@dataclass(frozen=True)
class PairBatch(Movable):
    """Documents, labels, and which labels are whose (``right``, documents x labels)."""

    documents: Batch | PackedBatch
    labels: Batch | PackedBatch
    right: Tensor

    @property
    def rows(self) -> Int64:
        return self.documents.rows

    @property
    def tokens(self) -> int:
        return self.documents.tokens + self.labels.tokens

    def __len__(self) -> int:
        return len(self.documents)


def decoupled_softmax(scores: Tensor, right: Tensor) -> Tensor:
    """The mean over documents of the mean over labels of -log p, p = e^s / (e^s + wrong ones)."""
    wrong = torch.logsumexp(scores.masked_fill(right, -torch.inf), dim=1, keepdim=True)
    losses = functional.softplus(wrong - scores)
    counts = right.sum(1)
    means = losses.masked_fill(~right, 0.0).sum(1) / counts.clamp(min=1)
    return means.sum() / (counts > 0).sum().clamp(min=1)


def pair_loss(network: Network, batch: PairBatch, temperature: float) -> Tensor:
    """The loss of a batch."""
    documents = functional.normalize(network.states(batch.documents)[0])
    labels = functional.normalize(network.states(batch.labels)[0])
    scores = documents @ labels.T / temperature
    return decoupled_softmax(scores.float(), batch.right)


class PairBatches:
    """Batches of documents, each with labels of its documents and wrong ones.

    ``texts`` are the tokens of all labels' texts. Only labels that documents have are drawn: others
    must not learn that they are wrong everywhere. What is drawn depends on the seed, the epoch and
    the number of the batch, so that a run can continue anywhere.
    """

    def __init__(
        self,
        batches: Batches | PackedBatches,
        labels: CSR,
        texts: Tokens,
        network: Network,
        params: TowerParams,
        *,
        precision: str,
        seed: int,
    ) -> None:
        self.batches, self.labels, self.texts, self.network = batches, labels, texts, network
        self.params, self.precision, self.seed = params, precision, seed
        counts = np.bincount(labels.indices, minlength=labels.shape[1])
        self.known = np.flatnonzero(counts)
        self.rarity = 1 / np.sqrt(np.maximum(counts, 1))
        self.slots, self.capacity = 0, 0
        if isinstance(batches, PackedBatches):  # labels, too, come in batches of one shape
            lengths = np.sort(texts.lengths[self.known])[::-1]
            self.slots = min(len(lengths), batches.rounds * (params.positives + params.negatives))
            usual = max(lengths.mean(), np.average(texts.lengths, weights=counts))
            most = max(min(lengths[: self.slots].sum(), 1.25 * self.slots * usual), lengths[0])
            self.capacity = _MULTIPLE * math.ceil(most / _MULTIPLE)

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[PairBatch]:
        """Like :meth:`Batches.epoch`; later epochs first look for wrong labels, kept as state."""
        if number and not start and self.params.negatives:
            find_near(self.network, self.batches.tokens, self, self.precision)
        near = self.network.heads.near.cpu().numpy()
        batches: Iterator[Batch | PackedBatch] = self.batches.epoch(number, start=start)
        for step, batch in enumerate(batches, start):
            random = np.random.default_rng([self.seed, number, step])
            yield self._paired(batch, near[batch.rows], random)

    def _paired(
        self, batch: Batch | PackedBatch, near: Int32, random: np.random.Generator
    ) -> PairBatch:
        places, counts = children_of(batch.rows, self.labels.indptr)
        rows = np.repeat(np.arange(len(batch)), counts)
        columns = self.labels.indices[places].astype(np.int64)
        own = self._positives(rows, columns, random)
        chosen = np.unique(np.concatenate([own, self._near(near, random)]))
        if self.capacity:
            chosen = self._fitting(chosen, np.isin(chosen, own))
        pairs = np.searchsorted(chosen, columns)
        inside = chosen[np.minimum(pairs, len(chosen) - 1)] == columns
        right = np.zeros((len(batch), len(chosen)), bool)
        right[rows[inside], pairs[inside]] = True
        encoder = self.network.encoder
        if self.capacity:
            longest = self.texts.longest
            shape = self.slots + -(-self.capacity // longest), self.capacity, longest
            packed = packed_batch(self.texts, chosen, *shape, pad_id=encoder.pad_id)
            return PairBatch(batch, packed, torch.from_numpy(right))
        padded = Batches(
            self.texts.take(chosen),
            len(chosen),
            pad_id=encoder.pad_id,
            pad_left=encoder.pad_left,
            shuffle=False,
        )
        labels = next(padded.epoch(0))
        return PairBatch(batch, labels, torch.from_numpy(right[:, labels.rows]))

    def _fitting(self, chosen: Int64, own: npt.NDArray[np.bool_]) -> Int64:
        """The labels whose tokens fit in a batch; wrong ones are left out first."""
        order = np.argsort(~own, kind="stable")
        fits = np.cumsum(self.texts.lengths[chosen[order]]) <= self.capacity
        return np.sort(chosen[order[fits]])

    def _positives(self, rows: Int64, columns: Int64, random: np.random.Generator) -> Int64:
        """Some labels of each document, drawn without replacement, rare ones more often."""
        # The largest log(u) / weight: a weighted draw without replacement (Efraimidis, Spirakis).
        keys = np.log(random.random(len(columns))) / self.rarity[columns]
        order = np.lexsort((-keys, rows))
        starts = np.searchsorted(rows, rows)
        return columns[order[np.arange(len(rows)) - starts < self.params.positives]]

    def _near(self, near: Int32, random: np.random.Generator) -> Int64:
        count = min(self.params.negatives, near.shape[1])
        places = random.random(near.shape).argsort(axis=1)[:, :count]
        drawn = np.take_along_axis(near, places, 1).ravel()
        return drawn[drawn >= 0].astype(np.int64)


@torch.no_grad()
def find_near(network: Network, tokens: Tokens, pairs: PairBatches, precision: str) -> None:
    """Stores the nearest wrong labels of every document in the network."""
    known = pairs.known
    device = network.mean.device
    labels = torch.from_numpy(vectors_of(network, pairs.texts.take(known), precision)).to(device)
    number = np.full(pairs.labels.shape[1], -1, np.int64)
    number[known] = np.arange(len(known))
    near = network.heads.near
    documents = torch.from_numpy(vectors_of(network, tokens, precision))
    step = max(1, SCORES_AT_ONCE // len(known))
    for first in range(0, len(documents), step):
        scores = documents[first : first + step].to(device) @ labels.T
        rows = np.arange(first, first + len(scores))
        places, counts = children_of(rows, pairs.labels.indptr)
        own = number[pairs.labels.indices[places]]
        scores[np.repeat(rows - first, counts), torch.from_numpy(own).to(device)] = -torch.inf
        best = scores.topk(min(near.shape[1], len(known)), dim=1)
        columns = torch.from_numpy(known).to(device)[best.indices]
        columns[best.values == -torch.inf] = -1
        near[first : first + len(scores), : columns.shape[1]] = columns.int()


def vectors_of(network: Network, tokens: Tokens, precision: str) -> Float32:
    """A vector of length 1 for each text."""
    vectors = np.zeros((len(tokens), network.encoder.width), np.float32)
    Runner(network, precision=precision).fill(vectors, tokens, unit_vectors)
    return vectors


def towers(encoder: Encoder, documents: int, labels: int) -> Network:
    """The network of both towers, which are one encoder."""
    return Network(encoder, Towers(documents, labels), (-1,))
