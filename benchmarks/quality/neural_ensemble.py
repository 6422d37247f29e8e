"""Models that are already trained, combined by the rules of ensembles.

    python -m benchmarks.quality.neural_ensemble --data PATH --corpus eurlex57k A.npz B.npz C.npz

The files were written by ``neural.py --keep``: the best labels of each model on the dev part. All
have the same weight, except by the rule ``learnt``, which is cross-fitted on these documents.
``gain`` is in P@5 over the best of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, read_part, report
from benchmarks.networks.neural import KEPT, accuracy

RULES = ("mean", "rank", "softmax", "sigmoid")


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("files", nargs="+", type=Path, help="files that neural.py --keep wrote")
    options = parser.parse_args()

    from labelgrove import Corpus
    from labelgrove.data.facts import TrainingFacts
    from labelgrove.errors import ConfigError
    from labelgrove.evaluation.merge_weights import cross_fitted
    from labelgrove.evaluation.merging import merge

    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    learnt = Corpus.from_lists(train.texts, train.labels)
    judged = Corpus.from_lists(dev.texts, dev.labels, index=learnt.index)
    members = {file.stem: kept(file, learnt.index) for file in options.files}
    values = {name: accuracy(found, judged, learnt) for name, found in members.items()}
    best = max(value["P@5"] for value in values.values())
    for rule in RULES:
        try:
            joined = merge(list(members.values()), k=10, rule=rule, places=KEPT)
        except ConfigError as error:  # margins and probabilities cannot be averaged
            print(f"{rule}: {error}")
            continue
        values[rule] = accuracy(joined, judged, learnt)
    if len(members) > 1:
        frequencies = TrainingFacts.of(learnt).frequencies
        joined = cross_fitted(list(members.values()), judged.labels, frequencies, k=10)
        values["learnt"] = accuracy(joined, judged, learnt)
    for rule in set(values) - set(members):
        values[rule]["gain"] = round(values[rule]["P@5"] - best, 3)
    for name, value in values.items():
        print(f"{name:12s} {value}")
    report(
        "neural_ensemble",
        {"corpus": options.corpus, "data_sha256": train.sha256, "dev": values},
        save=not options.no_save,
    )


def kept(file: Path, index: Any, ids: Sequence[str] | None = None) -> Any:
    """The labels that ``keep`` wrote, as columns of an index that has them all, in its order.

    A file without ids of labels (of an earlier day) has those in ``ids``, or all of the index.
    """
    import numpy as np

    from labelgrove.evaluation.predictions import Predictions

    with np.load(file) as arrays:
        columns, scores = arrays["columns"], arrays["scores"].astype(np.float32)
        kind = str(arrays["kind"])
    own = kept_ids(file) or (index.ids if ids is None else ids)
    if columns.max(initial=-1) >= len(own):
        raise SystemExit(f"{file}: it has other labels than these documents; write it again")
    places = np.array([index.get(label) for label in own], np.int32)
    columns = np.where(columns >= 0, places[columns], -1).astype(np.int32)
    counts = (columns >= 0).sum(1).astype(np.int32)
    return Predictions(columns, scores, counts, index, kind)


def kept_ids(file: Path) -> list[str]:
    """The ids of the labels of a file, if it has them."""
    import numpy as np

    with np.load(file) as arrays:
        return list(map(str, arrays["labels"])) if "labels" in arrays else []


if __name__ == "__main__":
    main()
