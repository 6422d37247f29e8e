"""Latency of a neural model on a CPU: milliseconds from one text to its labels.

    python -m benchmarks.networks.latency_neural [--encoder NAME ...] [--threads 1 --threads 2]

Each text fills ``--max-tokens`` and is a call of ``model.predict([text], k=5)``, with tokenising,
network and sorting. The labels are those of a made-up shop. The network is trained for only one
step, because its speed does not depend on training. The linear method reads the same texts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", action="append", help="can be repeated")
    parser.add_argument("--method", default="lightxml", help="lightxml or cascadexml")
    parser.add_argument("--labels", type=int, default=4000)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--threads", type=int, action="append", help="can be repeated")
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()
    import torch

    from labelgrove.data.shop import shop_corpus
    from labelgrove.methods import create

    corpus = shop_corpus(2000, labels=options.labels, seed=0)
    texts = list(corpus.texts or [])
    # A description has at least 20 tokens; this many in a row fill the encoder's window.
    run = -(-options.max_tokens // 20)
    asked = [" ".join(texts[start : start + run]) for start in range(options.calls)]
    linear = create("linear").fit(corpus)
    result: dict[str, Any] = {
        "method": options.method,
        "labels": len(corpus.index),
        "max_tokens": options.max_tokens,
        "calls": options.calls,
        "torch": torch.__version__,
        "linear_ms": quantiles(linear, asked, threads=1),
        "ms": {},
    }
    for name in options.encoder or ["all-MiniLM-L6-v2"]:
        settings = {
            "encoder": {"encoder": name, "max_tokens": options.max_tokens},
            "training": {"max_steps": 1, "batch_size": 2, "checkpoint_minutes": None},
            "held_out": 0.0,
            "rerank": {"enabled": False},
            "device": "cpu",
        }
        model = create(options.method, settings).fit(corpus)
        for threads in options.threads or [1, 2]:
            torch.set_num_threads(threads)
            row = f"{Path(name).name}, threads {threads}"
            result["ms"][row] = quantiles(model, asked, threads=threads)
    report("latency_neural", result, save=not options.no_save)


def quantiles(model: Any, texts: list[str], *, threads: int) -> dict[str, float]:
    """Milliseconds per call, after a few warm-up calls: p50 and p99 of wall time.

    ``cpu_p50``, of CPU time, shows whether other work on the machine interfered.
    """
    first = texts[:10]
    wall, cpu = [], []
    for text in [*first, *texts]:
        start, start_cpu = time.perf_counter(), time.process_time()
        model.predict([text], k=5, threads=threads)
        wall.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (time.process_time() - start_cpu))
    p50, p99 = np.quantile(wall[len(first) :], [0.5, 0.99])
    cpu_p50 = np.median(cpu[len(first) :])
    return {"p50": round(p50, 2), "p99": round(p99, 2), "cpu_p50": round(cpu_p50, 2)}


if __name__ == "__main__":
    main()
