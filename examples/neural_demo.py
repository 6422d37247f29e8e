"""A neural method beside the linear one, in a few minutes on two CPU cores: ``make demo-neural``.

The corpus is on this machine already: the first paragraphs of docstrings of the standard library,
NumPy, SciPy, scikit-learn and NetworkX. The labels are the modules that they stand in. Texts of ten
words from many hands are where a pretrained encoder can help: it knows words that training never
showed. Both methods learn from the same documents, and are measured on others.
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

from labelgrove import Corpus
from labelgrove.core.callbacks import RichProgress
from labelgrove.datasets.docstrings import PACKAGES, docstring_documents
from labelgrove.methods import create
from labelgrove.metrics import Comparison, compare

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "R@10"]
SETTINGS: dict[str, Any] = {
    # Two of the six layers stay as they are: a fifth less work. Docstrings begin with what matters.
    "encoder": {"encoder": "all-MiniLM-L6-v2", "max_tokens": 32, "freeze": 2},
    "heads": {"dropout": 0.3},
    "training": {"lr": 2e-4, "head_lr": 2e-3},
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
    parser.add_argument("--documents", type=int, default=3000, help="to learn from")
    parser.add_argument("--test", type=int, default=1000, help="documents to measure on")
    parser.add_argument("--epochs", type=float, default=4, help="passes over the documents")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="whose docstrings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo-neural-model"))
    options = parser.parse_args()
    start = time.perf_counter()
    train, test = parts(options)

    linear = create("linear", {"random_state": options.seed})
    training = SETTINGS["training"] | {"epochs": options.epochs}
    neural = create("lightxml", SETTINGS | {"training": training, "random_state": options.seed})
    console.print("Training the linear method, then LightXML: a few minutes on two cores.")
    seconds = [fitted(model, train) for model in (linear, neural)]
    neural.save(options.out, overwrite=True)

    found = compare(
        linear.predict(test, k=10),
        neural.predict(test, k=10),
        test.labels,
        unknown=test.unknown,
        metrics=METRICS,
    )
    print_table(found, seconds)
    console.print(verdict(found, seconds))
    print_answers(linear, neural)
    console.print(
        f"\nAll that took {time.perf_counter() - start:.0f} s. The model folder is {options.out}; "
        f"try\n  echo 'WORDS' | {command_name()} predict {options.out} - --k 5",
        markup=False,
    )


def parts(options: Any) -> tuple[Corpus, Corpus]:
    """Documents to learn from and documents to measure on, at random."""
    console.print("Reading the docstrings that are installed here (nothing is fetched).")
    documents = docstring_documents(options.packages)
    random.Random(options.seed).shuffle(documents)
    test, train = documents[: options.test], documents[options.test :][: options.documents]
    learnt = Corpus.from_lists([d.text for d in train], [list(d.labels) for d in train])
    console.print(
        f"{len(learnt):,} functions and classes to learn from, {len(test):,} to test on, "
        f"{len(learnt.index):,} modules as labels."
    )
    judged = Corpus.from_lists(
        [d.text for d in test], [list(d.labels) for d in test], index=learnt.index
    )
    return learnt, judged


def fitted(model: Any, train: Corpus) -> float:
    start = time.perf_counter()
    with RichProgress() as progress:
        model.fit(train, callbacks=[progress])
    return time.perf_counter() - start


def print_table(found: Comparison, seconds: list[float]) -> None:
    table = Table(title=f"{found.first.n:,} unseen docstrings")
    for column in ("measure", "linear", "LightXML", "difference, 95 % interval"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for name in METRICS:
        low, high = found.intervals[name]
        table.add_row(
            name,
            f"{100 * found.first[name]:.1f} %",
            f"{100 * found.second[name]:.1f} %",
            f"{100 * found.differences[name]:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})",
        )
    table.add_section()
    table.add_row("training", *(f"{spent:.1f} s" for spent in seconds))
    console.print(table)


def verdict(found: Comparison, seconds: list[float]) -> str:
    """Which is better here, by P@1 and its interval, and at what price."""
    low, high = found.intervals["P@1"]
    times = seconds[1] / seconds[0]
    if low > 0:
        said = "LightXML is better here"
    elif high < 0:
        said = "The linear method is better here"
    else:
        said = "P@1 does not tell the two apart here"
    return f"{said}. LightXML's training took {times:,.0f} times as long."


def print_answers(linear: Any, neural: Any) -> None:
    console.print("\nQuestions in other words than docstrings use, and the three best of each:")
    for question, *answers in zip(
        QUESTIONS, linear.predict(QUESTIONS, k=3), neural.predict(QUESTIONS, k=3), strict=True
    ):
        console.print(f"\n{question}", style="bold", markup=False)
        for name, scored in zip(("linear", "LightXML"), answers, strict=True):
            best = ", ".join(f"{label.name} {label.score:.2f}" for label in scored)
            console.print(f"  {name:8}  {best}", markup=False)


def command_name() -> str:
    """How to call labelgrove: by name, or by its path where the shell would not find it."""
    if shutil.which("labelgrove"):
        return "labelgrove"
    return os.path.relpath(Path(sys.executable).parent / "labelgrove")


if __name__ == "__main__":
    main()
