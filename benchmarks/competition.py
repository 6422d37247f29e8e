"""tibkat as its competition measured it: single models with catalogue fields, and learnt merges.

    python benchmarks/competition.py --data PATH --method cascadexml --encoder FOLDER
        [--set heads.full=true ...] [--seed N] [--without-names] [--keep FILE.npz]
    python benchmarks/competition.py --data PATH --merge A.npz B.npz C.npz

The first form trains one model on the train part, with the fields in --fields and the names of
labels as documents, and measures it on dev. ``--keep`` writes its best labels. The second form
joins such files by weights and exponents that documents teach; each half of dev is joined by what
the other half taught. F1@5 and nDCG@20 are the two figures of the competition.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from common import arguments, report
from fields import TEXTS, rows
from neural import KEPT, keep, settings
from neural_ensemble import kept

METRICS = ("F1@5", "nDCG@20", "P@1", "P@3", "P@5", "R@10")
FIELDS = "creators,series,publisher,place,kind,alternative"


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--method", help="the method to train")
    what.add_argument("--merge", nargs="+", type=Path, help="files that --keep wrote")
    parser.add_argument("--encoder", help="folder or name of the encoder")
    parser.add_argument("--set", action="append", default=[], help="one setting, group.name=value")
    parser.add_argument("--fields", default=FIELDS, help="catalogue fields, or nothing")
    parser.add_argument("--without-names", action="store_true", help="learn no names of labels")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="file for the best labels of the dev part")
    options = parser.parse_args()
    folder = options.data / options.corpus
    train, dev = (list(rows(folder, part))[: options.limit] for part in ("train", "dev"))
    labels = sorted({label for row in train for label in row["labels"]})
    if options.merge:
        result = merged(options.merge, train, dev, labels)
    else:
        result = trained(options, folder, train, dev, labels)
    report("competition", {"corpus": options.corpus, **result}, save=not options.no_save)


def trained(options: Any, folder: Path, train: Any, dev: Any, labels: list[str]) -> dict[str, Any]:
    from labelgrove import Corpus, records
    from labelgrove.formats.labels import index_with_names, read_label_table
    from labelgrove.methods import create

    options.config = None
    config = settings(options)
    name = config.pop("method")
    if name != "neighbours" and not options.without_names:
        config["label_texts"] = "names"
    index = index_with_names(labels, read_label_table(folder / "labels.tsv"))
    fields = options.fields.split(",") if options.fields else []
    texts, truth = (
        (records(part, text=TEXTS, fields=fields), index.encode([row["labels"] for row in part]))
        for part in (train, dev)
    )
    model = create(name, config | {"random_state": options.seed})
    start = time.perf_counter()
    model.fit(Corpus(texts[0], texts[1][0], index))
    seconds = time.perf_counter() - start
    found = model.predict(truth[0], k=KEPT)
    if options.keep is not None:
        keep(found, options.keep)
    asked = {"fields": fields, "settings": options.set, "names": not options.without_names}
    values = measured(found, *truth[1])
    return {"method": name, "seed": options.seed, **asked, "fit_s": seconds, "dev": values}


def merged(files: list[Path], train: Any, dev: Any, labels: list[str]) -> dict[str, Any]:
    from labelgrove import LabelIndex
    from labelgrove.scores.learning import cross_fitted

    index = LabelIndex(labels)
    counts = Counter(label for row in train for label in set(row["labels"]))
    truth, unknown = index.encode([row["labels"] for row in dev])
    members = [kept(file, index) for file in files]
    joined = cross_fitted(members, truth, [counts[label] for label in labels], k=20)
    values = {
        file.stem: measured(m, truth, unknown) for file, m in zip(files, members, strict=True)
    }
    values["joined"] = measured(joined, truth, unknown)
    for name, line in values.items():
        print(f"{name:16}" + "  ".join(f"{metric} {line[metric]:.2f}" for metric in METRICS))
    return {"dev": values}


def measured(found: Any, truth: Any, unknown: Any) -> dict[str, float]:
    """In percent; labels that training lacks count as misses."""
    from labelgrove import evaluate

    values = evaluate(found, truth, unknown=unknown, metrics=METRICS)
    return {name: round(100 * float(values[name]), 2) for name in METRICS}


if __name__ == "__main__":
    main()
