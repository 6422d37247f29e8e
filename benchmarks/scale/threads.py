"""What more threads bring on one machine: training by stage, and prediction of many texts.

    python -m benchmarks.scale.threads [--threads 1,2,4,8,16] [--labels 10000] [--documents 100000]
    python -m benchmarks.scale.threads --train tibkat/train.jsonl.xz --dev tibkat/dev.jsonl.xz

The linear method with its defaults, from text, on a made-up shop or on files. Each training is a
process of its own; its seconds are those of `labelgrove train`, without reading and saving. This is
about wall time, so the machine must have nothing else to do. Prediction is the median of --repeats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import report
from benchmarks.scale.scale import labelgrove


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", default="1,2,4,8,16")
    parser.add_argument("--labels", type=int, default=10_000)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--train", type=Path, help="documents to learn from instead of a shop's")
    parser.add_argument("--dev", type=Path, help="documents to predict instead of a shop's")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-save", action="store_true", help="do not write to benchmarks/results")
    options = parser.parse_args()
    counts = [int(count) for count in options.threads.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        train, dev = options.train, options.dev
        if train is None:
            sizes = ["--labels", options.labels, "--documents", options.documents, "--test", 0]
            labelgrove("data", "make", "--out", folder / "shop", *sizes, "--dev", 20_000)
            train, dev = folder / "shop" / "train.jsonl", folder / "shop" / "dev.jsonl"
        rows = [trained(train, folder / "model", count) for count in counts]
        if dev is not None:
            predicted(folder / "model", dev, rows, options.repeats)
    for row in rows:
        for what in ("wall_s", "predict_s"):
            if what in row:
                row[f"{what}_times"] = round(rows[0][what] / row[what], 2)
        print(json.dumps(row), flush=True)
    result = {"corpus": "shop" if options.train is None else train.parent.name, "rows": rows}
    report("threads", result, save=not options.no_save)


def trained(train: Path, model: Path, threads: int) -> dict[str, Any]:
    words = ["--out", model, "--force", "--threads", threads, "--json", "--no-estimate"]
    said = json.loads(labelgrove("train", train, "--method", "linear", *words)[0])
    return {
        "threads": threads,
        "documents": said["documents"],
        "labels": said["labels"],
        "wall_s": said["train_seconds"],
        "cpu_s": said["train_cpu_seconds"],
        "stages": said["stages"],
    }


def predicted(folder: Path, dev: Path, rows: list[dict[str, Any]], repeats: int) -> None:
    """Adds the seconds of predicting the texts of ``dev`` to each row."""
    import labelgrove
    from labelgrove.data.formats import iter_documents

    model = labelgrove.load(folder)
    texts = [document.text for document in iter_documents(dev)]
    for row in rows:
        runs = []
        for _ in range(repeats + 1):  # the first fills caches
            start = time.perf_counter()
            model.predict(texts, k=10, threads=row["threads"])
            runs.append(time.perf_counter() - start)
        row["predict_s"] = round(statistics.median(runs[1:]), 3)
        row["texts"] = len(texts)


if __name__ == "__main__":
    main()
