"""Tokens per second that an encoder trains on and reads on this device, from a few updates."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from labelgrove.nn.batches.packing import PackedBatch
from labelgrove.nn.batches.padded import Batches
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import autocast, choose_precision
from labelgrove.nn.training.loop import train
from labelgrove.nn.training.params import LoopParams

UPDATES = 3  # timed updates; one more comes first
LONG = 2.0  # seconds


@dataclass(frozen=True)
class EncoderRates:
    """Tokens per second without padding: in training, and without gradients."""

    training: float
    reading: float


class _Probe(nn.Module):
    """An encoder with a plain layer over ``outputs`` labels or clusters."""

    def __init__(self, encoder: Encoder, outputs: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.width, outputs)

    def forward(self, batch: Any) -> Tensor:
        if isinstance(batch, PackedBatch):
            (state,) = self.encoder.packed(batch)
        else:
            (state,) = self.encoder(batch.ids, batch.attention)
        return nn.functional.softplus(self.head(state)).mean()


def encoder_rates(
    encoder: Encoder,
    tokens: Tokens,
    params: LoopParams,
    make_batches: Callable[[Tokens], Any],
    *,
    device: torch.device,
    outputs: int,
) -> EncoderRates:
    """Train ``encoder`` for a few updates with the real loop, then read; this changes the encoder.

    ``tokens`` need only be a few batches; ``outputs`` is the width of the layer on top.
    """
    batches = make_batches(tokens)
    probe = _Probe(encoder, outputs)
    short = replace(params, evaluations_per_epoch=0, checkpoint_minutes=None, average="none")

    def run(updates: int) -> tuple[float, int]:
        start = time.perf_counter()
        limited = replace(short, max_steps=updates)
        result = train(probe, batches, lambda model, batch: model(batch), limited, device=device)
        _wait(device)
        return time.perf_counter() - start, result.tokens

    seconds, seen = run(1)
    if seconds < LONG:  # the first one includes set-up, which hardly matters if it is long
        seconds, seen = run(UPDATES)
    return EncoderRates(seen / seconds, _reading(encoder, tokens, params, device))


def _reading(encoder: Encoder, tokens: Tokens, params: LoopParams, device: torch.device) -> float:
    batches = Batches(
        tokens, params.batch_size, pad_id=encoder.pad_id, pad_left=encoder.pad_left, shuffle=False
    )
    precision = choose_precision(params.precision, device)
    seen, start = 0, 0.0
    with torch.inference_mode(), autocast(precision, device):
        for number, batch in enumerate(islice(batches.epoch(0), UPDATES)):
            here = batch.to(device)
            encoder(here.ids, here.attention)
            if number == 0 and len(batches) > 1:
                _wait(device)
                start = time.perf_counter()
                continue
            start = start or time.perf_counter()
            seen += batch.tokens
    _wait(device)
    return seen / max(time.perf_counter() - start, 1e-6)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
