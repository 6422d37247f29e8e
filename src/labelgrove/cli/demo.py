"""labelgrove demo: make a corpus, train on it, measure, and show predictions."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.evaluate import TimedEvaluation, evaluate_model

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import Corpus
    from labelgrove.predictions import Predictions


def demo(
    *,
    out: Annotated[Path, Option(help="Model folder to write.")] = Path("runs/demo-model"),
    documents: Annotated[int, Option(min=50, help="Number of training documents.")] = 20_000,
    labels: Annotated[int, Option(min=10, help="Number of labels.")] = 3_000,
    seed: options.Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Train and try a model on a generated shop corpus. Takes well under two minutes.

    Example: labelgrove demo --documents 5000 --labels 500
    """
    from labelgrove.callbacks import RichProgress
    from labelgrove.datasets import shop_corpus
    from labelgrove.methods import create

    console = common.stdout_console()
    seed, size = seed or 0, max(20, documents // 10)
    console.print(
        f"Generating a shop corpus: {documents:,} products for training, {size:,} for testing, "
        f"{labels:,} labels (seed {seed})."
    )
    train = shop_corpus(documents, labels=labels, seed=seed, part="train")
    test = shop_corpus(size, labels=labels, seed=seed, part="test")

    model = create("linear", {"random_state": seed, "n_jobs": threads})
    start = time.perf_counter()
    with RichProgress() as progress:
        model.fit(train, callbacks=[progress])
    seconds = time.perf_counter() - start
    model.save(out, overwrite=True)

    test = test.reindex(model.index_)
    _print_table(console, evaluate_model(model, test, threads=threads), seconds, out)
    _print_examples(console, test, model.predict(test.take(range(3)), k=5))
    name = common.command_name()
    console.print(
        f"\nThe model is in {out}. Try next:\n"
        f"  {name} info {out}\n"
        f"  echo 'a waterproof raincoat in navy' | {name} predict {out} - --k 5\n"
        f"  {name} data make --documents 100000 --labels 50000 --out shop\n"
        f"  {name} train YOUR.jsonl --out model"
    )


def _print_table(
    console: Console, measured: TimedEvaluation, train_seconds: float, folder: Path
) -> None:
    from rich.table import Table

    from labelgrove.memory import format_size
    from labelgrove.store import model_size

    evaluation = measured.evaluation
    table = Table(title=f"linear method on {evaluation.n:,} unseen products")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in evaluation.values.items():
        table.add_row(name, f"{100 * value:.1f} %")
    table.add_section()
    table.add_row("training", common.human_seconds(train_seconds))
    table.add_row("prediction", f"{evaluation.n / measured.seconds:,.0f} documents/s")
    table.add_row("model size", format_size(model_size(folder)))
    console.print(table)


def _print_examples(console: Console, test: Corpus, predictions: Predictions) -> None:
    truth = test.label_lists(names=True)
    for row, scored in enumerate(predictions):
        text = " ".join((test.texts or [])[row].split())
        console.print(f"\n{text[:200]}{'...' if len(text) > 200 else ''}", style="bold")
        for label in scored:
            mark = "✓" if label.name in truth[row] else " "
            console.print(f"  {mark} {label.score:.2f}  {label.name}")
