"""Training cost per label, from ten thousand labels to a million that all occur in training.

    python -m benchmarks.scale.scale [--labels 10000,30000,100000,300000,1000000]
        [--documents-per-label 1.6] [--memory 8G] [--threads 1] [--work FOLDER]

Shop corpora that use all labels, with a fixed number of documents per label,
trained from text by ``labelgrove train --method linear`` with default settings, each in its own
process. A tree's cost per label may grow with its depth, which is the logarithm of the labels; the
last column is cost per label / ln(labels), as a multiple of its first row. With --work, corpora and
results stay in the folder and are reused.

"own MB" is the most memory of the process itself, "file MB" the most of mapped files, which the
system drops when memory is short; both are read from /proc every 20 ms. With --memory, features are
on disk. A power of the documents is fitted to time and own memory of the last two sizes, and says
what ten million documents would take: that is an extrapolation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, report
from labelgrove import write_corpus
from labelgrove.data.shop import shop_documents

GOAL = 10_000_000  # documents, to which time and memory are extrapolated
TOLERANCE = 1.05  # about the difference between two runs of the same training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", default="10000,30000,100000,300000,1000000")
    parser.add_argument("--documents-per-label", type=float, default=1.6)
    parser.add_argument("--dev", type=int, default=2_000, help="documents to measure on")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", help="limit for training, e.g. 8G; features are then on disk")
    parser.add_argument("--work", type=Path, help="folder for corpora and results")
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        f"{'labels':>10}{'occur':>10}{'documents':>10}{'cpu s':>8}{'wall s':>8}{'own MB':>8}"
        f"{'file MB':>8}"
        f"{'model MB':>9}{'P@1':>7}{'ms/label':>10}{'/ ln(labels)':>13}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.work or Path(temporary)
        for labels in map(int, options.labels.split(",")):
            documents = int(labels * options.documents_per_label)
            sizes = (labels, documents, options.dev)
            rows.append(measure(folder, sizes, options.threads, options.memory))
            rows[-1] |= growth(rows[-1], rows[0])
            print_row(rows[-1])
    worst = max(row["against_log"] for row in rows)
    verdict = "no faster" if worst <= TOLERANCE else "FASTER"
    print(f"cost per label grows {verdict} than ln(labels): at most {worst:.2f} times as much")
    result = {"threads": options.threads, "sizes": rows, "worst_against_log": worst}
    result |= {"memory": options.memory}
    if len(rows) > 1:
        result["extrapolated"] = extrapolated(*rows[-2:])
        print_extrapolation(result["extrapolated"])
    report("scale", result, save=not options.no_save)


def measure(
    folder: Path, sizes: tuple[int, int, int], threads: int, memory: str | None
) -> dict[str, Any]:
    """Makes the corpus, trains, and returns what `labelgrove train --json` and /proc say."""
    labels, documents, dev = sizes
    shop = folder / f"shop-{labels}-{documents}"
    kept = folder / f"{shop.name}-{threads}-{memory}.json"
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    if not (shop / "dev.jsonl").exists():
        shop.mkdir(exist_ok=True)
        for part, size in (("train", documents), ("dev", dev)):
            # By Zipf's law, most labels of a large shop would have no document.
            products = shop_documents(size, labels=labels, part=part, every_label=part == "train")
            write_corpus(products, shop / f"{part}.jsonl")
    model = folder / "model"
    shutil.rmtree(model, ignore_errors=True)
    start = time.perf_counter()
    options = ["--dev", shop / "dev.jsonl", "--out", model, "--threads", threads, "--json"]
    options += ["--method", "linear", "--no-estimate"]
    options += [] if memory is None else ["--memory", memory]
    output, peaks = labelgrove("train", shop / "train.jsonl", *options)
    said = json.loads(output)
    row = {
        "labels": labels,
        "labels_in_training": said["labels"],
        "documents": said["documents"],
        "cpu_s": said["train_cpu_seconds"],
        "wall_s": said["train_seconds"],
        "command_s": round(time.perf_counter() - start, 1),
        "peak_mb": said["peak_memory_bytes"] / 1e6,
        **peaks,
        "model_mb": said["model_bytes"] / 1e6,
        "stages": said["stages"],
        "P@1": said["dev"]["P@1"],
    }
    kept.write_text(json.dumps(row))
    return row


def growth(row: dict[str, Any], first: dict[str, Any]) -> dict[str, float]:
    def over_log(one: dict[str, Any]) -> float:
        labels = one["labels_in_training"]
        return float(one["cpu_s"] / labels / math.log(labels))

    return {
        "ms_per_label": 1e3 * row["cpu_s"] / row["labels_in_training"],
        "against_log": over_log(row) / over_log(first),
    }


def extrapolated(smaller: dict[str, Any], larger: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Powers of the number of documents through two sizes, and their values for ten million."""
    ratio = math.log(larger["documents"] / smaller["documents"])
    fits = {}
    for name in ("cpu_s", "wall_s", "own_mb", "file_mb"):
        power = math.log(larger[name] / smaller[name]) / ratio
        value = larger[name] * (GOAL / larger["documents"]) ** power
        fits[name] = {"power": power, "value": value}
    return fits


def print_extrapolation(fits: dict[str, dict[str, float]]) -> None:
    shown = ", ".join(f"{n} {f['value']:,.0f} (^{f['power']:.2f})" for n, f in fits.items())
    print(f"extrapolated, not measured: {GOAL:,} documents take {shown}")


def labelgrove(*words: Any) -> tuple[str, dict[str, float]]:
    """The output of a command, and the most memory that it held, in MB."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "labelgrove", *map(str, words)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stdout=output,
        )
        peaks = {"own_mb": 0.0, "file_mb": 0.0}
        while process.poll() is None:
            for name, value in held(process.pid).items():
                peaks[name] = max(peaks[name], value)
            time.sleep(0.02)
        if process.returncode:
            raise SystemExit(process.returncode)
        output.seek(0)
        return output.read(), peaks


def held(pid: int) -> dict[str, float]:
    """What a process holds now: memory of its own, and pages of mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has just ended
        return {}
    sizes = dict(line.split(":", 1) for line in lines if line.startswith("Rss"))
    keys = {"own_mb": "RssAnon", "file_mb": "RssFile"}
    return {name: int(sizes[key].split()[0]) / 1000 for name, key in keys.items() if key in sizes}


def print_row(row: dict[str, Any]) -> None:
    print(
        f"{row['labels']:10,}{row['labels_in_training']:10,}{row['documents']:10,}"
        f"{row['cpu_s']:8.1f}{row['wall_s']:8.1f}{row['own_mb']:8.0f}{row['file_mb']:8.0f}"
        f"{row['model_mb']:9.1f}"
        f"{row['P@1']:7.2f}{row['ms_per_label']:10.3f}{row['against_log']:13.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
