"""labelgrove report: one evaluation as one HTML file, beside other runs if wanted."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import LabelIndex
    from labelgrove.methods.base import TrainingFacts


def report(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder, or a file that predict wrote.")
    ],
    data: Annotated[Path, typer.Option("--data", help="Corpus with the true labels.")],
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")],
    against: Annotated[
        list[Path] | None,
        typer.Option("--against", help="Another model or predictions file; repeatable."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="How far curves go.")] = 10,
    worst: Annotated[
        int, typer.Option("--worst", min=0, help="Wrong documents to show; 0 shows no texts.")
    ] = 20,
    png: Annotated[
        Path | None, typer.Option("--png", help="Folder for the pictures as PNG files.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    train_corpus: Annotated[
        Path | None,
        typer.Option("--train", help="Training corpus; PSP of a predictions file needs it."),
    ] = None,
    a: Annotated[float, typer.Option("--propensity-a", help="A of the propensity model.")] = 0.55,
    b: Annotated[float, typer.Option("--propensity-b", help="B of the propensity model.")] = 1.5,
    intervals: Annotated[
        int, typer.Option("--intervals", min=0, help="Bootstrap resamples; 0 draws no intervals.")
    ] = 1000,
    labels: options.Labels = None,
    dense: options.Dense = None,
    force: options.Force = False,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
    as_json: options.Json = False,
) -> None:
    """Write a report: one HTML file with curves, tables and the most wrong documents.

    Metrics over k, by label frequency, calibration, confused labels, time and memory. The file
    loads nothing from elsewhere. It shows beginnings of wrong documents' texts, unless --worst 0.

    Example: labelgrove report model --data test.jsonl --out report.html --against older-model
    """
    from dataclasses import replace

    from labelgrove.cli.corpus_files import refuse_existing
    from labelgrove.metrics import Propensity
    from labelgrove.report import check_extra, write_report
    from labelgrove.report.runs import predicted

    check_extra()
    console = common.stderr_console()
    common.check_device(device)
    refuse_existing([out], force=force)
    how = common.read_options(
        input_format, text_field, labels_field, id_field, skip_bad, read, part="test"
    )
    paths = [model, *(against or [])]
    loaded = [_loaded(path, device) for path in paths]
    index, training = _training(loaded, train_corpus, labels, how, console)
    corpus = common.read_corpus(
        data, labels=labels, index=index, dense=dense, options=how, console=console
    )
    # No spinner where nobody sees it: it needs a thread.
    waiting = console.status("predicting and measuring") if console.is_terminal else nullcontext()
    with waiting:
        runs = [
            replace(predicted(one, corpus, k=k, name=name, threads=threads), folder=_folder(path))
            for one, name, path in zip(loaded, _names(paths), paths, strict=True)
        ]
        written = write_report(
            runs[0],
            corpus,
            out,
            against=runs[1:],
            k=k,
            intervals=intervals or None,
            worst=worst,
            title=title,
            data_name=data.name,
            propensity=Propensity(a, b),
            training=training,
            png_folder=png,
        )
    if as_json:
        common.print_json({"report": str(out), **written.to_dict()})
    where = f"report: {out}" if png is None else f"report: {out}, pictures: {png}"
    console.print(where, markup=False)


def _loaded(path: Path, device: str) -> Any:
    """A model, or the path of a file of predictions."""
    if not path.is_dir():
        from labelgrove.formats.files import existing

        return existing(path)
    from labelgrove.methods.base import load

    model = load(path)
    common.use_device(model, device)
    return model


def _folder(path: Path) -> Path | None:
    return path if path.is_dir() else None


def _training(
    loaded: list[Any], train_corpus: Path | None, labels: Path | None, how: Any, console: Console
) -> tuple[LabelIndex | None, TrainingFacts | None]:
    """The labels to read the data with, and training frequencies where no model has them.

    Runs with different labels need the data's own: read with one run's labels, those that only
    another run knows would be lost.
    """
    from dataclasses import replace

    from labelgrove.methods.base import TrainingFacts

    if isinstance(loaded[0], Path):
        if train_corpus is None:
            return None, None
        part = replace(how, part="train")
        trained = common.read_corpus(train_corpus, labels=labels, options=part, console=console)
        return trained.index, TrainingFacts.of(trained)
    indexes = [model.index_ for model in loaded if not isinstance(model, Path)]
    files = len(indexes) < len(loaded)
    same = all(index == indexes[0] for index in indexes[1:])
    return (indexes[0] if same and not files else None), None


def _names(paths: list[Path]) -> list[str]:
    """The last parts of the paths where these differ, else the paths."""
    short = [path.resolve().name or str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
