"""Labels without documents: a tenth of the labels is hidden from training, and then looked for.

    python -m benchmarks.quality.zero_shot --data FOLDER --corpora tibkat eurlex57k --encoder PATH
        --out FILE [--device cuda] [--train N] [--limit N] [--seed S] [--settings KEY=VALUE ...]

Each corpus is a folder with a train and a dev part, and labels.tsv. Hidden labels keep their names
and lose their documents. Measured are dev documents that have a hidden label: R@10 and nDCG@10
among the hidden labels alone ("alone"), and in the list of all labels ("among all"); "unnamed"
counts only pairs whose text does not have the label's name as it is written. P@1 to nDCG@10 count
all labels of all dev documents. Lists are joined by what four fifths of the dev documents teach for
the last. "untrained" is the encoder as it came.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

METRICS = ["P@1", "P@5", "R@10", "nDCG@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--corpora", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, appended to")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--train", type=int, help="learn from this many documents only")
    parser.add_argument("--limit", type=int, default=3000, help="measure at most these documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settings", nargs="*", default=[], help="of dual")
    options = parser.parse_args()
    for corpus in options.corpora:
        for row in measured(options.data / corpus, options):
            print(json.dumps(row), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def measured(folder: Path, options: argparse.Namespace) -> Any:
    """A row for each method."""
    from labelgrove import Corpus, Linear, Matcher, read_corpus
    from labelgrove.core.arrays import as_csr
    from labelgrove.core.params import parse_setting
    from labelgrove.data.formats import ReadOptions
    from labelgrove.evaluation.merge_weights import cross_fitted
    from labelgrove.evaluation.metrics import evaluate
    from labelgrove.methods.dual.method import Dual

    random = np.random.default_rng(options.seed)
    train = read_corpus(folder, all_labels=True)
    dev = read_corpus(folder, index=train.index, options=ReadOptions(part="dev"))
    if options.train:
        train = train.take(np.sort(random.permutation(len(train))[: options.train]))
    hidden = random.random(len(train.index)) < 0.1
    keep = train.labels.copy()
    keep.data[hidden[keep.indices]] = 0
    keep.eliminate_zeros()
    rows = np.flatnonzero(np.diff(keep.indptr))
    train = Corpus(train.texts, as_csr(keep), train.index).take(rows)
    dev = dev.take(np.arange(min(options.limit, len(dev))))
    gold = dev.labels.copy()
    gold.data[~hidden[gold.indices]] = 0
    gold.eliminate_zeros()
    texts = [text.casefold() for text in dev.texts]
    words = [word.casefold() for word in train.index.words]
    allow = [train.index.ids[column] for column in np.flatnonzero(hidden)]
    about = {
        "corpus": folder.name,
        "documents": len(train),
        "seed": options.seed,
        "hidden": int(hidden.sum()),
        "measured": int((np.diff(gold.indptr) > 0).sum()),
    }

    frequencies = np.bincount(train.labels.indices, minlength=len(train.index))

    def row(name: str, alone: Any, among: Any, seconds: float = 0.0) -> dict[str, Any]:
        whole = evaluate(among, dev, metrics=METRICS)
        return {
            **about,
            "method": name,
            **scores(alone, gold, texts, words, "alone"),
            **scores(among, gold, texts, words, "among all"),
            **{metric: round(100 * float(whole[metric]), 2) for metric in METRICS},
            "fit_s": round(seconds, 1),
        }

    def joined(*names: str) -> dict[str, Any]:
        alone, among = zip(*(lists[name] for name in names), strict=True)
        return row(
            " + ".join(names),
            cross_fitted(alone, gold, frequencies, k=20),
            cross_fitted(among, dev.labels, frequencies, k=20),
        )

    config: dict[str, Any] = {"encoder": {"encoder": options.encoder}}
    for setting in options.settings:
        key, value = parse_setting(setting)
        group, _, field = key.rpartition(".")
        config.setdefault(group, {})[field] = value
    names = Linear(label_texts="names")
    plain = {
        "encoder": config["encoder"],
        "training": {"max_steps": 1, "lr": 1e-12},
    }
    lists = {}
    for name, model in {
        "matcher": Matcher(),
        "linear with names": names,
        "untrained": Dual.from_config(plain | {"device": options.device, "held_out": 0}),
        "dual": Dual.from_config(config | {"device": options.device}),
    }.items():
        start = time.monotonic()
        model.fit(train)
        seconds = time.monotonic() - start
        lists[name] = model.predict(dev, k=100, allow=allow), model.predict(dev, k=100)
        yield row(name, *lists[name], seconds)
    yield joined("matcher", "dual")
    yield joined("linear with names", "matcher")
    yield joined("linear with names", "matcher", "dual")


def scores(
    predictions: Any, gold: Any, texts: list[str], words: list[str], which: str
) -> dict[str, float]:
    """R@10 and nDCG@10 of hidden labels, and R@10 of those that the text does not name."""
    recalls, gains = [], []
    found, pairs = 0, 0
    discounts = 1 / np.log2(np.arange(2, 12))
    for document, columns in enumerate(predictions.top(10).columns):
        own = set(gold.indices[gold.indptr[document] : gold.indptr[document + 1]].tolist())
        if not own:
            continue
        hits = np.isin(columns[:10], list(own))
        recalls.append(hits.sum() / len(own))
        gains.append((discounts[: len(hits)] * hits).sum() / discounts[: len(own)].sum())
        unnamed = {column for column in own if words[column] not in texts[document]}
        pairs += len(unnamed)
        found += len(unnamed & set(columns[:10].tolist()))
    values = {f"R@10 {which}": np.mean(recalls), f"nDCG@10 {which}": np.mean(gains)}
    values[f"R@10 {which}, unnamed"] = found / max(pairs, 1)
    return {name: round(100 * float(value), 2) for name, value in values.items()} | {
        "unnamed pairs": pairs
    }


if __name__ == "__main__":
    main()
