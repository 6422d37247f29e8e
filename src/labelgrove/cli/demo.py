"""labelgrove demo: make a corpus, train on it, measure, and show predictions."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import shorten
from typing import Annotated

from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.evaluate import evaluate_model
from labelgrove.core.durations import format_duration


def demo(
    *,
    out: Annotated[Path, Option(help="Model folder to write.")] = Path("runs/demo-model"),
    documents: Annotated[
        int, Option("--documents", "-n", min=50, help="Number of training documents.")
    ] = 20_000,
    labels: Annotated[int, Option(min=10, help="Number of labels.")] = 3_000,
    seed: options.Seed = 0,
    threads: options.Threads = None,
) -> None:
    """Train and try a model on a generated shop corpus. Takes well under two minutes.

    Example: labelgrove demo --documents 5000 --labels 500
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.memory import format_size
    from labelgrove.data.shop import shop_corpus
    from labelgrove.disk.model_folder import model_size
    from labelgrove.methods import create

    console = common.stdout_console()
    size = max(20, documents // 10)
    console.print(
        f"Generating a shop corpus: {documents:,} products for training, {size:,} for testing, "
        f"{labels:,} labels (seed {seed})."
    )
    train = shop_corpus(documents, labels=labels, seed=seed, part="train")
    model = create("linear", {"random_state": seed, "n_jobs": threads})
    start = time.perf_counter()
    with RichProgress() as progress:
        model.fit(train, callbacks=[progress])
    seconds = time.perf_counter() - start
    model.save(out, overwrite=True)

    test = shop_corpus(size, labels=labels, seed=seed, part="test").reindex(model.index_)
    measured = evaluate_model(model, test, threads=threads)
    values = measured.evaluation.values
    rows: list[tuple[str, ...]] = [
        *((name, f"{100 * value:.1f} %") for name, value in values.items()),
        (),
        ("training", format_duration(seconds)),
        ("prediction", f"{size / measured.seconds:,.0f} documents/s"),
        ("model size", format_size(model_size(out))),
    ]
    title = f"linear method on {size:,} unseen products"
    console.print(common.new_table(("measure", "value"), rows, title))

    examples = test.take(range(3))
    answers = model.predict(examples, k=5)
    truths = examples.label_lists(names=True)
    for text, truth, predictions in zip(examples.texts or [], truths, answers, strict=True):
        console.print(f"\n{shorten(text, 200, placeholder='...')}", style="bold")
        for label in predictions:
            mark = "✓" if label.name in truth else " "
            console.print(f"  {mark} {label.score:.2f}  {label.name}")
    name = common.command_name()
    console.print(
        f"\nThe model is in {out}. Try next:\n"
        f"  {name} info {out}\n"
        f"  echo 'a waterproof raincoat in navy' | {name} predict {out} - --k 5\n"
        f"  {name} data make --documents 100000 --labels 50000 --out shop\n"
        f"  {name} train YOUR.jsonl --out model"
    )
