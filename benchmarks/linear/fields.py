"""Catalogue fields of tibkat beside its texts: what they bring to the linear method.

    python -m benchmarks.linear.fields --data PATH [--limit 40000] [--out FOLDER]
        [--weights 0.5,1,2]

The records of a library have a title, an abstract and what the catalogue says of them. ``--out``
writes them as JSON lines, one field each, for ``labelgrove train FOLDER/train.jsonl --text-field
title,abstract --field creators``. The linear method is trained on the texts alone and on texts with
the fields in ``--fields``, all with the same weight. CPU seconds are those of one thread.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, cpu_seconds, report

METRICS = ("P@1", "P@3", "P@5", "R@10", "nDCG@20", "F1@5")
FIELDS = "creators,series,publisher,place"


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--out", type=Path, help="folder for the corpus as JSON lines")
    parser.add_argument("--texts", default="title,abstract", help="text fields to learn from")
    parser.add_argument("--fields", default=FIELDS, help="catalogue fields to learn from")
    parser.add_argument("--weights", default="1", help="weights of the fields to try")
    parser.set_defaults(repeats=1)
    options = parser.parse_args()
    folder = options.data / options.corpus
    train, dev = (list(islice(rows(folder, part), options.limit)) for part in ("train", "dev"))
    if options.out is not None:
        write(options.out, folder, train=train, dev=dev)
    texts, fields = options.texts.split(","), options.fields.split(",")
    print(f"{options.corpus}: {len(train):,} documents, {len(dev):,} to measure on")
    print(
        f"{'':24}" + "".join(f"{name:>9}" for name in (*METRICS, "train s", "docs/s")), flush=True
    )
    runs = {"texts": measured(train, dev, texts, [], 1.0, options.repeats)}
    show("texts", runs["texts"])
    for weight in map(float, options.weights.split(",")):
        name = f"with fields, weight {weight:g}"
        runs[name] = measured(train, dev, texts, fields, weight, options.repeats)
        show(name, runs[name])
    sizes = {"corpus": options.corpus, "documents": len(train), "measured_on": len(dev)}
    report(
        "fields", sizes | {"texts": texts, "fields": fields, "runs": runs}, save=not options.no_save
    )


def rows(folder: Path, part: str) -> Iterator[dict[str, Any]]:
    """The documents of a part with their fields, which stand in a file beside it."""
    with (
        lzma.open(folder / f"{part}.jsonl.xz", "rt", encoding="utf-8") as documents,
        lzma.open(folder / f"{part}-fields.jsonl.xz", "rt", encoding="utf-8") as catalogue,
    ):
        for line, more in zip(documents, catalogue, strict=True):
            document, fields = json.loads(line), json.loads(more)
            text, end = document["text"], fields.pop("title_chars")
            texts = {"title": text[:end].strip(), "abstract": text[end:].strip()}
            if "alternative" in fields:  # other titles, which are texts
                fields["alternative"] = "\n".join(fields["alternative"])
            yield {**texts, **fields, "labels": document["labels"]}


def write(out: Path, source: Path, **parts: list[dict[str, Any]]) -> None:
    """The parts as JSON lines, and the label table."""
    out.mkdir(parents=True, exist_ok=True)
    for name, documents in parts.items():
        with (out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in documents)
    (out / "labels.tsv").write_bytes((source / "labels.tsv").read_bytes())


def measured(
    train: list[dict[str, Any]],
    dev: list[dict[str, Any]],
    texts: list[str],
    fields: list[str],
    weight: float,
    repeats: int,
) -> dict[str, float]:
    """The metrics on dev, and what training and prediction cost."""
    from labelgrove import Corpus, Linear, TfidfParams, evaluate, records

    def corpus(documents: list[dict[str, Any]], **how: Any) -> Corpus:
        if fields:
            read = records(documents, text=texts, fields=fields)
        else:
            read = ["\n".join(row[n] for n in texts if row.get(n)) for row in documents]
        return Corpus.from_lists(read, [row["labels"] for row in documents], **how)

    known = corpus(train)
    truth = corpus(dev, index=known.index)
    model = Linear(tfidf=TfidfParams(field_weights=dict.fromkeys(fields, weight)), n_jobs=1)
    training = cpu_seconds(lambda: model.fit(known), repeats=repeats)
    prediction = cpu_seconds(lambda: model.predict(truth, k=20), repeats=repeats)
    values = evaluate(prediction.result, truth.labels, unknown=truth.unknown, metrics=list(METRICS))
    return {name: round(100 * float(values[name]), 2) for name in METRICS} | {
        "train_cpu_s": round(training.median, 1),
        "documents_per_cpu_s": round(len(dev) / prediction.median),
    }


def show(name: str, values: dict[str, float]) -> None:
    numbers = [f"{values[metric]:9.2f}" for metric in METRICS]
    speed = f"{values['train_cpu_s']:9.1f}{values['documents_per_cpu_s']:9,.0f}"
    print(f"{name:24}" + "".join(numbers) + speed, flush=True)


if __name__ == "__main__":
    main()
