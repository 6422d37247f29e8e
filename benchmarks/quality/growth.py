"""New labels in a trained linear model: cost and accuracy of updating, compared with retraining.

    python -m benchmarks.quality.growth --data PATH --corpus tibkat [--limit 15000]
        [--shares 0.01,0.05]

A share of the labels is held back: the model is trained on the documents without them and then
updated with the other documents, some of which have further labels that the model does not know.
R_new@k is the recall of all new labels on the dev part. CPU seconds are those of one thread.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Part, arguments, read_part, report

METRICS = ("P@1", "P@3", "P@5", "R@10")
HEAD = ("P@1", "P@3", "P@5", "R@10", "R_new@5", "R_new@10", "cpu", "times")


def main() -> None:
    from labelgrove.data.formats.labels import find_label_table, read_label_table

    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--shares", default="0.001,0.01,0.05", help="shares of labels to hold back")
    parser.set_defaults(limit=15000, repeats=1)
    options = parser.parse_args()
    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    table = find_label_table(options.data / options.corpus)
    names = {} if table is None else {row.id: row.name for row in read_label_table(table)}
    results = {}
    for share in map(float, options.shares.split(",")):
        case = Case(train, dev, share, names)
        print(f"\n{options.corpus}: {case.sizes}", flush=True)
        print(f"{'':34}" + "".join(f"{name:>10}" for name in HEAD))
        results[str(share)] = case.sizes | case.run(options.repeats)
    result = {
        "corpus": Path(options.corpus).name,
        "documents": len(train.texts),
        "data_sha256": train.sha256,
        "shares": results,
    }
    report("growth", result, save=not options.no_save)


class Case:
    """The documents and labels of one share that is held back."""

    def __init__(self, train: Part, dev: Part, share: float, names: dict[str, str]) -> None:
        from labelgrove import LabelIndex

        every = sorted({label for labels in train.labels for label in labels})
        count = max(1, round(share * len(every)))
        held = set(np.random.default_rng(0).permutation(np.array(every, object))[:count])
        bears = [not held.isdisjoint(labels) for labels in train.labels]
        self.old = pick(train, [row for row, new in enumerate(bears) if not new])
        self.new = pick(train, [row for row, new in enumerate(bears) if new])
        known = sorted({label for labels in self.old[1] for label in labels})
        self.added = [label for label in every if label not in set(known)]
        self.names = [names.get(label, label) for label in self.added]
        self.known = LabelIndex(known)
        self.index = LabelIndex([*known, *self.added])
        self.train, self.dev = (train.texts, train.labels), (dev.texts, dev.labels)
        self.sizes = {
            "labels": len(every),
            "new_labels": len(self.added),
            "old_documents": len(self.old[0]),
            "new_documents": len(self.new[0]),
        }

    def run(self, repeats: int) -> dict[str, Any]:
        from labelgrove import Linear
        from labelgrove.methods.updating.report import GrowthParams

        step = max(1, len(self.old[0]) // 2000)
        only_new = GrowthParams(retrain="new")
        some = self.old[0][::step], self.old[1][::step]
        base = Linear(n_jobs=1).fit(*self.old, index=self.known)
        ways: dict[str, Callable[[Any], Any]] = {
            "trained anew": lambda _: Linear(n_jobs=1).fit(*self.train, index=self.index),
            "update, old documents": lambda m: m.update(*self.new, corpus=self.old),
            "  new labels alone": lambda m: m.update(*self.new, corpus=self.old, params=only_new),
            "update, 2,000 old documents": lambda m: m.update(*self.new, corpus=some),
            "  new labels alone  ": lambda m: m.update(*self.new, corpus=some, params=only_new),
            "update, new documents alone": lambda m: m.update(*self.new),
            "  new labels alone ": lambda m: m.update(*self.new, params=only_new),
            "add_labels, by their names": lambda m: m.add_labels(self.names, ids=self.added),
        }
        rows: dict[str, Any] = {"before": self.measured(base)}
        show("before", rows["before"])
        for name, way in ways.items():
            seconds = []
            for _ in range(repeats):
                model = copy.copy(base)
                start = time.process_time()
                made = way(model)
                seconds.append(time.process_time() - start)
            trained = name == "trained anew"
            row = self.measured(made if trained else model)
            row["cpu"] = float(np.median(seconds))
            row["times"] = 1.0 if trained else rows["trained anew"]["cpu"] / row["cpu"]
            if not trained:
                row |= {"reasons": list(made.reasons)}
            rows[name] = row
            show(name, row)
        return {"ways": rows}

    def measured(self, model: Any) -> dict[str, float]:
        from labelgrove import evaluate

        truth, unknown = self.index.encode(self.dev[1])
        found = model.predict(self.dev[0], k=10)
        columns = truth[:, : len(model.index_)]
        lost = truth[:, len(model.index_) :].sum(axis=1).astype(np.int64)
        result = evaluate(found, columns, unknown=unknown + lost, metrics=list(METRICS))
        values = {name: 100 * result.values[name] for name in METRICS}
        new = np.zeros(len(self.index), bool)
        new[[self.index.column(label) for label in self.added]] = True
        for k in (5, 10):
            hits = total = 0
            for row in range(truth.shape[0]):
                own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
                own = own[new[own]]
                total += len(own)
                hits += len(np.intersect1d(own, found.columns[row, :k]))
            values[f"R_new@{k}"] = 100 * hits / max(1, total)
        return values


def pick(part: Part, rows: list[int]) -> tuple[list[str], list[list[str]]]:
    return [part.texts[row] for row in rows], [part.labels[row] for row in rows]


def show(name: str, row: dict[str, Any]) -> None:
    numbers = "".join(f"{row[key]:10.2f}" if key in row else f"{'':10}" for key in HEAD)
    print(f"{name:34}{numbers}", flush=True)


if __name__ == "__main__":
    main()
