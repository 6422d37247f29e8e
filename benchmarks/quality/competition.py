"""tibkat as its competition measured it: single models with catalogue fields, and learnt merges.

    python -m benchmarks.quality.competition --data PATH --method cascadexml --encoder FOLDER
        [--set heads.full=true ...] [--seed N] [--without-names] [--all-labels] [--keep FILE.npz]
    python -m benchmarks.quality.competition --data PATH --merge A.npz B.npz C.npz

The first form trains one model on the train part, with the fields in --fields and the names of
labels as documents, and measures it on dev. Its labels are those of the train part, with
``--all-labels`` those of the label table. ``--keep`` writes its best labels. The second form joins
such files by weights and exponents that documents teach; each fifth of dev is joined by what the
other fifths taught. The models may know different labels: a label that one of them does not know is
one that it never proposes. F1@5 and nDCG@20 are the two figures of the competition.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, report
from benchmarks.linear.fields import rows
from benchmarks.networks.neural import KEPT, keep, settings
from benchmarks.quality.neural_ensemble import kept, kept_ids

METRICS = ("F1@5", "nDCG@20", "P@1", "P@3", "P@5", "R@10")
TEXTS = ("title", "abstract")
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
    parser.add_argument("--all-labels", action="store_true", help="also labels without documents")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="file for the best labels of the dev part")
    options = parser.parse_args()
    folder = options.data / options.corpus
    train, dev = (list(rows(folder, part))[: options.limit] for part in ("train", "dev"))
    if options.merge:
        result = merged(options.merge, train, dev)
    else:
        result = trained(options, folder, train, dev)
    report("competition", {"corpus": options.corpus, **result}, save=not options.no_save)


def trained(options: Any, folder: Path, train: Any, dev: Any) -> dict[str, Any]:
    from labelgrove import Corpus, records
    from labelgrove.data.formats.labels import index_with_names, read_label_table
    from labelgrove.methods import create, method_class

    options.config = None
    config = settings(options)
    name = config.pop("method")
    if "label_texts" in method_class(name)._get_param_names() and not options.without_names:
        config.setdefault("label_texts", "names")
    table = read_label_table(folder / "labels.tsv")
    labels = labels_of(train) | {row.id for row in table if options.all_labels}
    index = index_with_names(sorted(labels), table)
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
    asked |= {"labels": len(index)}
    values = measured(found, *truth[1])
    return {"method": name, "seed": options.seed, **asked, "fit_s": seconds, "dev": values}


def merged(files: list[Path], train: Any, dev: Any) -> dict[str, Any]:
    from labelgrove import LabelIndex
    from labelgrove.evaluation.merge_weights import cross_fitted

    ids = sorted(labels_of(train))
    index = LabelIndex(sorted({*ids, *(label for file in files for label in kept_ids(file))}))
    counts = Counter(label for row in train for label in set(row["labels"]))
    truth, unknown = index.encode([row["labels"] for row in dev])
    members = [kept(file, index, ids) for file in files]
    joined = cross_fitted(members, truth, [counts[label] for label in index.ids], k=20)
    values = {
        file.stem: measured(m, truth, unknown) for file, m in zip(files, members, strict=True)
    }
    values["joined"] = measured(joined, truth, unknown)
    for name, line in values.items():
        print(f"{name:16}" + "  ".join(f"{metric} {line[metric]:.2f}" for metric in METRICS))
    return {"dev": values}


def labels_of(documents: Any) -> set[str]:
    return {label for row in documents for label in row["labels"]}


def measured(found: Any, truth: Any, unknown: Any) -> dict[str, float]:
    """In percent; labels that the index lacks count as misses."""
    from labelgrove import evaluate

    values = evaluate(found, truth, unknown=unknown, metrics=METRICS)
    return {name: round(100 * float(values[name]), 2) for name in METRICS}


if __name__ == "__main__":
    main()
