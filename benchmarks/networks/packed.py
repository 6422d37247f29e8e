"""The forward and backward pass of an encoder alone: of transformers, packed, recorded, compiled.

    python -m benchmarks.networks.packed --encoder FOLDER [--tokens 384] [--batch 64] [--short 0.0]

Token numbers are random; ``--short`` is the share of texts that are shorter than ``--tokens``.
Prints a JSON object per form: milliseconds per batch and real tokens per second, and the ratio to
transformers' own pass over padded batches. Meant for a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from labelgrove.nn.batches import Batches, PackedBatches
from labelgrove.nn.encoders import added_norm
from labelgrove.nn.encoders import encoder as module
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
from labelgrove.nn.encoders.packed_bert import packed_states
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import choose_device, choose_precision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--tokens", type=int, default=384)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--short", type=float, default=0.1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--forms", nargs="+", default=list(FORMS))
    options = parser.parse_args()
    tokens = random_tokens(options)
    base: float | None = None
    for form in options.forms:
        try:
            result = measure(form, tokens, options)
        except Exception as error:
            print(json.dumps({"form": form, "failed": f"{type(error).__name__}: {error}"[:500]}))
            continue
        base = base or result["tokens_per_second"]
        print(json.dumps(result | {"ratio": result["tokens_per_second"] / base}), flush=True)


FORMS: dict[str, dict[str, Any]] = {
    "transformers, padded": {},
    "packed": {"packed": True},
    "packed, recorded, plain norms": {"packed": True, "record": True, "plain": True},
    "packed, recorded": {"packed": True, "record": True},
    "packed, compiled": {"packed": True, "plain": True, "compile": {"mode": "reduce-overhead"}},
}


FITS = added_norm.fits


def random_tokens(options: argparse.Namespace) -> Tokens:
    random = np.random.default_rng(0)
    count = 10 * options.batch
    lengths = np.full(count, options.tokens)
    short = random.random(count) < options.short
    lengths[short] = random.integers(options.tokens // 4, options.tokens, short.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens(random.integers(1000, 30000, offsets[-1]).astype(np.int32), offsets)


def measure(form: str, tokens: Tokens, options: argparse.Namespace) -> dict[str, Any]:
    how, device = FORMS[form], choose_device()
    params = EncoderParams(
        encoder=options.encoder, max_tokens=options.tokens, pooling=options.pooling
    )
    encoder = load_encoder(params).to(device).train()
    encoder.record("record" in how)
    added_norm.fits = (lambda states: False) if how.get("plain") else FITS
    module.packed_states = packed_states
    if "compile" in how:
        module.packed_states = torch.compile(
            packed_states, dynamic=False, fullgraph=True, **how["compile"]
        )
    if not how:
        encoder.model = (
            module.library().AutoModel.from_pretrained(params.folder()).to(device).train()
        )
    kind: Any = PackedBatches if how.get("packed") else Batches
    batches = [b.to(device) for b in kind(tokens, options.batch, pad_id=encoder.pad_id).epoch(0)]
    layers = range(8, encoder.depth + 1) if encoder.depth >= 8 else (-1,)
    half = choose_precision("auto", device)
    cast = torch.bfloat16 if half == "bf16" else torch.float32

    def step(batch: Any) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, cast, enabled=cast != torch.float32):
            if how.get("packed"):
                states = encoder.packed(batch, layers)
            else:
                states = encoder(batch.ids, batch.attention, layers)
        torch.cat(states, 1).square().mean().backward()
        encoder.zero_grad(set_to_none=True)

    started = time.perf_counter()
    for _ in range(3):
        step(batches[0])
    _wait(device)
    warm = time.perf_counter() - started
    seconds = [_timed(step, iter(batches), device) for _ in range(options.repeats)]
    real = sum(batch.tokens for batch in batches)
    return {
        "form": form,
        "ms_per_batch": 1000 * statistics.median(seconds) / len(batches),
        "tokens_per_second": real / statistics.median(seconds),
        "warm_up_s": warm,
        "gpu_gb": torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None,
    }


def _timed(step: Callable[[Any], None], batches: Iterator[Any], device: torch.device) -> float:
    start = time.perf_counter()
    for batch in batches:
        step(batch)
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
