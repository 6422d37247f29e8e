"""What all benchmarks share: corpora, a CPU timer, and results with machine and commit.

Scripts run as modules, from the root of the repository: ``python -m benchmarks.linear.tfidf``.

Benchmarks compare within one run on one machine, in CPU seconds, as medians over repeats. Only the
standard library is imported at the top, so that a script can also run under a peer's interpreter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
Result = TypeVar("Result")


def arguments(description: str, *, corpus: str) -> argparse.ArgumentParser:
    """A parser with the flags that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the corpora")
    parser.add_argument("--corpus", default=corpus, help="a folder in --data, or any other folder")
    parser.add_argument("--limit", type=int, help="use only this many documents of each part")
    parser.add_argument("--repeats", type=int, default=3, help="take the median of this many runs")
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    return parser


def default_data() -> Path:
    return Path(os.environ.get("LABELGROVE_DATA") or ROOT.parent / "shared" / "data")


@dataclass(frozen=True)
class Part:
    """The documents of one part of a corpus, and the hash of their file."""

    texts: list[str]
    labels: list[list[str]]
    sha256: str

    @property
    def megabytes(self) -> float:
        return sum(len(t.encode("utf-8", "surrogatepass")) for t in self.texts) / 1e6


def read_part(data: Path, corpus: str, part: str = "train", limit: int | None = None) -> Part:
    """Reads the file of a part, in any format labelgrove reads, from ``data/corpus`` or the folder
    ``corpus``, such as one that ``corpora/debian.py`` or ``labelgrove data make`` wrote."""
    from labelgrove.data.formats import iter_documents

    folder = data / corpus if (data / corpus).is_dir() else Path(corpus)
    found = sorted(folder.glob(f"{part}.*"))
    if not found:
        raise SystemExit(f"no {part}.* in {folder}: give the folder of the corpora with --data")
    documents = list(islice(iter_documents(found[0]), limit))
    return Part(
        [document.text for document in documents],
        [list(document.labels) for document in documents],
        hashlib.sha256(found[0].read_bytes()).hexdigest(),
    )


@dataclass(frozen=True)
class Timing(Generic[Result]):
    """CPU seconds of all threads of this process, and the result of the last run."""

    runs: list[float]
    result: Result

    @property
    def median(self) -> float:
        return statistics.median(self.runs)


def cpu_seconds(function: Callable[[], Result], *, repeats: int = 3) -> Timing[Result]:
    runs = []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        runs.append(time.process_time() - start)
    return Timing(runs, result)


def machine() -> dict[str, Any]:
    """The processor, cores, versions, and compiler flags of the kernels."""
    import numpy
    import scipy
    import sklearn

    from labelgrove import _native

    build = _native.build_info()
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "simd": build["simd"],
        "compiler": build["compiler"],
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str:
    """The checked-out commit, marked if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "native", "src")
        return git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def report(benchmark: str, result: dict[str, Any], *, save: bool = True) -> None:
    """Prints a result and appends it, with machine and commit, to ``results/<benchmark>.jsonl``."""
    full = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        **result,
    }
    line = json.dumps(full, ensure_ascii=False)
    print(line)
    if save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        with (RESULTS / f"{benchmark}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
