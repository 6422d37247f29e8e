"""labelgrove demo: make a corpus, train on it, measure, and show what comes out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.corpus import Corpus
    from labelgrove.scores.predictions import Predictions

METRICS = ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]


def demo(
    out: Annotated[Path, typer.Option("--out", help="Where the model folder goes.")] = Path(
        "runs/demo-model"
    ),
    documents: Annotated[int, typer.Option("--documents", min=50, help="To train on.")] = 20_000,
    labels: Annotated[int, typer.Option("--labels", min=10, help="Size of the label set.")] = 3_000,
    seed: options.Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Train and try a model on a made-up shop corpus; takes well under two minutes.

    Example: labelgrove demo --documents 5000 --labels 500
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.datasets import shop_corpus
    from labelgrove.methods import create

    console = common.stdout_console()
    seed = seed or 0
    test_size = max(20, documents // 10)
    console.print(
        f"Making a shop corpus: {documents:,} products to learn from, {test_size:,} to test on, "
        f"{labels:,} labels (seed {seed})."
    )
    train = shop_corpus(documents, labels=labels, seed=seed, part="train")
    test = shop_corpus(test_size, labels=labels, seed=seed, part="test")

    model = create("linear", {"random_state": seed, "n_jobs": threads})
    start = time.perf_counter()
    with RichProgress() as progress:
        model.fit(train, callbacks=[progress])
    seconds = time.perf_counter() - start
    model.save(out, overwrite=True)

    test = test.reindex(model.index_)
    measured = common.evaluate_model(model, test, metrics=METRICS, threads=threads)
    _print_table(console, measured, train_seconds=seconds, model_folder=out)
    _print_examples(console, test, model.predict(test.take(range(3)), k=5))
    console.print(f"\nThe model folder is {out}. What to try next:", markup=False)
    labelgrove = common.command_name()
    for command in (
        f"{labelgrove} info {out}",
        f"echo 'a waterproof raincoat in navy' | {labelgrove} predict {out} - --k 5",
        f"{labelgrove} data make --documents 100000 --labels 50000 --out shop",
        f"{labelgrove} train YOUR.jsonl --out model",
    ):
        console.print(f"  {command}", markup=False)


def _print_table(
    console: Console, measured: common.TimedEvaluation, *, train_seconds: float, model_folder: Path
) -> None:
    from rich.table import Table

    from labelgrove.core.memory import format_size
    from labelgrove.disk.model_folder import model_size

    evaluation = measured.evaluation
    table = Table(title=f"linear method on {evaluation.n:,} unseen products")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in evaluation.values.items():
        table.add_row(name, f"{100 * value:.1f} %")
    table.add_section()
    rows: dict[str, Any] = {
        "training": common.human_seconds(train_seconds),
        "prediction": f"{evaluation.n / measured.seconds:,.0f} documents/s",
        "model size": format_size(model_size(model_folder)),
    }
    for name, text in rows.items():
        table.add_row(name, text)
    console.print(table)


def _print_examples(console: Console, test: Corpus, predictions: Predictions) -> None:
    truth = test.label_lists(names=True)
    for row, scored in enumerate(predictions):
        text = " ".join((test.texts or [])[row].split())
        console.print(
            f"\n{text[:200]}{'...' if len(text) > 200 else ''}", style="bold", markup=False
        )
        for label in scored:
            mark = "✓" if label.name in truth[row] else " "
            console.print(f"  {mark} {label.score:.2f}  {label.name}", markup=False)
