"""What three trees cost in prediction, without reading texts: CPU seconds of one thread.

    python -m benchmarks.linear.trees --data PATH --corpus tibkat --train 30000 --limit 3000

With ``--candidates`` each tree finds that many labels in place of what ``ranking/ranker.py`` says.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

from benchmarks.common import arguments, cpu_seconds, read_part, report

METRICS = ("P@1", "P@3", "P@5", "R@10")


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, help="learn from the first documents only")
    parser.add_argument("--candidates", type=int, nargs="*", default=[], help="also try these")
    options = parser.parse_args()

    from labelgrove import Corpus, Linear, Predictions, evaluate
    from labelgrove.ranking import ranker

    train = read_part(options.data, options.corpus, limit=options.train)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    corpus = Corpus.from_lists(train.texts, train.labels)
    truth = Corpus.from_lists(dev.texts, dev.labels, index=corpus.index)
    models = {trees: Linear(n_trees=trees, n_jobs=1).fit(corpus) for trees in (1, 3)}
    features = {trees: model.read(dev.texts) for trees, model in models.items()}
    runs = {"1 tree": (1, ranker.candidates), "3 trees": (3, ranker.candidates)}
    runs |= {f"3 trees, {n} candidates": (3, lambda k, n=n: max(k, n)) for n in options.candidates}
    rows = []
    for name, (trees, rule) in runs.items():
        model, read = models[trees], features[trees]
        with patch.object(ranker, "candidates", rule):
            timing = cpu_seconds(
                partial(ranker.search_trees, model.rankers_, read, k=10, params=model.search),
                repeats=options.repeats,
            )
        found = Predictions(*timing.result, model.index_, "probability")
        values = evaluate(found, truth.labels, metrics=METRICS)
        rows.append({"name": name, "cpu_s": timing.median, **{m: values[m] for m in METRICS}})
        ratio = timing.median / rows[0]["cpu_s"]
        accuracy = "  ".join(f"{m} {100 * values[m]:.2f}" for m in METRICS)
        print(f"{name:24} {timing.median:7.3f} CPU s  {ratio:5.2f}x  {accuracy}", flush=True)
    facts = {"corpus": options.corpus, "train": len(corpus), "dev": rows}
    report("trees", facts, save=not options.no_save)


if __name__ == "__main__":
    main()
