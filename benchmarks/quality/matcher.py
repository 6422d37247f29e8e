"""Labels by their names: linear with label names, the matcher, and both together.

    python -m benchmarks.quality.matcher --corpus tibkat --train 20000 --limit 4000

All labels of the label table are in the index, with documents or without. Documents are random ones
of each part. The merge is cross-fitted: each fifth of the dev documents is merged by what the other
fifths teach. "unseen" are labels without a training document: how many of the first five labels
are, how many of these are right, and how many true ones there are.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.common import arguments

METRICS = ["P@1", "P@3", "P@5", "R@10", "nDCG@20", "F1@5"]


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, help="learn from this many documents only")
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Corpus, Linear, Matcher, Predictions, read_corpus
    from labelgrove.core.arrays import with_values
    from labelgrove.data.formats import ReadOptions
    from labelgrove.evaluation.merge_weights import cross_fitted
    from labelgrove.evaluation.metrics import evaluate

    random = np.random.default_rng(0)

    def sampled(corpus: Corpus, count: int | None) -> Corpus:
        chosen = np.zeros(len(corpus), bool)
        chosen[random.permutation(len(corpus))[:count]] = True
        return corpus.take(chosen)

    folder = options.data / options.corpus
    train = sampled(read_corpus(folder, all_labels=True), options.train)
    how = ReadOptions(part="dev")
    dev = sampled(read_corpus(folder, index=train.index, options=how), options.limit)
    frequencies = np.bincount(train.labels.indices, minlength=len(train.index))

    def show(name: str, predictions: Predictions, seconds: float | None = None) -> None:
        values = evaluate(predictions, dev, metrics=METRICS)
        row: dict[str, Any] = {metric: round(100 * float(values[metric]), 2) for metric in METRICS}
        unseen = with_values(predictions.top(5).to_csr(), 1.0)[:, frequencies == 0]
        true = dev.labels[:, frequencies == 0]
        row["unseen"] = [int(unseen.nnz), int(unseen.multiply(true).sum()), int(true.nnz)]
        print(json.dumps({"name": name, **row, "fit_cpu_s": seconds}), flush=True)

    lists = []
    for model in (Linear(label_texts="names", n_jobs=1), Matcher(n_jobs=1)):
        start = time.process_time()
        model.fit(train)
        seconds = round(time.process_time() - start, 1)
        lists.append(model.predict(dev, k=100))
        show(model.method, lists[-1], seconds)
    show("both, learnt", cross_fitted(lists, dev.labels, frequencies, k=20))


if __name__ == "__main__":
    main()
