"""The service under load on one machine: requests per second, p50, p99 for 1, 8 and 64 clients.

    python -m benchmarks.serving.serving [--neural] [--model FOLDER] [--seconds 3] [--workers 1]

``labelgrove serve`` runs in its own processes; the clients are one process here and share the
machine's cores with it. Each client sends one text, waits for its labels, and sends the next. Then
an overload: a service with a short queue, and clients that send ten texts at a time; any answer but
labels or 429 is an error. ``--neural`` adds LightXML with all-MiniLM-L6-v2, trained for one step,
because its speed does not depend on training.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="model folder; default: a made-up shop")
    parser.add_argument("--labels", type=int, default=4000)
    parser.add_argument("--neural", action="store_true", help="also LightXML (extra: torch)")
    parser.add_argument("--clients", type=int, action="append", help="can be repeated")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="settings of labelgrove serve")
    parser.add_argument("--note", default="", help="such as other work on the machine")
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()

    from labelgrove.data.shop import shop_corpus

    corpus = shop_corpus(5000, labels=options.labels, seed=0)
    texts = list(corpus.texts or [])[:1000]
    with tempfile.TemporaryDirectory() as temporary:
        models = {"given": options.model}
        if options.model is None:
            models = {"linear": train("linear", corpus, Path(temporary))}
        if options.neural:
            models["lightxml, all-MiniLM-L6-v2"] = train("lightxml", corpus, Path(temporary))
        for name, folder in models.items():
            result = {
                "model": name,
                "labels": len(corpus.index) if options.model is None else None,
                "workers": options.workers,
                "settings": options.set,
                "seconds": options.seconds,
                "note": options.note,
                "load_average": [round(load, 1) for load in os.getloadavg()],
                "clients": {},
            }
            with serving(folder, options.workers, options.set) as address:
                load(address, texts, clients=2, seconds=0.5)  # not counted
                for clients in options.clients or [1, 8, 64]:
                    measured = load(address, texts, clients=clients, seconds=options.seconds)
                    result["clients"][str(clients)] = measured
            few = [*options.set, "max_waiting=64", "max_texts=64"]
            with serving(folder, options.workers, few) as address:
                result["overload"] = load(
                    address, texts, clients=128, seconds=options.seconds, per_request=10
                )
            report("serving", result, save=not options.no_save)
            wrong = set(result["overload"]["statuses"]) - {"200", "429"}
            if wrong:
                raise SystemExit(f"overload was answered with {sorted(wrong)}")


def train(method: str, corpus: Any, folder: Path) -> Path:
    from labelgrove.methods import create

    settings: dict[str, Any] = {}
    if method != "linear":
        settings = {
            "encoder": {"encoder": "all-MiniLM-L6-v2", "max_tokens": 128},
            "training": {"max_steps": 1, "batch_size": 2, "checkpoint_minutes": None},
            "held_out": 0.0,
            "device": "cpu",
        }
    create(method, settings).fit(corpus).save(folder / method)
    return folder / method


@contextmanager
def serving(model: Path, workers: int, settings: list[str]) -> Iterator[tuple[str, int]]:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [sys.executable, "-m", "labelgrove", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--workers", str(workers), *flags], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        seen = ""
        while (found := re.search(r"serving at http://(\S+):(\d+)", seen)) is None:
            line = process.stderr.readline()
            if not line:
                raise SystemExit(f"the service did not start:\n{seen}")
            seen += line
        address = found[1], int(found[2])
        asyncio.run(until_ready(address))
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


async def until_ready(address: tuple[str, int]) -> None:
    for _ in range(600):
        try:
            client = await Client.connect(address)
            if await client.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("the service did not become ready")


def load(
    address: tuple[str, int],
    texts: list[str],
    *,
    clients: int,
    seconds: float,
    per_request: int = 1,
) -> dict[str, Any]:
    """Requests and latencies of this many clients in this many seconds."""
    bodies = [
        json.dumps({"texts": texts[start : start + per_request], "k": 5}).encode()
        for start in range(0, len(texts) - per_request + 1, per_request)
    ]
    requests = [
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        for body in bodies
    ]
    times: list[float] = []
    statuses: collections.Counter[str] = collections.Counter()

    async def one(number: int, end: float) -> None:
        client = await Client.connect(address)
        for request in cycle(requests[number % len(requests) :] + requests):
            start = time.perf_counter()
            if start >= end:
                break
            status = await client.ask(request)
            statuses[str(status)] += 1
            if status == 200:
                times.append(time.perf_counter() - start)
            else:
                await asyncio.sleep(0.01)  # a client that never pauses would measure only itself
        client.close()

    async def everyone() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(one(number, start + seconds) for number in range(clients)))
        return time.perf_counter() - start

    took = asyncio.run(everyone())
    p50, p99 = np.quantile(times, [0.5, 0.99]) if times else (np.nan, np.nan)
    return {
        "requests_per_second": round(len(times) / took, 1),
        "texts_per_second": round(per_request * len(times) / took, 1),
        "p50_ms": round(1000 * p50, 2),
        "p99_ms": round(1000 * p99, 2),
        "statuses": dict(statuses),
    }


class Client:
    """A connection that stays open, with as little work per request as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, address: tuple[str, int]) -> Client:
        return cls(*await asyncio.open_connection(*address))

    async def ask(self, request: bytes) -> int:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None
        await self.reader.readexactly(int(length[1]))
        return int(head[9:12])

    def close(self) -> None:
        self.writer.close()


if __name__ == "__main__":
    main()
