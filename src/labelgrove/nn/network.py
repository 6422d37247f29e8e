"""An encoder with heads: what the neural methods train and predict with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import CSR, Array, Float32, Int32, Int64, offsets
from labelgrove.core.part import Part
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import children_of
from labelgrove.nn.batches import Batch, Batches, Movable, PackedBatch, PackedBatches, prefetched
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.heads.candidates import RaggedLabels
from labelgrove.nn.training.checkpoint import fill, from_part, to_part
from labelgrove.nn.training.devices import autocast, choose_precision, device_of

# Tokens of a batch without gradients: enough to keep any device busy.
PREDICTION_TOKENS = {"cuda": 1 << 16, "cpu": 1 << 11}
PACKED_DOCUMENTS = 512  # of a batch without gradients
SMALLEST_SPREAD = 0.02  # of a feature of states; a smaller one is lost in half precision
SAMPLE = 512  # documents used to standardise states


class Network(nn.Module):
    """Heads that read (state - ``mean``) * ``scale`` of the pooled states of some layers."""

    def __init__(self, encoder: Encoder, heads: nn.Module, layers: Sequence[int]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads: Any = heads
        self.layers = tuple(layers)
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.zeros(len(self.layers), encoder.width))
        self.register_buffer("scale", torch.ones(len(self.layers), encoder.width))

    def states(self, batch: Batch | PackedBatch) -> list[Tensor]:
        """One vector per document and layer."""
        pooled: list[Tensor]
        if isinstance(batch, PackedBatch):
            pooled = self.encoder.packed(batch, self.layers)
        else:
            pooled = self.encoder(batch.ids, batch.attention, self.layers)
        return [
            (state - mean) * scale
            for state, mean, scale in zip(pooled, self.mean, self.scale, strict=True)
        ]

    @torch.no_grad()
    def standardise(self, states: Sequence[Tensor]) -> None:
        """From now on gives each feature of such states the mean 0 and the standard deviation 1.

        What all texts share is many times larger in pretrained states than their differences.
        """
        for number, values in enumerate(states):
            spread = values.float().std(0)
            # What hardly varies is mostly rounding error and must not be amplified.
            least = max(SMALLEST_SPREAD, float(spread.square().mean().sqrt()) / 10)
            self.mean[number] = values.float().mean(0)
            self.scale[number] = 1 / spread.clamp(min=least)

    def forward(self, batch: LabelledBatch) -> Tensor:
        """The mean loss of a batch."""
        loss: Tensor = self.heads.loss(self.states(batch.batch), batch.labels)[0]
        return loss


@dataclass(frozen=True)
class LabelledBatch(Movable):
    """A batch with the labels of its documents."""

    batch: Batch | PackedBatch
    labels: RaggedLabels

    @property
    def rows(self) -> Int64:
        return self.batch.rows

    @property
    def tokens(self) -> int:
        return self.batch.tokens

    def __len__(self) -> int:
        return len(self.batch)


class LabelledBatches:
    """Batches with the labels of their documents."""

    def __init__(self, batches: Batches | PackedBatches, labels: CSR) -> None:
        self.batches = batches
        self.labels = labels

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[LabelledBatch]:
        """Like :meth:`Batches.epoch`."""
        for batch in self.batches.epoch(number, start=start):
            yield LabelledBatch(batch, labels_of(self.labels, batch.rows))


def labels_of(labels: CSR, rows: Int64) -> RaggedLabels:
    """The label columns of some documents."""
    places, counts = children_of(rows, labels.indptr)
    return RaggedLabels.from_arrays(offsets(counts), labels.indices[places])


class Runner:
    """Sends any number of documents through a network in evaluation mode."""

    def __init__(
        self,
        network: Network,
        *,
        precision: str,
        batch_tokens: int | None = None,
        packed: bool | None = None,
    ) -> None:
        self.network, self.precision = network, precision
        self.batch_tokens = batch_tokens or PREDICTION_TOKENS.get(self.device.type, 1 << 14)
        quick = network.encoder.packs_quickly(self.device, precision)
        self.packed = quick if packed is None else packed

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.mean.device

    def each(
        self, tokens: Tokens, use: Callable[[Batch | PackedBatch, list[Tensor]], None]
    ) -> None:
        """Calls ``use(batch, states)`` for batches that have every document once.

        What ``use`` computes is in float32: half precision would make scores of labels equal.
        """
        if len(tokens) == 0:
            return
        batches: Iterator[Batch | PackedBatch] = self._batches(tokens).epoch(0)
        was_training = self.network.training
        if was_training:  # a walk through all modules takes long for a single text
            self.network.eval()
        try:
            with torch.inference_mode(), autocast(self.precision, self.device):
                for batch in prefetched(batches, self.device):
                    states = self.network.states(batch)
                    with torch.autocast(self.device.type, enabled=False):
                        use(batch, states)
        finally:
            if was_training:
                self.network.train()

    def fill(
        self,
        rows: Array,
        tokens: Tokens,
        make: Callable[[list[Tensor]], Tensor],
        progress: Progress | None = None,
    ) -> None:
        """Fills a row for each document with what ``make`` makes of the states of a batch."""
        done = 0

        def use(batch: Batch | PackedBatch, states: list[Tensor]) -> None:
            nonlocal done
            rows[batch.rows] = make(states).cpu().numpy()
            done += len(batch.rows)
            if progress is not None:
                progress(done, len(tokens))

        self.each(tokens, use)

    def _batches(self, tokens: Tokens) -> Batches | PackedBatches:
        encoder = self.network.encoder
        most = max(self.batch_tokens, tokens.longest)
        if self.packed:
            return PackedBatches(tokens, PACKED_DOCUMENTS, pad_id=encoder.pad_id, max_tokens=most)
        return Batches(
            tokens,
            None,
            pad_id=encoder.pad_id,
            pad_left=encoder.pad_left,
            shuffle=False,
            max_tokens=most,
        )

    def standardise(self, tokens: Tokens) -> None:
        """Makes the network standardise its states by a sample of these documents."""
        count = min(len(tokens), SAMPLE)
        if count < 2:
            return
        rows = np.arange(count) * len(tokens) // count
        sample: list[list[Tensor]] = []
        self.each(tokens.take(rows), lambda _, states: sample.append(states))
        self.network.standardise([torch.cat(layer) for layer in zip(*sample, strict=True)])

    def read(
        self,
        tokens: Tokens,
        k: int,
        *,
        vectors: bool = False,
        mask: LabelMask | None = None,
        more: Int32 | None = None,
    ) -> tuple[Int32, Float32, Float32]:
        """Columns and scores (documents x k), best first; equal scores are in order of columns.

        Where labels are missing, the column is -1 and the score -inf. ``vectors`` adds what the
        output layer reads of each document, ``more`` label columns of each document (-1: none) to
        score as well, which follow in their own order and may repeat the best.
        """
        k = k if mask is None else min(k, len(mask))
        within = {} if mask is None else {"allowed": self.network.heads.allowing(mask.allowed)}
        width = k if more is None else k + more.shape[1]
        columns = np.full((len(tokens), width), -1, np.int32)
        scores = np.full((len(tokens), width), -np.inf, np.float32)
        read = np.zeros((len(tokens), self.network.heads.text_width if vectors else 0), np.float32)

        def use(batch: Batch | PackedBatch, states: list[Tensor]) -> None:
            top = self.network.heads.predict(states, k, enough=True, **within)
            count = top.columns.shape[1]
            columns[batch.rows, :count] = top.columns.cpu().numpy()
            scores[batch.rows, :count] = top.scores.float().cpu().numpy()
            if more is not None:
                others = torch.from_numpy(more[batch.rows].astype(np.int64)).to(states[0].device)
                columns[batch.rows, k:] = more[batch.rows]
                scores[batch.rows, k:] = self.network.heads.scores(states, others).cpu().numpy()
            if vectors:
                read[batch.rows] = self.network.heads.text(states).float().cpu().numpy()

        self.each(tokens, use)
        scores[columns < 0] = -np.inf
        best, own = columns[:, :k], scores[:, :k]
        # Lists of the heads are in order, unless scores are equal.
        rows = np.flatnonzero((own[:, 1:] >= own[:, :-1]).any(axis=1))
        order = np.lexsort((best[rows], -own[rows]), axis=1)
        for values in (best, own):
            values[rows] = np.take_along_axis(values[rows], order, 1)
        return columns, scores, read

    def shortlist_recall(self, tokens: Tokens, labels: CSR) -> list[float]:
        """Per level, the share of the true labels that its shortlist keeps."""
        counts: list[Tensor] = []

        def use(batch: Batch | PackedBatch, states: list[Tensor]) -> None:
            true = labels_of(labels, batch.rows).to(self.device)
            counts.append(self.network.heads.shortlist_recall(states, true))

        self.each(tokens, use)
        if not counts:
            return []
        return [hits / max(total, 1) for hits, total in torch.stack(counts).sum(0).tolist()]


def embed(
    encoder: Encoder, tokens: Tokens, *, precision: str = "auto", progress: Progress | None = None
) -> Float32:
    """One vector of length 1 per document, in document order, computed where the encoder is."""
    device = device_of(encoder)
    network = Network(encoder, nn.Identity(), (-1,)).to(device).train(encoder.training)
    vectors = np.zeros((len(tokens), encoder.width), np.float32)
    runner = Runner(network, precision=choose_precision(precision, device, reads=True))
    runner.fill(vectors, tokens, unit_vectors, progress)
    return vectors


def unit_vectors(states: Sequence[Tensor]) -> Tensor:
    """The last states of a batch, of length 1."""
    return functional.normalize(states[-1].float())


class MakeHeads(Protocol):
    """Heads for an encoder, and the layers that they read; a dataclass, so that it has a hash."""

    def __call__(
        self, encoder: Encoder, device: torch.device | None = None
    ) -> tuple[nn.Module, Sequence[int]]: ...


def network_part(network: Network, history: Mapping[str, object], report: object = None) -> Part:
    """A trained network as one part."""
    encoder = network.encoder.state()
    heads = to_part({}, {"heads": network.heads.state_dict()}).arrays
    read = {f"states/{name}": getattr(network, name).cpu().numpy() for name in ("mean", "scale")}
    config = {"encoder": encoder.config, "story": dict(history), "report": report}
    return Part(config, encoder.arrays | heads | read)


def network_from_part(part: Part, make_heads: MakeHeads) -> Network:
    """The inverse of :func:`network_part`; ``make_heads`` returns heads and their layers."""
    encoder = Encoder.from_state(Part(part.config["encoder"], part.arrays))
    heads, layers = make_heads(encoder)
    fill(heads.state_dict(), from_part(part, "heads"), "the stored network")
    network = Network(encoder, heads, layers)
    for name in ("mean", "scale"):
        getattr(network, name).copy_(torch.from_numpy(np.array(part.arrays[f"states/{name}"])))
    return network.eval()
