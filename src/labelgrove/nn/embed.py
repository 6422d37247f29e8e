"""Embeddings: the pooled vectors of many documents, for rankers and label trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.errors import ConfigError, DataError
from labelgrove.nn.batches.padded import Batch, Batches, prefetched
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Progress, Tokens
from labelgrove.nn.training.devices import autocast

Precision = Literal["auto", "float32", "bfloat16", "float16"]
_SHORT_NAMES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def embed(
    encoder: Encoder,
    tokens: Tokens,
    *,
    layers: Sequence[int] = (-1,),
    batch_tokens: int = 16_384,
    device: str | torch.device | None = None,
    normalise: bool = True,
    dtype: npt.DTypeLike = np.float32,
    precision: Precision = "auto",
    out: npt.NDArray[Any] | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[Any]:
    """One vector per document, in document order; the states of several layers are concatenated.

    A batch has at most ``batch_tokens`` tokens, padding included. The encoder computes in
    ``precision``; auto is bfloat16 on GPUs that have it, else float32. ``normalise`` scales vectors
    to length 1. ``out`` receives the vectors, for example a memory-mapped array. The encoder moves
    to ``device`` if one is given; its training mode is restored.
    """
    shape = (len(tokens), encoder.width * len(layers))
    if out is None:
        out = np.empty(shape, dtype=dtype)
    elif out.shape != shape:
        raise DataError(f"out has shape {out.shape}; the vectors need {shape}")
    if not len(tokens):
        return out
    place = next(encoder.parameters()).device if device is None else torch.device(device)
    batches = Batches(
        tokens,
        None,
        max_tokens=max(batch_tokens, tokens.longest),
        shuffle=False,
        pad_id=encoder.pad_id,
        pad_left=encoder.pad_left,
    )
    was_training = encoder.training
    encoder.eval().to(place)
    done = 0
    try:
        with torch.inference_mode(), _autocast(place, precision):
            ready = prefetched(batches.epoch(0), place)
            for batch, vectors in _vectors(encoder, ready, layers, normalise):
                out[batch.rows] = vectors.numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, len(tokens))
    finally:
        encoder.train(was_training)
    return out


def _vectors(
    encoder: Encoder, batches: Iterable[Batch], layers: Sequence[int], normalise: bool
) -> Iterator[tuple[Batch, Tensor]]:
    """Batches with their vectors, each once the next is being computed: the GPU never waits."""
    before: tuple[Batch, Tensor, Any] | None = None
    for batch in chain(batches, [None]):
        current = None
        if batch is not None:
            vectors = torch.cat(encoder(batch.ids, batch.attention, layers), dim=1)
            if normalise:
                vectors = torch.nn.functional.normalize(vectors)
            copy = vectors.to("cpu", non_blocking=True)
            event = torch.cuda.current_stream().record_event() if vectors.is_cuda else None
            current = batch, copy, event
        if before is not None:
            if before[2] is not None:
                before[2].synchronize()
            yield before[:2]
        before = current


def _autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    if precision == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if fast else "float32"
    if precision not in _SHORT_NAMES:
        raise ConfigError(
            f"precision: must be auto, float32, bfloat16 or float16, got {precision!r}"
        )
    return autocast(_SHORT_NAMES[precision], device)
