"""What a learnt merge of linear models and neighbours brings, cross-fitted on dev documents.

    python -m benchmarks.quality.learnt_merge --corpus tibkat --train 40000 --limit 6000
        --parts-of-words

Members are trained on a random part of the training documents; rows with rules merge them all.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.common import arguments, report

METRICS = ["P@1", "P@3", "P@5", "nDCG@20", "R@10"]


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, default=40_000, help="documents to learn from")
    parser.add_argument("--parts-of-words", action="store_true", help="one more, slow member")
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Linear, Neighbours, RankerParams, TfidfParams, evaluate, read_corpus
    from labelgrove.evaluation.merge_weights import cross_fitted
    from labelgrove.evaluation.merging import merge

    random = np.random.default_rng(1)

    def sample(part: str, most: int, **given: Any) -> Any:
        corpus = read_corpus(options.data / options.corpus / f"{part}.jsonl.xz", **given)
        rows = random.choice(len(corpus), min(most, len(corpus)), replace=False)
        return corpus.take(np.sort(rows))

    train = sample("train", options.train)
    dev = sample("dev", options.limit or 6000, index=train.index)
    rare = RankerParams(label_weights="propensity")
    members = {
        "linear, 3 trees": Linear(n_trees=3, random_state=1),
        "neighbours": Neighbours(),
        "linear for rare labels": Linear(ranker=rare, random_state=2),
    }
    if options.parts_of_words:
        parts = TfidfParams(analyzer="char_wb", ngram_range=(3, 5), max_features=300_000)
        members["linear on parts of words"] = Linear(tfidf=parts, random_state=3)
    lists = {name: model.fit(train).predict(dev, k=100) for name, model in members.items()}
    rows = dict(lists)
    found, frequencies = list(lists.values()), members["neighbours"].facts_.frequencies
    rows["mean"] = merge(found, k=20)
    rows["rank"] = merge(found, k=20, rule="rank", places=100)
    start = time.process_time()
    rows["no bins"] = cross_fitted(found, dev.labels, np.ones(len(dev.index)), k=20)
    rows["learnt"] = cross_fitted(found, dev.labels, frequencies, k=20)
    seconds = (time.process_time() - start) / 2
    measured = {
        name: {
            metric: round(100 * value, 2)
            for metric, value in evaluate(
                predictions, dev.labels, unknown=dev.unknown, metrics=METRICS
            ).values.items()
        }
        for name, predictions in rows.items()
    }
    for name, values in measured.items():
        print(name, *values.values())
    result = {"corpus": options.corpus, "train": len(train), "dev": len(dev)}
    report(
        "learnt_merge",
        result | {"rows": measured, "cross_fitting_cpu_seconds": round(seconds, 2)},
        save=not options.no_save,
    )


if __name__ == "__main__":
    main()
