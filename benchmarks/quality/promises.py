"""What ``labelgrove train`` says with nothing set, and what then happens on new documents.

    python -m benchmarks.quality.promises CORPUS [CORPUS ...] [--documents 15000] [--fresh 4000]
        [--method auto] [--set KEY=VALUE ...] [--device cpu|cuda] [--out FILE]

CORPUS is a file of documents with labels, such as ``train.jsonl.xz``; a ``labels.tsv`` beside it
gives names. Some of its documents are trained on, drawn by ``--seed``; others are new to the model.
Side by side, in percent: the figures that training reported on its held-out documents, how far it
said that others may lie from them, and those on the new documents, where ``linear`` is measured,
too. Then planned and real seconds and bytes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from labelgrove.data.formats import iter_documents, write_corpus
from labelgrove.data.formats.labels import find_label_table
from labelgrove.data.splits import sample_documents
from labelgrove.evaluation.metrics.measures import widest

MEASURES = ("P@1", "P@3", "P@5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpora", nargs="+", type=Path)
    parser.add_argument("--documents", type=int, default=15_000, help="to train on")
    parser.add_argument("--fresh", type=int, default=4_000, help="new documents")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="append one JSON line per corpus")
    options = parser.parse_args()
    for corpus in options.corpora:
        record = promises(corpus, options)
        print_record(record)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


def promises(corpus: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Trains on a part of the documents; what was said, and what happened."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table = draw(corpus, folder, options)
        flags = ["--device", options.device, "--json"]
        named = [] if table is None else ["--labels", str(table)]
        training = ["train", str(folder / "train.jsonl"), "--out", str(folder / "model"), *flags]
        training += ["--method", options.method, *named]
        for setting in options.settings:
            training += ["--set", setting]
        start = time.monotonic()
        facts = labelgrove(*training)
        seconds = time.monotonic() - start
        labelgrove(
            "train",
            str(folder / "train.jsonl"),
            "--out",
            str(folder / "linear"),
            "--json",
            "--method",
            "linear",
            *named,
        )
        fresh = {
            name: measured(folder / name, folder / "fresh.jsonl", options.device)
            for name in ("model", "linear")
        }
    said = reported(facts)
    return {
        "corpus": corpus.parent.name,
        "method": options.method,
        "documents": facts["documents"],
        "labels": facts["labels"],
        "held_out": said,
        "margins": {
            name: 100 * widest(value / 100, said["documents"])
            for name, value in said.items()
            if name in MEASURES
        },
        "fresh": fresh["model"],
        "linear": fresh["linear"],
        "planned_seconds": facts["plan"]["seconds"],
        "seconds": seconds,
        "planned_bytes": facts["plan"]["memory_bytes"],
        "bytes": facts["peak_memory_bytes"],
        "model_bytes": facts["model_bytes"],
    }


def draw(corpus: Path, folder: Path, options: argparse.Namespace) -> Path | None:
    """Writes documents to train on and new ones; the label table of the corpus."""
    count = options.documents + options.fresh
    documents = sample_documents(iter_documents(corpus), count, seed=options.seed)
    # A sample is in the order of its file, which may be sorted.
    mixed = sample_documents(range(len(documents)), options.documents, seed=options.seed + 1)
    chosen = set(mixed)
    for name, inside in (("train", True), ("fresh", False)):
        part = (each for row, each in enumerate(documents) if (row in chosen) is inside)
        write_corpus(part, folder / f"{name}.jsonl")
    return find_label_table(corpus)


def labelgrove(*arguments: str) -> dict[str, Any]:
    """What a command prints with --json."""
    command = [sys.executable, "-m", "labelgrove", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measured(model: Path, documents: Path, device: str) -> dict[str, float]:
    """Percentages on new documents."""
    values = labelgrove("evaluate", str(model), str(documents), "--device", device, "--json")
    return {name: values[name] for name in MEASURES}


def reported(facts: dict[str, Any]) -> dict[str, Any]:
    """The percentages that training reported for the model it wrote."""
    kept = [trial for trial in facts.get("tried", ()) if trial["chosen"] and "P@1" in trial]
    if kept:
        figures = {name: 100 * kept[0][name] for name in MEASURES}
        return figures | {"documents": kept[0]["documents"], "name": kept[0]["name"]}
    own = facts["held_out"][facts["method"]]
    return {name: own[name] for name in MEASURES} | {"documents": facts["held_out_documents"]}


def print_record(record: dict[str, Any]) -> None:
    def figures(values: dict[str, Any]) -> str:
        return " / ".join(f"{values[name]:5.2f}" for name in MEASURES)

    print(
        f"{record['corpus']}: {record['documents']:,} documents, {record['labels']:,} labels, "
        f"{record['held_out'].get('name', record['method'])}"
    )
    print(
        f"  held out   {figures(record['held_out'])}  (± {figures(record['margins'])}, "
        f"{record['held_out']['documents']:,} documents)"
    )
    print(f"  new        {figures(record['fresh'])}")
    print(f"  linear     {figures(record['linear'])}")
    seconds = record["planned_seconds"]
    plan = "no time" if seconds is None else f"{seconds[0]:.0f} to {seconds[1]:.0f} s"
    print(f"  time       {plan} planned, {record['seconds']:.0f} s")
    print(
        f"  memory     {record['planned_bytes'] / 2**20:.0f} MiB planned, "
        f"{record['bytes'] / 2**20:.0f} MiB; model {record['model_bytes'] / 2**20:.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
