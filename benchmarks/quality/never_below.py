"""Whether a method with nothing set falls below the linear one, on documents that neither has seen.

    python -m benchmarks.quality.never_below --data FOLDER --encoder PATH --out FILE [--device cuda]
        [--minutes 9] [--methods lightxml cascadexml,ranker.dense_C=1.0 ...]

Every folder in FOLDER with a train.* and a test.* file is a corpus. A method may be followed by
settings, separated by commas; these rows find the network of the same method in FILE.runs. A row
that FILE has is not computed again, so repeat the command until it says that nothing is left. The
table has the difference to linear in points, with its paired standard error over resampled test
documents. A difference below minus two of these is marked with "!".
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Part, read_part

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
METHODS = ["lightxml", "cascadexml", "xrtransformer", "xtransformer"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, read and appended to")
    parser.add_argument("--encoder", help="a pretrained encoder; the methods' own by default")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after these")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    rows = read_rows(options.out)
    left = []
    for folder in sorted(path.parent for path in options.data.glob("*/train.*")):
        todo = [m for m in options.methods if (folder.name, m) not in rows]
        if todo and time.monotonic() < end:
            train, test = (read_part(options.data, folder.name, part) for part in ("train", "test"))
            linear = fitted("linear", train, options)
        for method in todo:
            if time.monotonic() > end:
                left.append(f"{folder.name} {method}")
                continue
            row = {"corpus": folder.name, "method": method}
            row |= measured(method, linear, train, test, options)
            rows[folder.name, method] = row
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    show(list(rows.values()))
    print(f"left: {', '.join(left)}" if left else "nothing is left")


def read_rows(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of earlier runs."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = map(json.loads, lines)
    return {(row["corpus"], row["method"]): row for row in rows}


def fitted(method: str, train: Part, options: argparse.Namespace) -> Any:
    """The method, trained with nothing set but what follows its name."""
    from labelgrove import Corpus
    from labelgrove.core.params import parse_setting
    from labelgrove.disk.run_folder import RunFolder
    from labelgrove.methods import create

    name, *settings = method.split(",")
    config: dict[str, Any] = {}
    if name != "linear":
        config["device"] = options.device
        if options.encoder:
            config["encoder"] = {"encoder": options.encoder}
    for setting in settings:
        key, value = parse_setting(setting)
        group, _, field = key.rpartition(".")
        (config.setdefault(group, {}) if group else config)[field] = value
    runs = options.out.with_suffix(".runs") / f"{train.sha256[:12]}-{name}"
    runs.parent.mkdir(exist_ok=True)
    with RunFolder(runs) as run:
        return create(name, config).fit(Corpus.from_lists(train.texts, train.labels), run=run)


def measured(
    method: str, linear: Any, train: Part, test: Part, options: argparse.Namespace
) -> dict[str, Any]:
    """The method beside the linear one, in percent."""
    from labelgrove import Corpus
    from labelgrove.evaluation.metrics import compare_all

    start = time.monotonic()
    model = fitted(method, train, options)
    seconds = time.monotonic() - start
    truth = Corpus.from_lists(test.texts, test.labels, index=linear.index_)
    facts = linear.facts_
    result = compare_all(
        [model.predict(test.texts, k=10), linear.predict(test.texts, k=10)],
        truth,
        metrics=METRICS,
        train_frequencies=facts.frequencies,
        n_train=facts.documents,
    ).pairs[0, 1]
    errors = {name: (high - low) / (2 * 1.96) for name, (low, high) in result.intervals.items()}
    return {
        "documents": facts.documents,
        "labels": len(linear.index_),
        "rare": float((facts.frequencies < 5).mean()),
        "test": len(truth),
        "linear": points(result.first.values),
        "own": points(result.second.values),
        "difference": points(result.differences),
        "error": points(errors),
        "fit_s": round(seconds, 1),
    }


def points(values: Any) -> dict[str, float]:
    return {name: round(100 * float(values[name]), 2) for name in METRICS}


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'corpus':16}{'method':36}{'fit s':>7}  " + "".join(f"{m:>15}" for m in METRICS))
    below = 0
    for row in sorted(rows, key=lambda row: (row["corpus"], row["method"])):
        cells = ""
        for name in METRICS:
            change, error = row["difference"][name], row["error"][name]
            mark = "!" if change < -2 * error else " "
            below += mark == "!"
            cells += f"{change:+8.2f}±{error:4.2f} {mark}"
        print(f"{row['corpus']:16}{row['method']:36}{row['fit_s']:7.0f}  {cells}")
    for row in {row["corpus"]: row for row in rows}.values():
        values = " ".join(f"{row['linear'][name]:.2f}" for name in METRICS)
        print(
            f"{row['corpus']}: {row['documents']:,} documents, {row['labels']:,} labels "
            f"({row['rare']:.0%} with fewer than 5), {row['test']:,} to test; linear {values}"
        )
    print(f"{below} differences are below minus two standard errors")


if __name__ == "__main__":
    main()
