"""Do plans say what then happens? For each corpus and method: the plan, the training, their ratio.

    python -m benchmarks.scale.plans --device cpu --corpora eurlex57k tibkat
        --methods linear matcher auto
    python -m benchmarks.scale.plans --device cuda --encoder FOLDER --minutes 8 --out plans.jsonl

A case is one ``python -m labelgrove train``, as a user starts it. It prints the plan, then trains.
Seconds of the training run from the last line of the plan to the end of the process. A ratio
from 0.5 to 2 keeps the promise: the time is within a factor of two of the middle of the range.
Refit ``experiments/planning/timing.py`` to what this prints. Run it on an idle machine: the
load at the start of each case is recorded.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, default_data

METHODS = ("linear", "xrtransformer", "auto", "cascadexml", "lightxml", "xtransformer")
LINEAR = ("linear", "parabel", "bonsai", "ova", "xr-linear", "neighbours", "matcher", "ensemble")
ENSEMBLE = 'rule = "learnt"\n[[members]]\nmethod = "linear"\n[[members]]\nmethod = "neighbours"\n'


def sample(data: Path, corpus: str, size: int, words: int | None, folder: Path) -> Path:
    """A file with some documents that are spread over a corpus."""
    from labelgrove.data.formats import iter_documents

    (source,) = (data / corpus).glob("train.jsonl*")
    documents = list(islice(iter_documents(source), 100_000))
    path = folder / f"{corpus}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(min(size, len(documents))):
            document = documents[number * len(documents) // size]
            text = " ".join(document.text.split()[:words]) if words else document.text
            file.write(json.dumps({"text": text, "labels": list(document.labels)}) + "\n")
    return path


def case(command: list[str], limit: float) -> dict[str, Any]:
    """One training: seconds of the plan, of the training, and what was planned."""
    load, start, planned = os.getloadavg()[0], time.monotonic(), 0.0
    lines: list[str] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None and process.stderr is not None
    for line in process.stderr:  # progress bars are not printed to a pipe
        lines.append(line.rstrip())
        if line.startswith(("plan:", "  ")):
            planned = time.monotonic()
        if time.monotonic() - start > limit:
            process.kill()
            return {"failed": f"more than {limit:.0f} s"}
    told, end = process.stdout.read(), time.monotonic()
    if process.wait() != 0:
        return {"failed": " ".join(lines[-3:])}
    facts = json.loads(told)
    plan, real = facts["plan"], end - planned
    row = {
        "documents": facts["documents"],
        "labels": facts["labels"],
        "plan_s": round(plan["calibration_seconds"], 1),
        "until_plan_s": round(planned - start, 1),
        "planned_s": plan["seconds"],
        "real_s": round(real, 1),
        "planned_stages": plan["stages"],
        "real_stages": facts["stages"],
        "derived": {name: value["value"] for name, value in plan["derived"].items()},
        "notes": plan["notes"],
        "load": round(load, 1),
    }
    if plan["seconds"] is not None:
        row["ratio"] = round(real / math.sqrt(math.prod(plan["seconds"])), 2)
    return row


def command_of(
    method: str, corpus: Path, labels: Path | None, folder: Path, given: argparse.Namespace
) -> list[str]:
    train = [sys.executable, "-m", "labelgrove", "train", str(corpus), "--json", "--force"]
    train += ["--out", str(folder / "model")]
    if labels is not None and labels.exists():
        train += ["--labels", str(labels)]
    if method == "ensemble":
        config = folder / "ensemble.toml"
        config.write_text(f'method = "ensemble"\n{ENSEMBLE}')
        return [*train, "--config", str(config)]
    train += ["--method", method]
    if method in LINEAR:
        return train
    settings = [] if method == "auto" else given.set
    if given.encoder is not None:
        settings = [*settings, f"encoder.encoder={given.encoder}"]
    train += ["--device", given.device]
    return train + [word for setting in settings for word in ("--set", setting)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the corpora")
    parser.add_argument("--corpora", nargs="+", default=["eurlex57k", "tibkat", "commits"])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--words", type=int, help="read only so many words of each text")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--encoder", help="folder of the encoder")
    parser.add_argument("--set", action="append", default=[], help="a setting of networks")
    parser.add_argument("--minutes", type=float, default=600.0, help="start no case after these")
    parser.add_argument("--out", type=Path, help="a file to append the results to")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    print("corpus     method         plan s   planned s       real s  ratio  load")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        paths = {
            corpus: sample(given.data, corpus, given.documents, given.words, folder)
            for corpus in given.corpora
        }
        for method in given.methods:
            for corpus, path in paths.items():
                left = end - time.monotonic()
                labels = given.data / corpus / "labels.tsv"
                command = command_of(method, path, labels, folder, given)
                row = case(command, left) if left > 0 else {"failed": "no time left"}
                show(corpus, method, row)
                if given.out is not None:
                    with given.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"corpus": corpus, "method": method} | row) + "\n")


def show(corpus: str, method: str, row: dict[str, Any]) -> None:
    start = f"{corpus:<10} {method:<14}"
    if "failed" in row:
        print(start, row["failed"], flush=True)
        return
    span = "-" if row["planned_s"] is None else "{:.0f} to {:.0f}".format(*row["planned_s"])
    ratio = row.get("ratio", "-")
    print(
        f"{start} {row['plan_s']:>6} {span:>14} {row['real_s']:>10} {ratio:>6} {row['load']:>5}",
        flush=True,
    )


if __name__ == "__main__":
    main()
