"""What share of an ensemble's gain one model keeps that learns from its scores.

    python benchmarks/distillation.py --corpus tibkat --train 20000 --unlabelled 30000 --limit 5000
    python benchmarks/distillation.py --corpus tibkat --train 20000 --unlabelled 30000 \
        --method cascadexml --encoder FOLDER --teacher-scores scores.npz --rows alone,targets

The teacher joins three linear trees, neighbours and a matcher by the rule "learnt"; with --method
cascadexml a network as well. It learns from --train documents. "alone" is the student's method on
the same documents, the other rows are students. Unlabelled documents are further ones of the
training part without their labels. The share is (student - alone) / (teacher - alone).
--teacher-scores FILE.npz reads the teacher's scores, or writes them if there is no such file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from common import arguments, report

METRICS = ["P@1", "P@3", "P@5", "nDCG@20", "R@10"]
KEPT = 20  # labels per document of the teacher's lists


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--train", type=int, default=20_000, help="documents with labels")
    parser.add_argument("--unlabelled", type=int, default=30_000)
    parser.add_argument("--method", choices=["linear", "cascadexml"], default="linear")
    parser.add_argument("--encoder", default="gte-small", help="of cascadexml")
    parser.add_argument("--teacher-scores", type=Path)
    parser.add_argument("--rows", default="", help="only these students, separated by commas")
    parser.add_argument("--set", action="append", default=[], help="a setting of --method")
    parser.add_argument("--seed", type=int, default=0, help="of --method")
    options = parser.parse_args()

    import numpy as np

    from labelgrove import Corpus, Ensemble, Linear, Matcher, Neighbours, Predictions, read_corpus
    from labelgrove.core.params import merge_settings
    from labelgrove.distilling.run import DistilParams, lesson_of, soft_learner
    from labelgrove.formats import ReadOptions
    from labelgrove.methods import create
    from labelgrove.metrics import evaluate

    random = np.random.default_rng(0)
    folder = options.data / options.corpus
    full = read_corpus(folder)
    dev = read_corpus(folder, index=full.index, options=ReadOptions(part="dev"))
    order = random.permutation(len(full))
    ends = options.train, options.train + options.unlabelled
    train, rest = (full.take(np.sort(rows)) for rows in (order[: ends[0]], order[slice(*ends)]))
    dev = dev.take(np.sort(random.permutation(len(dev))[: options.limit]))
    # Without held-out documents, as a student has none either.
    network = {"encoder": {"encoder": options.encoder}, "held_out": 0.0, "baseline": False}
    tables = merge_settings(network if options.method == "cascadexml" else {}, options.set)
    tables["random_state"] = options.seed

    def measured(predictions: Predictions) -> dict[str, float]:
        values = evaluate(predictions, dev, metrics=METRICS)
        return {metric: round(100 * float(values[metric]), 2) for metric in METRICS}

    def taught() -> dict[str, Predictions]:
        members: list[Any] = [Linear(n_trees=3), Neighbours(), Matcher()]
        if options.method == "cascadexml":
            members.append(create("cascadexml", tables))
        teacher = Ensemble(members, rule="learnt").fit(train)
        parts = {"dev": dev, "train": train, "rest": rest}
        return {name: teacher.predict(part, k=KEPT) for name, part in parts.items()}

    start = time.process_time()
    file = options.teacher_scores
    if file is not None and file.exists():
        scores = loaded(file, full.index)
    else:
        scores = taught()
        if file is not None:
            save(file, scores)
    rows: dict[str, dict[str, Any]] = {"teacher": measured(scores["dev"])}
    rows["teacher"]["cpu_seconds"] = round(time.process_time() - start)
    print(json.dumps({"name": "teacher", **rows["teacher"]}), flush=True)

    def show(name: str, model: Any, lesson: Corpus) -> None:
        if options.rows and name != "alone" and name not in options.rows.split(","):
            return
        wall, start = time.perf_counter(), time.process_time()
        rows[name] = values = measured(model.fit(lesson).predict(dev, k=KEPT))
        values["cpu_seconds"] = round(time.process_time() - start)
        values["seconds"] = round(time.perf_counter() - wall)
        base, best = rows["alone"], rows["teacher"]
        gains = {m: 100 * (values[m] - base[m]) / (best[m] - base[m]) for m in METRICS}
        values["share"] = {metric: round(gain) for metric, gain in gains.items()}
        print(json.dumps({"name": name, **values}), flush=True)

    alone = create(options.method, tables)
    student = soft_learner(alone)
    show("alone", alone, train)
    for least in (0.1, 0.2, 0.3):
        lesson = lesson_of(train, None, (rest.texts, scores["rest"]), DistilParams(least=least))
        show(f"unlabelled {least}", student, lesson)
    mixed = DistilParams(share=0.5, least=0.1)
    show("train 0.5", student, lesson_of(train, scores["train"], None, mixed))
    further = rest.texts, scores["rest"]
    show("both 0.5", student, lesson_of(train, scores["train"], further, mixed))
    more = {"label_texts": "names"}
    show("names alone", create(options.method, tables | more), train)
    lesson = lesson_of(train, None, further, DistilParams(least=0.2))
    show("names unlabelled 0.2", soft_learner(create(options.method, tables | more)), lesson)
    result = {"corpus": options.corpus, "method": options.method, "train": len(train)}
    result |= {"unlabelled": len(rest), "dev": len(dev), "seed": options.seed, "rows": rows}
    report("distillation", result, save=not options.no_save)


def save(file: Path, scores: dict[str, Any]) -> None:
    """Halves are enough for targets, and the file may have to travel."""
    import numpy as np

    arrays = {}
    for name, part in scores.items():
        arrays |= {f"{name}.columns": part.columns, f"{name}.scores": part.scores.astype("f2")}
    np.savez_compressed(file, **arrays)


def loaded(file: Path, index: Any) -> dict[str, Any]:
    import numpy as np

    from labelgrove import Predictions

    with np.load(file) as arrays:
        return {
            name: Predictions(
                (columns := arrays[f"{name}.columns"]),
                arrays[f"{name}.scores"].astype(np.float32),
                (columns >= 0).sum(1).astype(np.int32),
                index,
                "probability",
            )
            for name in ("dev", "train", "rest")
        }


if __name__ == "__main__":
    main()
