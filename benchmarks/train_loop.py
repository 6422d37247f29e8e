"""The training loop compared with the encoder's passes alone, and row-sparse updates.

Run it on a GPU: ``python benchmarks/train_loop.py``. Weights and tokens are random: only speed is
measured. Prints one JSON object per measurement.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelgrove.core.callbacks import Event, Reporter
from labelgrove.nn.heads.rows import RowOptimizer, RowTable
from labelgrove.nn.training.devices import choose_device
from labelgrove.nn.training.loop import LoopParams, train
from labelgrove.nn.training.updates import Updates

SIZES = {"minilm": (384, 6, 12, 1536), "bert-base": (768, 12, 12, 3072), "tiny": (32, 1, 2, 64)}


@dataclass
class Batch:
    rows: np.ndarray[Any, Any]
    tokens: int
    ids: Tensor
    labels: Tensor

    def to(self, device: Any) -> Batch:
        ids, labels = (t.to(device, non_blocking=True) for t in (self.ids, self.labels))
        return replace(self, ids=ids, labels=labels)


class Batches:
    """Random tokens without padding, and the distinct labels in a batch's shortlists."""

    def __init__(self, number: int, size: int, length: int, labels: int, shortlist: int) -> None:
        generator = torch.Generator().manual_seed(0)
        pinned = torch.cuda.is_available()
        self.batches = []
        for _ in range(number):
            ids = torch.randint(5, 30_000, (size, length), generator=generator)
            chosen = torch.randperm(labels, generator=generator)[:shortlist].sort().values
            if pinned:
                ids, chosen = ids.pin_memory(), chosen.pin_memory()
            self.batches.append(Batch(np.arange(size), size * length, ids, chosen))

    def __len__(self) -> int:
        return len(self.batches)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        return iter(self.batches[start:])


class Model(nn.Module):
    def __init__(self, size: str, labels: int) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        width, depth, heads, inner = SIZES[size]
        config = BertConfig(
            hidden_size=width,
            num_hidden_layers=depth,
            num_attention_heads=heads,
            intermediate_size=inner,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.table = RowTable(labels, width, bias=True) if labels else None

    def states(self, batch: Batch) -> Tensor:
        state: Tensor = self.encoder(input_ids=batch.ids).last_hidden_state[:, 0]
        return state

    def loss(self, batch: Batch) -> Tensor:
        states = self.states(batch)
        if self.table is None:
            return states.float().square().mean()
        logits = states @ self.table.rows(batch.labels).T + self.table.biases(batch.labels)
        target = torch.zeros_like(logits)
        target[:, ::97] = 1.0
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), target.float())


def bare_tokens_per_second(model: Model, batches: Batches, device: torch.device) -> float:
    model.to(device).train()
    ready = [batch.to(device) for batch in batches.batches]

    def passes() -> None:
        for batch in ready:
            with torch.autocast(device.type, torch.bfloat16):
                loss = model.states(batch).float().square().mean()
            loss.backward()
            model.zero_grad(set_to_none=True)

    passes()
    seconds = statistics.median(_seconds(passes, device) for _ in range(3))
    return sum(batch.tokens for batch in ready) / seconds


def loop_tokens_per_second(
    model: Model, batches: Batches, device: torch.device, **settings: Any
) -> float:
    """The median of the loop's own log lines after the first."""
    speeds: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "metrics" and "tokens_per_second" in event.values:
            speeds.append(event.values["tokens_per_second"])

    params = LoopParams(
        **{"epochs": 5, "lr": 1e-5, "precision": "bf16", "log_every": len(batches)} | settings
    )
    train(model, batches, Model.loss, params, reporter=Reporter([listen]), device=device)
    return statistics.median(speeds[1:])


def row_step_ms(rows: int, width: int, touched: int, device: torch.device, **options: Any) -> float:
    table = RowTable(rows, width, std=0).to(device)
    optimizer = RowOptimizer({"labels": table}, **options)
    generator = torch.Generator().manual_seed(0)
    several = [
        torch.randint(0, rows, (touched,), generator=generator).unique().to(device)
        for _ in range(10)
    ]

    def steps() -> None:
        for ids in several:
            table.rows(ids).backward(torch.ones(len(ids), width, device=device))
            optimizer.collect()
            optimizer.step(lr=1e-3, weight_decay=0.01)

    steps()
    return 1000 * statistics.median(_seconds(steps, device) for _ in range(5)) / len(several)


