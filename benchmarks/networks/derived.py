"""The neural methods with nothing set but the encoder, beside the linear one, on dev parts.

    python -m benchmarks.networks.derived --data PATH --encoder FOLDER [--corpora tibkat,eurlex57k]
        [--methods linear,cascadexml,lightxml,xrtransformer,auto] [--lanes 2]
        [--limit N] [--seed N] [--logs FOLDER]

Each training is a process of ``neural.py`` of its own and writes its line to
``results/neural.jsonl``, with what was derived. With several lanes, corpora
are trained at the same time and share the GPU: compare accuracy then, not speed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, arguments


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--encoder", required=True, help="folder of the encoder")
    parser.add_argument("--corpora", default="tibkat,eurlex57k", help="separated by commas")
    parser.add_argument("--methods", default="linear,cascadexml,lightxml,xrtransformer,auto")
    parser.add_argument("--lanes", type=int, default=1, help="corpora trained at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=Path, default=Path("runs/derived"))
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.lanes) as lanes:
        failed = sum(lanes.map(lambda corpus: lane(corpus, options), options.corpora.split(",")))
    raise SystemExit(1 if failed else 0)


def lane(corpus: str, options: Any) -> int:
    """Trains all methods on a corpus, one after the other; how many failed."""
    trainings = [(method, ["--method", method]) for method in options.methods.split(",") if method]
    failed = 0
    for name, what in trainings:
        command = [sys.executable, "-m", "benchmarks.networks.neural", *what]
        command += ["--data", str(options.data), "--corpus", corpus, "--seed", str(options.seed)]
        command += ["--encoder", options.encoder, "--note", f"{options.lanes} lanes"]
        command += ["--limit", str(options.limit)] if options.limit else []
        command += ["--no-save"] if options.no_save else []
        log = options.logs / f"{Path(corpus).name}-{options.limit or 'all'}-{name}.log"
        start = time.perf_counter()
        with log.open("w", encoding="utf-8") as file:
            code = subprocess.run(
                command, cwd=ROOT, stdout=file, stderr=file, check=False
            ).returncode
        failed += code != 0
        end = "FAILED" if code else "done"
        print(f"{corpus} {name}: {end} in {time.perf_counter() - start:.0f} s", flush=True)
    return failed


if __name__ == "__main__":
    main()
