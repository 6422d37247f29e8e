"""How fast an encoder trains on this device: a few updates, recorded and not compiled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from labelgrove.experiments.planning import constants
from labelgrove.methods.cost_estimate import EncoderWork
from labelgrove.methods.neural import make_batches
from labelgrove.nn.batches.packing import PackedBatch
from labelgrove.nn.encoders.encoder import load_encoder
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.training.devices import autocast, choose_device, choose_precision, own_settings


class EncoderCosts(NamedTuple):
    """Seconds per text of tokenising, per token of the passes, and per update of the optimiser."""

    text: float
    token: float
    update: float
    tokens: float  # per text
    cut: float  # share of texts that are too long
    device: str


def encoder_costs(work: EncoderWork, texts: Sequence[Any], labels: int) -> EncoderCosts:
    """Times a few updates of the encoder with a plain layer for its heads."""
    params, device = work.training, choose_device()
    encoder = load_encoder(work.encoder)
    count = min(len(texts), constants.UPDATES * max(64, params.batch_size))
    rows = np.random.default_rng(0).permutation(len(texts))[:count]
    sample, start = [texts[row] for row in rows], time.perf_counter()
    tokens = tokenize(sample, encoder, encoder.max_tokens)
    per_text, mean = (time.perf_counter() - start) / count, float(tokens.lengths.mean())
    if device.type == "cpu":
        weights = sum(weight.numel() for weight in encoder.parameters())
        size = min(params.batch_size, max(1, int(constants.TIMED_ON_CPU / weights / mean)))
        params = replace(params, batch_size=size)
    outputs = labels if labels <= constants.WIDEST_HEAD else constants.SHORTLIST
    head = nn.Linear(encoder.width, outputs).to(device)
    encoder.record(params.graphs and device.type == "cuda")
    parameters = [*encoder.to(device).train().parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-6)
    spent: list[tuple[float, float]] = []
    batches: Any = make_batches(tokens, encoder, params, seed=0)
    with own_settings(device, tf32=params.tf32):
        for batch in islice(batches.epoch(0), constants.UPDATES):
            optimizer.zero_grad()
            start, here = _now(), batch.to(device)
            with autocast(choose_precision(params.precision, device), device):
                packed = isinstance(here, PackedBatch)
                (state,) = encoder.packed(here) if packed else encoder(here.ids, here.attention)
                loss = nn.functional.softplus(head(state)).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            middle = _now()
            optimizer.step()
            end = _now()
            spent.append(((middle - start) / batch.tokens, end - middle))
            if len(spent) > 1 and end - start > constants.LONG_UPDATE:
                break
    counted = spent[1:] or spent  # the first one also sets things up
    token, update = map(median, zip(*counted, strict=True))
    cut = float((tokens.lengths >= encoder.max_tokens).mean())
    return EncoderCosts(per_text, token, update, mean, cut, device.type)


def _now() -> float:
    """The time when all work so far is done."""
    device = choose_device()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
