"""Compare a neural method with the linear one on two CPU cores: ``make demo-neural``.

The corpus is already on your machine: the first paragraphs of the docstrings of Python's standard
library, NumPy, SciPy, scikit-learn and NetworkX. The labels are the modules they belong to. A
pretrained encoder helps with such short texts by many authors, because it knows words that do not
occur in training. Both methods learn from the same documents and are measured on others. If the
cores are busy, these are fewer documents, so that it takes about five minutes; where fifteen other
programs shared two cores, it took eleven.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from docstrings import PACKAGES, docstring_documents
from labelgrove import Corpus, LightXML, Linear
from labelgrove.core.callbacks import Callback, RichProgress
from labelgrove.evaluation.metrics import Comparison, compare_all
from labelgrove.methods.auto.trials import Clock, OutOfTimeError, pace

MINUTES = 5
AFTERWARDS = 60  # seconds, on busy cores: the linear method, measuring, saving
FEWEST = 100  # documents
METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "R@10"]
SETTINGS: dict[str, Any] = {
    # Docstrings begin with what matters.
    "encoder": {"encoder": "all-MiniLM-L6-v2", "max_tokens": 32},
    "heads": {"dropout": 0.3},
    "training": {"lr": 2e-4, "head_lr": 2e-3, "batch_size": 32, "average": "none"},
    "held_out": 0.05,
}
QUESTIONS = [
    "the quickest route between two places on a map",
    "send a letter with an attached picture",
    "throw-away storage that vanishes by itself",
    "are the averages of two groups really different",
    "remove the hiss from a sound recording",
]

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=3000, help="documents to train on")
    parser.add_argument("--test", type=int, default=1000, help="documents to measure on")
    parser.add_argument(
        "--epochs", type=float, default=4, help="passes over the training documents"
    )
    parser.add_argument(
        "--packages", nargs="+", default=PACKAGES, help="read the docstrings of these"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-neural-model"))
    options = parser.parse_args()
    start, clock = time.perf_counter(), Clock(60 * MINUTES - AFTERWARDS)
    console.print(f"This takes up to {MINUTES} minutes on two cores.")
    train, test = parts(options)

    # A second thread on a core that others use makes the first one wait.
    threads = 1 if os.getloadavg()[0] > (os.cpu_count() or 1) else None
    common = {"random_state": options.seed, "n_jobs": threads}
    training = SETTINGS["training"] | {"epochs": options.epochs}
    neural = LightXML(**SETTINGS | {"training": training} | common)
    linear = Linear(**common)
    train, neural_seconds = fitted_in_time(neural, train, clock)
    seconds = [fitted(linear, train), neural_seconds]
    neural.save(options.out, overwrite=True)

    predictions = [model.predict(test, k=10) for model in (neural, linear)]
    comparison = compare_all(predictions, test, metrics=METRICS).pairs[0, 1]
    print_table(comparison, seconds)
    console.print(verdict(comparison, seconds))
    print_answers(linear, neural)
    console.print(
        f"\nThis took {time.perf_counter() - start:.0f} s. The model is in {options.out}. Try:\n"
        f"  echo 'WORDS' | {command_name()} predict {options.out} - --k 5",
        markup=False,
    )


def parts(options: Any) -> tuple[Corpus, Corpus]:
    """Random documents to train on and to measure on."""
    console.print("Reading the docstrings on this machine (nothing is downloaded).")
    documents = docstring_documents(options.packages)
    random.Random(options.seed).shuffle(documents)
    test, train = documents[: options.test], documents[options.test :][: options.documents]
    learn = Corpus.from_lists([d.text for d in train], [list(d.labels) for d in train])
    console.print(
        f"{len(learn):,} functions and classes for training, {len(test):,} for testing, "
        f"{len(learn.index):,} modules as labels."
    )
    measure = Corpus.from_lists(
        [d.text for d in test], [list(d.labels) for d in test], index=learn.index
    )
    return learn, measure


def fitted(model: Any, train: Corpus, *callbacks: Callback) -> float:
    start = time.perf_counter()
    with RichProgress() as progress:
        model.fit(train, callbacks=[progress, *callbacks])
    return time.perf_counter() - start


def fitted_in_time(model: Any, train: Corpus, clock: Clock) -> tuple[Corpus, float]:
    """Trains on as many documents as the clock allows; returns them and the seconds."""
    console.print(f"Training LightXML on {len(train):,} documents.")
    try:
        return train, fitted(model, train, pace(clock))
    except OutOfTimeError as error:
        share = max(0.0, 0.5 * clock.left / error.seconds)  # the other half is for predicting
        train = train.take(range(max(FEWEST, int(share * len(train)))))
        console.print(f"The cores are busy: this {error}. {len(train):,} documents have to do.")
        return train, fitted(model, train)


def print_table(comparison: Comparison, seconds: list[float]) -> None:
    table = Table(title=f"{comparison.first.n:,} unseen docstrings")
    for column in ("measure", "linear", "LightXML", "difference, 95 % interval"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for name in METRICS:
        low, high = comparison.intervals[name]
        table.add_row(
            name,
            f"{100 * comparison.first[name]:.1f} %",
            f"{100 * comparison.second[name]:.1f} %",
            f"{100 * comparison.differences[name]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})",
        )
    table.add_section()
    table.add_row("training", *(f"{spent:.1f} s" for spent in seconds))
    console.print(table)


def verdict(comparison: Comparison, seconds: list[float]) -> str:
    """Which method is better by P@1 and its interval, and how much longer it trains."""
    low, high = comparison.intervals["P@1"]
    times = seconds[1] / seconds[0]
    if low > 0:
        result = "LightXML is better here"
    elif high < 0:
        result = "The linear method is better here"
    else:
        result = "By P@1 there is no clear difference here"
    return f"{result}. LightXML took {times:,.0f} times as long to train."


def print_answers(linear: Any, neural: Any) -> None:
    console.print("\nQuestions in other words than docstrings use, and the three best answers:")
    for question, *answers in zip(
        QUESTIONS, linear.predict(QUESTIONS, k=3), neural.predict(QUESTIONS, k=3), strict=True
    ):
        console.print(f"\n{question}", style="bold", markup=False)
        for name, scored in zip(("linear", "LightXML"), answers, strict=True):
            best = ", ".join(f"{label.name} {label.score:.2f}" for label in scored)
            console.print(f"  {name:8}  {best}", markup=False)


def command_name() -> str:
    """How to call labelgrove: by name, or by path if the shell would not find it."""
    if shutil.which("labelgrove"):
        return "labelgrove"
    return os.path.relpath(Path(sys.executable).parent / "labelgrove")


if __name__ == "__main__":
    main()
