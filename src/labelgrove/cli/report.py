"""labelgrove report: an evaluation as one HTML file, compared with other runs if there are any."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from labelgrove.cli import common, options


def report(
    model: options.ModelOrFile,
    *,
    data: Annotated[Path, Option(help="Corpus with the true labels.")],
    out: Annotated[Path, Option(help="HTML file to write.")],
    against: Annotated[list[Path] | None, Option(help="Compare with this run. Repeatable.")] = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Largest k of the curves.")] = 10,
    worst: Annotated[int, Option(min=0, help="Wrong documents to show; 0: no texts.")] = 20,
    png: Annotated[Path | None, Option(help="Folder for the charts as PNG files.")] = None,
    title: Annotated[str | None, Option(help="Title of the page.")] = None,
    frequencies: options.Frequencies,
    intervals: Annotated[int, Option(min=0, help="Bootstrap samples; 0: no intervals.")] = 1000,
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
    from labelgrove.formats.files import existing
    from labelgrove.report import write_report
    from labelgrove.report.png import check_png
    from labelgrove.report.runs import predicted

    common.check_device(machine.device)
    common.refuse_existing([out], force=force)
    if png is not None:
        check_png()
    how = reading.options("test")
    paths = [model, *(against or [])]
    loaded = [
        common.load_model(path, machine.device) if path.is_dir() else existing(path)
        for path in paths
    ]
    index = training = None
    if isinstance(loaded[0], Path):
        index, training = frequencies.read(how, labels)
    elif not any(isinstance(run, Path) or run.index_ != loaded[0].index_ for run in loaded):
        # Only for runs with the same labels: reading with those of one run loses all others.
        index = loaded[0].index_
    corpus = common.read_corpus(data, how, labels=labels, index=index, dense=dense)
    console = common.stderr_console()
    with common.spinner(console, "predicting and measuring"):
        runs = []
        for path, run, name in zip(paths, loaded, _names(paths), strict=True):
            run = predicted(run, corpus, k=k, name=name, threads=machine.threads)
            runs.append(replace(run, folder=path if path.is_dir() else None))
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


def _names(paths: list[Path]) -> list[str]:
    """The last parts of the paths if they differ, else the whole paths."""
    short = [path.resolve().name or str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
