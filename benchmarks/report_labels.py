"""What a report on many labels costs: time to write it, sizes, and how quick its table is.

Invented predictions: 100,000 labels with a long tail, 50,000 documents of five true and ten
predicted labels, of which about half are right. Browser times need Chromium and playwright.

    PYTHONPATH=tests python benchmarks/report_labels.py --labels 100000 --runs 1
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from labelgrove import Corpus, LabelIndex, Predictions
from labelgrove.data.facts import TrainingFacts
from labelgrove.experiments.report import measure_report
from labelgrove.experiments.report.page import write_page

STATUS = "document.querySelector('[role=status]').textContent"


def made(labels: int, documents: int, seed: int = 0) -> tuple[Corpus, list[Predictions]]:
    rng = np.random.default_rng(seed)
    index = LabelIndex(
        [f"https://example.org/subjects/{i}" for i in range(labels)],
        names=[f"Invented subject heading {i}" for i in range(labels)],
    )
    shares = np.arange(1, labels + 1) ** -0.4
    drawn = rng.choice(labels, (documents, 16), p=shares / shares.sum())
    rows = [list(dict.fromkeys(row))[:11] for row in drawn.tolist()]
    truth = [[index.ids[c] for c in row[:5]] for row in rows]
    texts = [f"Document {i} about something. " + "Words of its abstract. " * 20 for i in range(50)]
    corpus = Corpus.from_lists([texts[i % 50] for i in range(documents)], truth, index=index)
    columns = np.full((documents, 10), -1, np.int32)
    counts = np.zeros(documents, np.int32)
    for i, row in enumerate(rows):
        best = rng.permutation(row)[:10]
        columns[i, : len(best)], counts[i] = best, len(best)
    scores = np.sort(rng.random((documents, 10)).astype(np.float32), axis=1)[:, ::-1].copy()
    scores[columns < 0] = -np.inf
    other = Predictions(columns, scores, counts, index)
    return corpus, [other, Predictions(columns, scores, counts, index)]


def in_browser(file: Path) -> dict[str, float]:
    from support.browsing import browser

    def timed(page: object, action: str, words: str) -> float:
        start = time.perf_counter()
        page.evaluate(action)  # type: ignore[attr-defined]
        while words not in page.evaluate(STATUS):  # type: ignore[attr-defined]
            page.wait_for_timeout(5)  # type: ignore[attr-defined]
        return time.perf_counter() - start

    search = "(() => {{ const i = document.getElementById('label-search'); i.value = '{}'; "
    search += "i.dispatchEvent(new Event('input')); }})()"
    with browser() as started:
        page = started.new_page()
        start = time.perf_counter()
        page.goto(file.as_uri())
        seconds = {"open": time.perf_counter() - start}
        later = "document.querySelectorAll('#label-table .controls button')[1].click()"
        seconds["first use (reads the data)"] = timed(page, later, "1 to 50")
        f1 = "document.querySelectorAll('#label-table thead button')[5].click()"
        page.evaluate(later)
        seconds["sort"] = timed(page, f1, "1 to 50")
        seconds["search, with 120 ms of waiting"] = timed(
            page, search.format("heading 123"), "match"
        )
        return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100_000)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    corpus, both = made(options.labels, options.documents)
    training = TrainingFacts(10**6, np.asarray((corpus.labels > 0).sum(axis=0)).ravel(), True)
    start = time.process_time()
    report = measure_report(
        both[0], corpus, training=training, against=[both[1]] * (options.runs - 1), intervals=200
    )
    print(f"metrics, {options.runs} runs: {time.process_time() - start:.1f} CPU s")
    start = time.process_time()
    print(f"{len(report.labels):,} labels listed: {time.process_time() - start:.1f} CPU s")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.html"
        start = time.process_time()
        write_page(report, out)
        print(f"writing: {time.process_time() - start:.1f} CPU s")
        print(f"{out.name}: {out.stat().st_size / 1e6:.2f} MB")
        for what, seconds in in_browser(out).items():
            print(f"{what}: {1000 * seconds:.0f} ms")


if __name__ == "__main__":
    main()
