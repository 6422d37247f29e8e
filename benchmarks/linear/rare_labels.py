"""Costs of positives by propensity in the linear method: what rare labels gain and others lose.

    python -m benchmarks.linear.rare_labels --corpus tibkat --train 40000 --limit 3000

All rankers have the features and the tree of one model. "all levels" also gives clusters the cost
of their heaviest label, "root" takes the square root of the inverse propensities, "A 0.9" is a
steeper propensity model. The default constants measure PSP in all rows.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from benchmarks.common import arguments, read_part, report

METRICS = [
    *("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@10"),
    *("head-R@10", "torso-R@10", "tail-R@10"),
]


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, help="learn from the first documents only")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Corpus, Linear, RankerParams
    from labelgrove.evaluation.metrics import Propensity, evaluate
    from labelgrove.ranking import negatives as relevance
    from labelgrove.ranking.negatives import mining_search
    from labelgrove.ranking.ranker import train_ranker

    train = read_part(options.data, options.corpus, limit=options.train)
    corpus = Corpus.from_lists(train.texts, train.labels)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    truth = Corpus.from_lists(dev.texts, dev.labels, index=corpus.index)
    inverse = relevance.label_costs

    def root(a: float, b: float, frequencies: Any) -> Any:
        costs = np.sqrt(inverse(a, b, frequencies))
        return costs * np.float32(frequencies.labels.sum() / (frequencies.labels @ costs))

    rows = []
    for seed in range(options.seeds):
        model = Linear(random_state=seed).fit(corpus)
        features, tree = model.read(train.texts), model.rankers_[0].tree
        facts = model.facts_
        heavy = corpus.labels.copy()
        heavy.data = Propensity().costs(facts.frequencies, facts.documents)[heavy.indices]
        weighted = RankerParams(label_weights="propensity")
        for name, labels, params, costs in (
            ("unweighted", corpus.labels, RankerParams(), inverse),
            ("propensity", corpus.labels, weighted, inverse),
            ("root", corpus.labels, weighted, root),
            ("A 0.9", corpus.labels, replace(weighted, propensity_a=0.9), inverse),
            ("all levels", heavy, RankerParams(label_weights="cost"), inverse),
        ):
            start = time.process_time()
            search = mining_search(model.search, params)
            with patch.object(relevance, "label_costs", costs):
                ranker = train_ranker(features, labels, tree, params, search=search, seed=seed)
            seconds = time.process_time() - start
            model.rankers_ = [ranker]
            values = evaluate(
                model.predict(dev.texts, k=10),
                truth,
                metrics=METRICS,
                train_frequencies=facts.frequencies,
                n_train=facts.documents,
            )
            row = {metric: round(100 * float(values[metric]), 2) for metric in METRICS}
            weights = sum(level.size for level in ranker.levels)
            rows.append({"seed": seed, "costs": name, **row, "cpu_s": round(seconds, 1)})
            rows[-1]["weights"] = weights
            print(json.dumps(rows[-1]), flush=True)
    sizes = {"documents": len(corpus), "labels": len(corpus.index), "dev": len(truth)}
    report(
        "rare_labels", {"corpus": options.corpus, **sizes, "rows": rows}, save=not options.no_save
    )


if __name__ == "__main__":
    main()
