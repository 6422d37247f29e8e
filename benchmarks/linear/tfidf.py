"""Tf-idf throughput, MB of text per CPU second: labelgrove, scikit-learn and, if given, PECOS.

    python -m benchmarks.linear.tfidf --data PATH --corpus eurlex57k [--limit N]
        [--pecos-python PATH]

One thread; word unigrams, lower case, sublinear, l2, min_df 2 (PECOS splits at spaces and cannot
lower-case). Texts are a list of str in memory. labelgrove and scikit-learn must agree.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Timing, arguments, cpu_seconds, read_part, report

Rates = dict[str, float]


def main() -> None:
    if sys.argv[1:2] == ["--as-pecos"]:
        run_as_pecos(Path(sys.argv[2]), int(sys.argv[3]))
        return
    parser = arguments(__doc__ or "", corpus="eurlex57k")
    parser.add_argument("--pecos-python", help="interpreter of an environment that has libpecos")
    parser.add_argument("--peer-repeats", type=int, default=1, help="repeats of the slower peers")
    options = parser.parse_args()
    part = read_part(options.data, options.corpus, limit=options.limit)
    size = part.megabytes
    print(f"{options.corpus}: {len(part.texts):,} documents, {size:.1f} MB", flush=True)

    ours, our_rows = labelgrove_rates(part.texts, size, options.repeats)
    rates = {"labelgrove": ours}
    rates["scikit-learn"], their_rows = sklearn_rates(part.texts, size, options.peer_repeats)
    difference = float(abs(our_rows - their_rows).max())
    if options.pecos_python:
        rates["pecos"] = pecos_rates(options.pecos_python, part.texts, size, options.peer_repeats)
    ratios = {
        peer: {step: ours[step] / rate for step, rate in rates[peer].items()}
        for peer in rates
        if peer != "labelgrove"
    }
    for name, values in rates.items():
        steps = "  ".join(f"{step} {rate:7.1f}" for step, rate in values.items())
        print(f"{name:14} MB per CPU second: {steps}")
    for peer, values in ratios.items():
        steps = "  ".join(f"{step} {ratio:.1f}x" for step, ratio in values.items())
        print(f"labelgrove compared with {peer}: {steps}")
    print(f"largest difference to scikit-learn: {difference:.1e}")
    report(
        "tfidf",
        {
            "corpus": options.corpus,
            "documents": len(part.texts),
            "megabytes": round(size, 1),
            "data_sha256": part.sha256,
            "features": our_rows.shape[1],
            "repeats": options.repeats,
            "mb_per_cpu_second": rates,
            "ratios": ratios,
            "largest_difference": difference,
        },
        save=not options.no_save,
    )


def rate(size: float, timing: Timing[Any]) -> float:
    return size / timing.median


def labelgrove_rates(texts: list[str], size: float, repeats: int) -> tuple[Rates, Any]:
    from labelgrove.text.tfidf import Tfidf, TfidfParams
    from labelgrove.text.unicode_tables import char_tables

    char_tables(lowercase=True, strip_accents=False)  # once per process, not per text
    tfidf = Tfidf(TfidfParams(min_df=2), n_jobs=1)
    fit = cpu_seconds(lambda: tfidf.fit(texts), repeats=repeats)
    transform = cpu_seconds(lambda: tfidf.transform(texts), repeats=repeats)
    both = cpu_seconds(lambda: tfidf.fit_transform(texts), repeats=repeats)
    return {
        "fit": rate(size, fit),
        "transform": rate(size, transform),
        "fit_transform": rate(size, both),
    }, transform.result


def sklearn_rates(texts: list[str], size: float, repeats: int) -> tuple[Rates, Any]:
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    fit = cpu_seconds(lambda: vectorizer.fit(texts), repeats=repeats)
    transform = cpu_seconds(lambda: vectorizer.transform(texts), repeats=repeats)
    return {"fit": rate(size, fit), "transform": rate(size, transform)}, transform.result


def pecos_rates(python: str, texts: list[str], size: float, repeats: int) -> Rates:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "texts.json"
        path.write_text(json.dumps(texts))
        run = subprocess.run(
            [python, "-m", "benchmarks.linear.tfidf", "--as-pecos", str(path), str(repeats)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    seconds = json.loads(run.stdout.splitlines()[-1])
    return {step: size / value for step, value in seconds.items()}


def run_as_pecos(path: Path, repeats: int) -> None:
    """Runs under PECOS's own interpreter; prints median CPU seconds as JSON."""
    from pecos.utils.featurization.text.vectorizers import Tfidf

    texts = json.loads(path.read_text())
    config = {"min_df_cnt": 2, "sublinear_tf": True, "norm": "l2", "threads": 1}
    fit = cpu_seconds(lambda: Tfidf.train(texts, dict(config)), repeats=repeats)
    transform = cpu_seconds(lambda: fit.result.predict(texts, threads=1), repeats=repeats)
    print(json.dumps({"fit": fit.median, "transform": transform.median}))


if __name__ == "__main__":
    main()
