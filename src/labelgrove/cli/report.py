"""labelgrove report: an evaluation as one HTML file, compared with other runs if there are any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labelgrove.cli import common, options

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import LabelIndex
    from labelgrove.formats import ReadOptions
    from labelgrove.methods.base import TrainingFacts


def report(
    model: options.ModelOrFile,
    *,
    data: Annotated[Path, Option(help="Corpus with the true labels.")],
    out: Annotated[Path, Option(help="HTML file to write.")],
    against: Annotated[
        list[Path] | None,
        Option(help="Another model or predictions file to compare with. Repeatable."),
    ] = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Largest k of the curves.")] = 10,
    worst: Annotated[
        int, Option(min=0, help="Number of wrong documents to show. 0 shows no texts.")
    ] = 20,
    png: Annotated[Path | None, Option(help="Folder for the charts as PNG files.")] = None,
    title: Annotated[str | None, Option(help="Title of the page.")] = None,
    frequencies: options.Frequencies,
    intervals: Annotated[
        int, Option(min=0, help="Number of bootstrap samples. 0 draws no intervals.")
    ] = 1000,
    labels: options.Labels = None,
    dense: options.Dense = None,
    force: options.Force = False,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Write an evaluation as one HTML file with charts, tables and the most wrong documents.

    Shows metrics for each k and by label frequency, calibration, confused labels, time and memory.
    The file loads nothing from the network. It contains the beginnings of wrong documents; --worst
    0 leaves them out.

    Example: labelgrove report model --data test.jsonl --out report.html --against older-model
    """
    from labelgrove.report import write_report
    from labelgrove.report.png import check_png
    from labelgrove.report.runs import predicted

    console = common.stderr_console()
    common.check_device(machine.device)
    common.refuse_existing([out], force=force)
    if png is not None:
        check_png()
    how = reading.options("test")
    paths = [model, *(against or [])]
    loaded = [_loaded(path, machine.device) for path in paths]
    index, training = _training(loaded, frequencies.train_corpus, labels, how, console)
    corpus = common.read_corpus(
        data, labels=labels, index=index, dense=dense, options=how, console=console
    )
    with common.spinner(console, "predicting and measuring"):
        runs = [
            replace(
                predicted(run, corpus, k=k, name=name, threads=machine.threads),
                folder=path if path.is_dir() else None,
            )
            for run, name, path in zip(loaded, _names(paths), paths, strict=True)
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
            propensity=frequencies.propensity,
            training=training,
            png_folder=png,
        )
    if as_json:
        common.print_json({"report": str(out), **written.to_dict()})
    console.print(f"report: {out}" if png is None else f"report: {out}, charts: {png}")


def _loaded(path: Path, device: str) -> Any:
    """A model, or the path of a predictions file."""
    if path.is_dir():
        return common.load_model(path, device)
    from labelgrove.formats.files import existing

    return existing(path)


def _training(
    loaded: list[Any],
    train_corpus: Path | None,
    labels: Path | None,
    how: ReadOptions,
    console: Console,
) -> tuple[LabelIndex | None, TrainingFacts | None]:
    """The labels to read the data with, and training frequencies if no model has them.

    Runs with different labels need the data's own labels: reading with the labels of one run would
    lose those that only another run has.
    """
    from labelgrove.methods.base import TrainingFacts

    if isinstance(loaded[0], Path):
        if train_corpus is None:
            return None, None
        part = replace(how, part="train")
        trained = common.read_corpus(train_corpus, labels=labels, options=part, console=console)
        return trained.index, TrainingFacts.of(trained)
    indexes = [None if isinstance(run, Path) else run.index_ for run in loaded]
    return (indexes[0] if all(index == indexes[0] for index in indexes) else None), None


def _names(paths: list[Path]) -> list[str]:
    """The last parts of the paths if they differ, else the whole paths."""
    short = [path.resolve().name or str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
