"""How far the linear method's defaults are from the best of a small search, on the dev part.

    python benchmarks/defaults.py --data PATH --corpus eurlex57k|tibkat|commits|FOLDER [--limit N]
        [--only NAME,NAME] [--threads 1]

Each line of SEARCH is the default with a few settings changed, in both directions if there are two.
Labels, trees and matrices are as in ``linear.py``; training starts from the matrix. The reported
distance is the best P@1 of all lines minus the default's.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from common import arguments, read_part, report
from linear import METRICS, Matrices, label_matrices
from linear_peers import K

SEARCH: dict[str, dict[str, Any]] = {
    "default": {},
    "as PECOS": {
        "ranker": {"negatives": "tfn", "eps": 0.1},
        "search": {"post_processor": "l3-hinge", "beam": 10},
        "tree": {"max_leaf_size": 100},
    },
    "no mined negatives": {"ranker": {"negatives": "tfn"}},
    "4 mined nodes": {"ranker": {"mined_nodes": 4}},
    "16 mined nodes": {"ranker": {"mined_nodes": 16}},
    "half C": {"ranker": {"C": 0.5}},
    "twice C": {"ranker": {"C": 2.0}},
    "positive weight 2": {"ranker": {"positive_weight": 2.0}},
    "l3-hinge": {"search": {"post_processor": "l3-hinge"}},
    "beam 20": {"search": {"beam": 20}},
    "smaller clusters": {"tree": {"max_leaf_size": 30}},
    "larger clusters": {"tree": {"max_leaf_size": 200}},
    "32 children": {"tree": {"branching": 32}},
    "wide first level": {"tree": {"top_width": 128}},
    "words and pairs": {"tfidf": {"ngram_range": (1, 2)}},
    "words in 5 texts": {"tfidf": {"min_df": 5}},
    "three trees": {"n_trees": 3},
}
# Shown, but not counted, because three trees of the best setting take three times as long.
BEYOND = ("three trees",)


def main() -> None:
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("--only", help="only these lines of the search, separated by commas")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    names = list(SEARCH)
    if options.only:
        names = ["default", *(n.strip() for n in options.only.split(",") if n.strip() != "default")]
    train, dev = (
        read_part(options.data, options.corpus, part, options.limit) for part in ("train", "dev")
    )
    y, truth, unknown = label_matrices(train, dev)
    rows: dict[str, dict[str, float]] = {}
    print(f"{'':24}{'fit cpu s':>10}{'docs/cpu s':>11}{'weights M':>10}  " + " ".join(METRICS))
    # Sorted by features, so that only one pair of matrices is in memory.
    for name in sorted(names, key=lambda n: json.dumps(SEARCH[n].get("tfidf", {}))):
        made = vectorized(SEARCH[name].get("tfidf", {}), train.texts, dev.texts, options.threads)
        rows[name] = attempt(SEARCH[name], *made, y, truth, unknown, options.threads)
        m = rows[name]
        print(
            f"{name:24}{m['cpu_s']:10.1f}{m['documents_per_cpu_s']:11.0f}{m['weights'] / 1e6:10.1f}"
            "  " + " ".join(f"{m[metric]:.2f}" for metric in METRICS),
            flush=True,
        )
    counted = [name for name in rows if name not in BEYOND]
    best = {metric: max(counted, key=lambda n: rows[n][metric]) for metric in METRICS}
    distance = {metric: rows[n][metric] - rows["default"][metric] for metric, n in best.items()}
    for metric, name in best.items():
        print(f"{metric}: the best is {name!r}; the default is {distance[metric]:.2f} below it")
    result = {
        "corpus": Path(options.corpus).name,
        "documents": y.shape[0],
        "labels": y.shape[1],
        "data_sha256": train.sha256,
        "threads": options.threads,
        "rows": rows,
        "below_best": distance,
    }
    report("defaults", result, save=not options.no_save)


_made: dict[str, tuple[Any, Any]] = {}


def vectorized(
    settings: dict[str, Any], train: list[str], dev: list[str], threads: int
) -> tuple[Any, Any]:
    """Both parts as matrices; the last ones are cached."""
    from labelgrove.text.tfidf import Tfidf, TfidfParams

    key = json.dumps(settings)
    if key not in _made:
        _made.clear()
        vectorizer = Tfidf(TfidfParams(**settings), n_jobs=threads)
        _made[key] = vectorizer.fit_transform(train), vectorizer.transform(dev)
    return _made[key]


def attempt(
    settings: dict[str, Any], x: Any, dev: Any, y: Any, truth: Any, unknown: Any, threads: int
) -> dict[str, float]:
    """Trains with the default changed by ``settings`` and measures on the dev part."""
    from labelgrove.methods import create

    config = {key: value for key, value in settings.items() if key != "tfidf"}
    model = create("linear", {**config, "n_jobs": threads})
    start = time.process_time()
    model.fit(x, y)
    fitted = time.process_time() - start
    model.predict(dev[:100], k=K)
    start = time.process_time()
    found = model.predict(dev, k=K)
    seconds = time.process_time() - start
    return {
        "cpu_s": fitted,
        "documents_per_cpu_s": dev.shape[0] / seconds,
        "weights": sum(len(level.values) for ranker in model.rankers_ for level in ranker.levels),
        **Matrices(x, y, truth, unknown).judge(found.columns, found.scores),
    }


if __name__ == "__main__":
    main()