def dense_step_ms(rows: int, width: int, touched: int, device: torch.device) -> float:
    weight = nn.Parameter(torch.zeros(rows, width, device=device))
    optimizer = torch.optim.AdamW([weight], fused=True)
    ids = torch.arange(touched, device=device) * (rows // touched)

    def step() -> None:
        nn.functional.embedding(ids, weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    return 1000 * statistics.median(_seconds(step, device) for _ in range(5))


def updates_never_wait(size: str, device: torch.device) -> bool:
    """Whether updates between two log lines run without waiting for the GPU."""
    make = Updates.make

    def watched(self: Updates, step: int, *rest: Any) -> None:
        torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
        try:
            make(self, step, *rest)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    Updates.make = watched  # type: ignore[method-assign]
    try:
        batches = Batches(8, 8, 64, 5000, 500)
        train(Model(size, 5000), batches, Model.loss, LoopParams(epochs=1), device=device)
    except RuntimeError as error:
        print(error)
        return False
    finally:
        Updates.make = make  # type: ignore[method-assign]
    return True


def resumed_difference(size: str, device: torch.device) -> float:
    """The largest difference of a weight between a stopped and a whole run."""
    params = LoopParams(epochs=2, checkpoint_minutes=0, precision="bf16", average="ema")
    batches = Batches(8, 8, 64, 5000, 500)

    def stop(event: Event) -> None:
        if event.kind == "progress" and event.done == 5:
            raise KeyboardInterrupt

    def fresh() -> Model:
        torch.manual_seed(0)
        return Model(size, 5000)

    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = fresh(), fresh()
        train(whole, batches, Model.loss, params, device=device)
        try:
            stopping = Reporter([stop], interval=0)
            train(
                fresh(),
                batches,
                Model.loss,
                params,
                device=device,
                folder=folder,
                reporter=stopping,
            )
        except KeyboardInterrupt:
            pass
        train(resumed, batches, Model.loss, params, device=device, folder=Path(folder))
    pairs = zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    return max(float((a.float() - b.float()).abs().max()) for a, b in pairs)


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["minilm", "bert-base"], choices=list(SIZES))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--shortlist", type=int, default=8192)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too")
    args = parser.parse_args()
    device = choose_device()

    def tell(**values: Any) -> None:
        print(json.dumps(values), flush=True)

    tell(torch=torch.__version__, device=str(device))
    if device.type == "cuda":
        tell(updates_never_wait=updates_never_wait("tiny", device))
        tell(resumed_difference=resumed_difference("tiny", device))
    for rows in (30_000, args.labels, 3 * args.labels):
        for options in ({}, {"state_dtype": torch.bfloat16}, {"kind": "adagrad"}):
            ms = row_step_ms(rows, 768, args.shortlist, device, **options)
            tell(rows=rows, **{k: str(v) for k, v in options.items()}, step_ms=round(ms, 3))
    dense = dense_step_ms(args.labels, 768, args.shortlist, device)
    tell(dense_adamw_rows=args.labels, step_ms=round(dense, 3))
    for size in args.sizes:
        batches = Batches(args.batches, args.batch, args.length, args.labels, args.shortlist)
        bare = bare_tokens_per_second(Model(size, 0), batches, device)
        tell(size=size, bare_tokens_per_second=round(bare))
        cases: list[tuple[int, dict[str, Any]]] = [
            (0, {}),
            (args.labels, {}),
            (args.labels, {"table_optimizer": "adagrad"}),
            (args.labels, {"accumulate": 2}),
            (args.labels, {"average": "ema", "average_tables": False, "swa_start": 0}),
            (args.labels, {"precision": "fp16"}),
        ]
        if args.compile:
            cases.append((args.labels, {"compile": True}))
        for labels, settings in cases:
            speed = loop_tokens_per_second(Model(size, labels), batches, device, **settings)
            tell(
                size=size,
                labels=labels,
                **settings,
                tokens_per_second=round(speed),
                of_bare=round(speed / bare, 3),
            )


if __name__ == "__main__":
    main()
