"""What each process holds of a label table that several processes divide (heads.sharded).

Trains a few updates of LightXML's one head, its full head and CascadeXML's last level (row by row)
on made-up documents, in 1, 2 and 4 processes, and prints the most that any process has: bytes of
the table with its optimiser state, CPU seconds per update, and on a GPU the memory of all tensors.
The loss is the mean over all documents and updates, so it should not depend on the processes:

    python -m benchmarks.networks.divided_tables --labels 100000 --width 256
    python -m benchmarks.networks.divided_tables --labels 1000000 --width 384 --device cuda

With ``--device cuda`` all processes use the same GPU. NCCL refuses that, so they talk through gloo:
this shows memory and losses, and its seconds say nothing about several GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

from benchmarks.common import ROOT

KINDS = ("one head", "full head", "cascade")
UPDATES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--documents", type=int, default=32, help="per update, of all processes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    sizes = [str(options.labels), str(options.width), str(options.documents)]
    print(f"{options.labels:,} labels x {options.width}, {options.device}")
    print("| head | processes | table + optimiser, each | GPU MB, each | CPU s per update | loss |")
    print("|---|---|---|---|---|---|")
    for count in (1, 2, 4):
        results = together(count, options.device, *sizes)
        for kind in KINDS:
            table, held, seconds = (max(r[kind][i] for r in results) for i in range(3))
            loss = sum(r[kind][3] for r in results) / count
            print(
                f"| {kind} | {count} | {table / 1e6:.1f} MB | {held / 1e6:.0f} | {seconds:.2f} "
                f"| {loss:.6f} |",
                flush=True,
            )


def together(count: int, device: str, *arguments: str) -> list[dict[str, list[float]]]:
    """What each of so many processes measures."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1"}
    shared |= {"MASTER_PORT": port, "WORLD_SIZE": str(count)}
    # The local rank is the number of the GPU.
    places = ["0" if device == "cuda" else str(rank) for rank in range(count)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.networks.divided_tables", *arguments],
            cwd=ROOT,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": places[rank], "DIVIDED": device},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def measure(kind: str, labels: int, width: int, documents: int) -> list[float]:
    """Bytes of the table with its optimiser, of the GPU, CPU seconds per update, the mean loss."""

    import numpy as np
    import torch
    from torch import nn

    from labelgrove.labels.tree import LabelTree
    from labelgrove.methods.cascadexml.net import CascadeNet
    from labelgrove.methods.cascadexml.params import CascadeParams
    from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams
    from labelgrove.nn.heads.ragged import RaggedLabels
    from labelgrove.nn.training.devices import Workers
    from labelgrove.nn.training.params import LoopParams
    from labelgrove.nn.training.shares import Share
    from labelgrove.nn.training.updates import Updates

    class Model(nn.Module):
        def __init__(self, heads: Any, layers: int) -> None:
            super().__init__()
            self.encoder, self.heads, self.layers = nn.Linear(width, width), heads, layers

        def forward(self, batch: Any) -> Any:
            return self.heads.loss([self.encoder(batch[0])] * self.layers, batch[1])[0]

    torch.set_num_threads(1)
    torch.manual_seed(0)
    device = torch.device(os.environ["DIVIDED"])
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if os.environ["WORLD_SIZE"] != "1" and not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo")
    workers = Workers.start(device)
    if kind == "cascade":
        groups = max(1, labels // 16)
        parents = (np.arange(labels, dtype=np.int64) * groups // labels).astype(np.int32)
        tree = LabelTree([np.zeros(groups, np.int32), parents], np.arange(labels, dtype=np.int32))
        settings = CascadeParams(layers=[[0, 1], 1], dropout=0.0, kept=64, row_table_from=0)
        model = Model(CascadeNet(width, tree, settings), 3)
        table: Any = model.heads.tables[-1]
    else:
        full = kind == "full head"
        model = Model(
            LightXmlNet(width, labels, None, LightXmlParams(layers=1, full=full, dropout=0.0)), 1
        )
        table = model.heads.full
    if workers.count > 1:
        model.heads.divide(workers.rank, workers.count, workers.device)
    model.to(workers.device)
    params = LoopParams(precision="fp32")
    updates = Updates(
        model, lambda m, batch: m(batch), params, total=UPDATES, workers=workers, seed=0
    )
    generator = np.random.default_rng(0)
    own = slice(workers.rank, None, workers.count)
    started = time.process_time()
    for step in range(UPDATES):
        rows = [sorted(set(row)) for row in generator.integers(0, labels, (documents, 3)).tolist()]
        states = torch.from_numpy(generator.standard_normal((documents, width), np.float32))
        batch = states[own].to(workers.device), RaggedLabels.from_rows(rows[own]).to(workers.device)
        updates.make(step, Share([1.0], workers.count, 0), iter([batch]))
    loss = updates.loss_sum.item() / UPDATES
    seconds = (time.process_time() - started) / UPDATES
    states = (
        []
        if updates.optimizer is None
        else [updates.optimizer.state[parameter] for parameter in table.parameters()]
    )
    tensors = [*table.state_dict().values(), *updates.rows.state().values()]
    tensors += updates.tensors()["full"].values()
    tensors += [t for state in states for name, t in state.items() if name != "step"]
    held = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return [sum(t.numel() * t.itemsize for t in tensors), held, seconds, loss]


if __name__ == "__main__":
    if os.environ.get("DIVIDED"):
        labels, *rest = map(int, sys.argv[1:])
        for kind in KINDS:
            measure(kind, 64, *rest)  # brings in what torch loads late
        print(json.dumps({kind: measure(kind, labels, *rest) for kind in KINDS}))
    else:
        main()
