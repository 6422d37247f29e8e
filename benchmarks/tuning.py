"""The gain of a search for settings over the defaults, and the time that shared stages save.

    python benchmarks/tuning.py --data DIR --corpus tibkat --limit 15000 [--budget 10m]

Settings are chosen on half of the dev part and measured on the other half. The saving compares the
CPU seconds of the same trials with and without shared stages: once over settings of the ranker
alone, once over the built-in space.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

from common import arguments, read_part, report

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
RANKER = {
    "ranker.C": {"low": 0.1, "high": 10.0, "log": True},
    "ranker.positive_weight": {"low": 0.5, "high": 4.0, "log": True},
}


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--budget", default="10m", help="time of the search")
    parser.add_argument("--metric", default="nDCG@5", help="metric to maximise")
    parser.add_argument("--trials", type=int, default=6, help="trials to repeat without sharing")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--method", default="linear")
    parser.add_argument("--set", action="append", default=[], help="settings all trials share")
    parser.add_argument("--dev-limit", type=int, help="use only so many documents of the dev part")
    parser.add_argument("--sharing-only", action="store_true", help="skip the search")
    options = parser.parse_args()

    from labelgrove import Corpus
    from labelgrove.core.params import merge_settings
    from labelgrove.experiments.tuning.search import tune

    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.dev_limit)
    corpus = Corpus.from_lists(train.texts, train.labels)
    halves = [
        Corpus.from_lists(
            list(islice(dev.texts, start, None, 2)),
            list(islice(dev.labels, start, None, 2)),
            index=corpus.index,
        )
        for start in (0, 1)
    ]
    base = merge_settings({"n_jobs": options.threads}, options.set)

    def searched(**settings: Any) -> tuple[Any, float, float]:
        cpu, wall = time.process_time(), time.perf_counter()
        found = tune(
            options.method, corpus, halves[0], base=base, metric=options.metric, **settings
        )
        return found, time.process_time() - cpu, time.perf_counter() - wall

    result: dict[str, Any] = {
        "corpus": options.corpus,
        "documents": len(corpus),
        "labels": len(corpus.index),
        "data": [train.sha256, dev.sha256],
        "method": options.method,
        "settings": options.set,
        "metric": options.metric,
        "threads": options.threads,
    }
    for name, space in (("ranker settings", RANKER), ("built-in space", None)):
        trials: dict[str, Any] = {"trials": options.trials, "space": space, "halving": False}
        _, shared, _ = searched(**trials, budget="10h")
        _, alone, _ = searched(**trials, budget="10h", reuse=False)
        result[name] = {"shared": shared, "alone": alone, "ratio": round(alone / shared, 2)}
        print(name, result[name], flush=True)
    if options.sharing_only:
        report("tuning", result, save=not options.no_save)
        return
    found, cpu, wall = searched(budget=options.budget)
    print(found.table(), flush=True)
    result |= {
        "budget": options.budget,
        "seconds": {"wall": round(wall, 1), "cpu": round(cpu, 1)},
        "trials": len(found.trials),
        "complete": sum(t.state == "complete" for t in found.trials),
        "chosen": found.to_json()["settings"],
        "importances": found.importances,
        "defaults": measured(options.method, base, corpus, halves[1]),
        "tuned": measured(options.method, found.config, corpus, halves[1]),
    }
    report("tuning", result, save=not options.no_save)


def measured(method: str, config: Any, corpus: Any, test: Any) -> dict[str, float]:
    """Metrics in percent on documents that no setting was chosen on, and training CPU seconds."""
    from labelgrove.evaluation.metrics import evaluate
    from labelgrove.methods import create

    model = create(method, config).fit(corpus)
    found = evaluate(
        model.predict(test, k=10),
        test.labels,
        unknown=test.unknown,
        metrics=METRICS,
        train_frequencies=model.facts_.frequencies,
        n_train=model.facts_.documents,
    )
    spent = sum(timing.cpu for timing in model.timings_.values())
    return {name: round(100 * found[name], 2) for name in METRICS} | {"cpu": round(spent, 2)}


if __name__ == "__main__":
    main()
