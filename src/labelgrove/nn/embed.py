"""Embeddings: the pooled vectors of many documents, for rankers and label trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import Float32
from labelgrove.nn.batches.padded import Batch, Batches, prefetched
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import autocast, choose_precision, device_of

BATCH_TOKENS = 16_384  # at most, padding included


def embed(
    encoder: Encoder,
    tokens: Tokens,
    *,
    precision: str = "auto",
    progress: Progress | None = None,
) -> Float32:
    """One vector of length 1 per document, in document order."""
    out = np.empty((len(tokens), encoder.width), np.float32)
    if not len(tokens):
        return out
    batches = Batches(
        tokens,
        None,
        max_tokens=max(BATCH_TOKENS, tokens.longest),
        shuffle=False,
        pad_id=encoder.pad_id,
        pad_left=encoder.pad_left,
    )
    was_training, device, done = encoder.training, device_of(encoder), 0
    encoder.eval()
    try:
        with torch.inference_mode(), autocast(choose_precision(precision, device), device):
            for batch, vectors in _vectors(encoder, prefetched(batches.epoch(0), device)):
                out[batch.rows] = vectors.numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, len(tokens))
    finally:
        encoder.train(was_training)
    return out


def _vectors(encoder: Encoder, batches: Iterable[Batch]) -> Iterator[tuple[Batch, Tensor]]:
    """Batches with their vectors, each once the next is being computed: the GPU never waits."""
    before: tuple[Batch, Tensor, torch.cuda.Event | None] | None = None
    for batch in chain(batches, [None]):
        current = None
        if batch is not None:
            vectors = torch.nn.functional.normalize(encoder(batch.ids, batch.attention)[0])
            copy = vectors.to("cpu", non_blocking=True)
            event = torch.cuda.current_stream().record_event() if vectors.is_cuda else None
            current = batch, copy, event
        if before is not None:
            if before[2] is not None:
                before[2].synchronize()
            yield before[:2]
        before = current
