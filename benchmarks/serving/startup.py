"""How long the command line and the service take to start, in CPU seconds.

    python -m benchmarks.serving.startup [--model FOLDER] [--repeats R]

Without --model, a small linear model is trained first. Every line is the median of R runs in new
processes, in CPU seconds (user and system). The ratio is to the imports of NumPy and scipy.sparse.
Run it once before you trust the numbers: the first run may have to compile Python files, and all
do with PYTHONDONTWRITEBYTECODE, which is therefore not passed on.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TEXT = "Grün: a red shoe\n"
PREDICT_TWICE = """
import sys, time
import labelgrove
model = labelgrove.load(sys.argv[1])
for _ in range(2):
    before = time.process_time()
    model.predict([sys.argv[2]])
    print(time.process_time() - before)
"""
# uvicorn's own start-up is awaited inside, so the process ends as soon as the service would answer.
SERVE_UNTIL_READY = """
import os, signal, sys
import uvicorn
start = uvicorn.Server.startup
async def startup(self, sockets=None):
    await start(self, sockets=sockets)
    assert self.started
    os.kill(os.getpid(), signal.SIGKILL)
uvicorn.Server.startup = startup
from labelgrove.cli import main
main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a linear model; default: a small one")
    parser.add_argument("--repeats", type=int, default=5, help="take the median of this many runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        model = str(options.model or small_model(Path(name) / "model"))
        cli = ("-m", "labelgrove")
        serve = ("-c", SERVE_UNTIL_READY, "serve", model, "--port", "0")
        lines: dict[str, Callable[[], float]] = {
            "python -c pass": lambda: cpu("-c", "pass"),
            "import numpy, scipy.sparse": lambda: cpu("-c", "import numpy, scipy.sparse"),
            "import labelgrove": lambda: cpu("-c", "import labelgrove"),
            "labelgrove --help": lambda: cpu(*cli, "--help"),
            "labelgrove predict MODEL -": lambda: cpu(*cli, "predict", model, "-"),
            "first prediction in a process": lambda: prediction(model, 0),
            "second prediction": lambda: prediction(model, 1),
            "labelgrove serve MODEL, ready": lambda: cpu(*serve, code=-signal.SIGKILL),
        }
        seconds = {what: middle(run, options.repeats) for what, run in lines.items()}
    scale = seconds["import numpy, scipy.sparse"]
    print(f"{'':32}{'CPU s':>8}{'ratio':>8}")
    for what, value in seconds.items():
        print(f"{what:32}{value:8.3f}{value / scale:8.2f}")


def small_model(folder: Path) -> Path:
    import labelgrove

    texts = ["a red shoe", "a blue hat", "a green hat", "a yellow coat"]
    labelgrove.Linear().fit(texts, [["shoes"], ["hats"], ["hats"], ["coats"]]).save(folder)
    return folder


def middle(run: Callable[[], float], repeats: int) -> float:
    run()  # compiles Python files and fills the disk's cache
    return statistics.median(run() for _ in range(repeats))


def cpu(*arguments: str, code: int = 0) -> float:
    """The CPU seconds of a new Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = python(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != code:
        raise SystemExit(f"{arguments}: ended with {done.returncode}\n{done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prediction(model: str, number: int) -> float:
    done = python("-c", PREDICT_TWICE, model, TEXT)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[number])


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *arguments],
        input=TEXT,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


if __name__ == "__main__":
    main()
