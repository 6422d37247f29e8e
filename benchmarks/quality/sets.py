"""Sets of labels instead of lists: micro-F1, macro-F1 and F1 per document, by how sets are chosen.

    python -m benchmarks.quality.sets --data PATH --corpus eurlex57k
    python -m benchmarks.quality.sets --data PATH --corpus eurlex57k A.npz B.npz C.npz

The first form trains the linear method with three trees (``--train``: on so many documents). The
second reads the best labels of models that are already trained, as ``neural.py --keep`` and
``competition.py --keep`` write them; several are joined by a learnt merge. Each half of dev gets
the sets that the other half taught: the merge, the probabilities and the thresholds. The numbers
are over the whole dev part. Labels that training lacks count as misses.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, read_part, report
from benchmarks.networks.neural import KEPT, keep
from benchmarks.quality.neural_ensemble import kept

METRICS = ["micro-P@set", "micro-R@set", "micro-F1@set", "macro-F1@set", "F1@set"]
# How sets are chosen: arguments of calibrate.
RULES: dict[str, dict[str, Any]] = {
    "micro-F1, one threshold": {"target": "micro-F1"},
    "macro-F1, by frequency": {"target": "macro-F1"},
    "document-F1, expected": {"target": "document-F1"},
}


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("files", nargs="*", type=Path, help="files that --keep wrote")
    parser.add_argument("--train", type=int, help="so many random training documents")
    parser.add_argument("--seed", type=int, default=0, help="of the trees and of --train")
    parser.add_argument("--keep", type=Path, help="file for the best labels of the linear method")
    parser.add_argument("--k", type=int, default=20, help="labels per document to choose from")
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Corpus, Linear
    from labelgrove.data.facts import TrainingFacts

    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    learnt = Corpus.from_lists(train.texts, train.labels)
    if options.train is not None:
        rows = np.random.default_rng(options.seed).permutation(len(learnt))[: options.train]
        rows.sort()
        texts, labels = ([part[row] for row in rows] for part in (train.texts, train.labels))
        learnt = Corpus.from_lists(texts, labels)
    # Documents are known by their numbers: what models say of them is read from files.
    numbers = [str(number) for number in range(len(dev.texts))]
    truth = Corpus.from_lists(numbers, dev.labels, index=learnt.index)
    facts = TrainingFacts.of(learnt)
    start = time.process_time()
    if options.files:
        members = [kept(file, learnt.index) for file in options.files]
    else:
        model = Linear(n_trees=3, random_state=options.seed).fit(learnt)
        members = [model.predict(dev.texts, k=KEPT)]
        if options.keep is not None:
            keep(members[0], options.keep)
    seconds = time.process_time() - start
    values = measured(members, truth, facts, options.k)
    print(f"{'':40}" + "".join(f"{name:>14}" for name in [*METRICS, "labels"]))
    for name, line in values.items():
        print(f"{name:40}" + "".join(f"{value:14.2f}" for value in line.values()))
    result = {
        "corpus": options.corpus,
        "data_sha256": train.sha256,
        "train": len(learnt),
        "members": [file.stem for file in options.files] or ["linear, 3 trees"],
        "k": options.k,
        "seed": options.seed,
        "cpu_seconds": round(seconds, 1),
    }
    report("sets", result | {"dev": values}, save=not options.no_save)


def measured(members: list[Any], truth: Any, facts: Any, k: int) -> dict[str, dict[str, float]]:
    """Metrics of sets by how these are chosen, in percent; and how many labels documents get."""
    import numpy as np

    from labelgrove import Predictions, calibrate, evaluate
    from labelgrove.evaluation.merge_weights import cross_fitted, learn_merge

    half = np.random.default_rng(0).permutation(len(truth)) % 2 == 0
    sets: dict[str, list[Any]] = {}
    for teaching in (half, ~half):
        ours, theirs = ([part.of_rows(rows) for part in members] for rows in (teaching, ~teaching))
        own, other = ours[0], theirs[0]
        if len(members) > 1:
            labels = truth.labels[teaching]
            own = cross_fitted(ours, labels, facts.frequencies, k=KEPT)
            other = learn_merge(ours, labels, facts.frequencies)(theirs, k=KEPT)
        own, other = own.top(k), other.top(k)
        sets.setdefault("scores from 0.5", []).append(
            other.above(0.0 if other.score_kind == "margin" else 0.5)
        )
        sets.setdefault("five best", []).append(other.top(5))
        model = Given(own, np.flatnonzero(teaching), facts)
        corpus = truth.take(np.flatnonzero(teaching))
        for by in ("none", "frequency"):
            for name, how in RULES.items():
                calibration = calibrate(model, corpus, kind="isotonic", by=by, k=k, **how)
                name = name if by == "none" else f"{name}; by={by}"
                sets.setdefault(name, []).append(calibration.choose(calibration(other)))
    order = np.argsort(np.concatenate([np.flatnonzero(~half), np.flatnonzero(half)]))
    values = {}
    for name, parts in sets.items():
        joined = Predictions.concat(parts).of_rows(order)
        found = evaluate(joined, truth, metrics=METRICS)
        values[name] = {metric: round(100 * found[metric], 2) for metric in METRICS}
        values[name]["labels"] = round(float(joined.counts.mean()), 2)
    return values


class Given:
    """Predictions that are known beforehand, as a model; documents are called by their numbers."""

    method = "given"
    fitted = True
    calibration_: Any = None

    def __init__(self, predictions: Any, rows: Any, facts: Any) -> None:
        self.predictions, self.facts_, self.index_ = predictions, facts, predictions.index
        self._place = {str(row): place for place, row in enumerate(rows.tolist())}

    def trees(self) -> dict[str, Any]:
        return {}

    def predict(self, X: Any, k: int = 5, **options: Any) -> Any:
        return self.predictions.of_rows([self._place[text] for text in X.texts]).top(k)


if __name__ == "__main__":
    main()
