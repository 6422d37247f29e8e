"""Embeddings: the pooled vectors of many documents, for rankers and for mining negatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.core.strings import row_numbers
from labelgrove.errors import ConfigError, DataError
from labelgrove.nn.batches.padded import Batch, Batches, prefetched
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Progress, Tokens

Precision = Literal["auto", "float32", "bfloat16", "float16"]


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
    rows: npt.ArrayLike | None = None,
    out: npt.NDArray[Any] | None = None,
    progress: Progress | None = None,
) -> npt.NDArray[Any]:
    """One vector a document, in document order; several layers stand side by side in it.

    ``batch_tokens`` bounds a batch, padding included. ``precision`` is what the encoder computes
    in; auto is bfloat16 on GPUs that have it, else float32. ``normalise`` makes vectors of length
    1. ``out`` receives the vectors, a memory-mapped array for instance. The encoder is where
    ``device`` says, or stays where it is, and its training mode comes back.

    >>> from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
    >>> from labelgrove.nn.encoders.tokens import tokenize
    >>> encoder = load_encoder(EncoderParams(max_tokens=16))
    >>> vectors = embed(encoder, tokenize(["a red shoe", "red shoes", "tax law"], encoder, 16))
    >>> vectors.shape, bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    ((3, 384), True)
    """
    chosen = np.arange(len(tokens)) if rows is None else row_numbers(rows, len(tokens))
    shape = (len(chosen), encoder.width * len(layers))
    if out is None:
        out = np.empty(shape, dtype=dtype)
    elif out.shape != shape:
        raise DataError(f"out has shape {out.shape}; the vectors need {shape}")
    if not len(chosen):
        return out
    line = np.zeros(len(tokens), dtype=np.int64)  # where a document's vector goes
    line[chosen] = np.arange(len(chosen))
    place = _device(encoder, device)
    batches = Batches(
        tokens,
        None,
        rows=chosen,
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
            vectors = _vectors(encoder, prefetched(batches.epoch(0), place), layers, normalise)
            for batch, block in _one_behind(vectors):
                out[line[batch.rows]] = block.numpy()
                done += len(batch)
                if progress is not None:
                    progress(done, len(chosen))
    finally:
        encoder.train(was_training)
    return out


def _vectors(
    encoder: Encoder, batches: Iterator[Batch], layers: Sequence[int], normalise: bool
) -> Iterator[tuple[Batch, Tensor, Any]]:
    for batch in batches:
        vectors = torch.cat(encoder(batch.ids, batch.attention, layers), dim=1)
        if normalise:
            vectors = torch.nn.functional.normalize(vectors)
        block = vectors.to("cpu", non_blocking=True)
        copied = torch.cuda.current_stream().record_event() if vectors.is_cuda else None
        yield batch, block, copied


def _one_behind(vectors: Iterator[tuple[Batch, Tensor, Any]]) -> Iterator[tuple[Batch, Tensor]]:
    """Each result when the next one is already being computed, so that the GPU never waits."""
    waiting: tuple[Batch, Tensor, Any] | None = None
    for ahead in vectors:
        if waiting is not None:
            yield _arrived(*waiting)
        waiting = ahead
    if waiting is not None:
        yield _arrived(*waiting)


def _arrived(batch: Batch, block: Tensor, copied: Any) -> tuple[Batch, Tensor]:
    if copied is not None:
        copied.synchronize()
    return batch, block


def _device(encoder: Encoder, device: str | torch.device | None) -> torch.device:
    return next(encoder.parameters()).device if device is None else torch.device(device)


def _autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    if precision not in ("auto", "float32", "bfloat16", "float16"):
        raise ConfigError(
            f"precision: must be auto, float32, bfloat16 or float16, got {precision!r}"
        )
    if precision == "auto":
        quick = device.type == "cuda" and torch.cuda.is_bf16_supported()
        precision = "bfloat16" if quick else "float32"
    if precision == "float32":
        return nullcontext()
    context: AbstractContextManager[Any] = torch.autocast(
        device.type, dtype=getattr(torch, precision)
    )
    return context
