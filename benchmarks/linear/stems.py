"""Words, or words and their stems: what the linear method gains by language, and what it costs.

    python -m benchmarks.linear.stems --data DIR --corpus tibkat --train 20000 --limit 4000

Both rows learn from the same random documents; another seed draws others. Languages are guessed as
the analyser guesses them.
"""

from __future__ import annotations

import json
import time
from typing import Any

from benchmarks.common import arguments, report

METRICS = ["P@1", "P@3", "P@5", "nDCG@20"]
LANGUAGES = ("German", "English")


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Linear, TfidfParams, read_corpus
    from labelgrove.data.formats import ReadOptions
    from labelgrove.data.languages import language_of
    from labelgrove.data.records import words_of
    from labelgrove.evaluation.metrics import evaluate

    folder = options.data / options.corpus
    full = read_corpus(folder)
    dev = read_corpus(folder, index=full.index, options=ReadOptions(part="dev"))
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        random = np.random.default_rng(seed)
        train = full.take(np.sort(random.permutation(len(full))[: options.train]))
        validation = dev.take(np.sort(random.permutation(len(dev))[: options.limit]))
        languages = np.array([language_of(words_of(text)) for text in validation.texts])
        for analyzer in ("word", "stem"):
            start = time.process_time()
            model = Linear(tfidf=TfidfParams(analyzer=analyzer), random_state=seed).fit(train)
            seconds = round(time.process_time() - start, 1)
            predictions = model.predict(validation, k=20)
            values = evaluate(predictions, validation, metrics=METRICS)
            row = {metric: round(100 * float(values[metric]), 2) for metric in METRICS}
            for language in LANGUAGES:
                own = np.flatnonzero(languages == language)
                if not len(own):
                    continue
                part = evaluate(predictions.of_rows(own), validation.take(own), metrics=["nDCG@20"])
                row[language] = round(100 * float(part["nDCG@20"]), 2)
            rows.append({"seed": seed, "analyzer": analyzer, **row, "fit_cpu_s": seconds})
            print(json.dumps(rows[-1]), flush=True)
    sizes = {"corpus": options.corpus, "documents": options.train, "dev": options.limit}
    report("stems", {**sizes, "rows": rows}, save=not options.no_save)


if __name__ == "__main__":
    main()
