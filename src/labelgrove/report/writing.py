"""``write_report``: one evaluation as one HTML file, and its charts as PNG files."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.errors import MissingExtraError
from labelgrove.metrics import Propensity
from labelgrove.report.figures import figures
from labelgrove.report.measuring import Report, measure_report
from labelgrove.report.page import to_html


def write_report(
    model: Any,
    data: Corpus | str | Path,
    out: str | Path,
    *,
    against: Mapping[str, Any] | Sequence[Any] = (),
    k: int = 10,
    intervals: int | None = 1000,
    worst: int = 20,
    name: str | None = None,
    title: str | None = None,
    data_name: str | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    training: TrainingFacts | None = None,
    png_folder: str | Path | None = None,
    threads: int | None = None,
) -> Report:
    """Writes a report on a model's predictions for labelled documents and returns its numbers.

    - ``model``: a fitted model, a model folder, ``Predictions``, or a file that ``predict`` wrote.
    - ``data``: a Corpus or a file with the true labels. The report shows the beginnings of the
      texts of the ``worst`` most wrong documents; ``worst=0`` shows no text.
    - ``against``: other such runs on the same documents, as a list or a mapping from names.
    - ``k``: the largest k of the curves. ``intervals``: bootstrap resamples; None for no intervals.
    - ``training``: number and label frequencies of the training documents, if no model knows
      them (``TrainingFacts.of(corpus)``); without them there is no PSP and no split by frequency.
    - ``png_folder``: a folder for the charts as PNG files.

    >>> import tempfile; from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> file = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(Linear().fit(corpus), corpus, file).evaluations[0]["P@1"]
    1.0
    """
    check_extra()  # before the work, not after it
    report = measure_report(
        model,
        data,
        against=against,
        k=k,
        intervals=intervals,
        worst=worst,
        name=name,
        title=title,
        data_name=data_name,
        propensity=propensity,
        training=training,
        threads=threads,
    )
    from labelgrove.formats.files import replacing

    with replacing(out) as file:
        file.write(to_html(report).encode("utf-8"))
    if png_folder is not None:
        write_pngs(report, png_folder)
    return report


def write_pngs(report: Report, folder: str | Path) -> list[Path]:
    """Writes the charts of a report into a folder and returns the files."""
    check_extra()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    charts = {target / f"{name}.png": chart for name, chart in figures(report).items()}
    for file, chart in charts.items():
        chart.png(file)
    return list(charts)


def check_extra() -> None:
    """Raises MissingExtraError unless the packages that reports need are installed."""
    try:
        for package in ("jinja2", "matplotlib"):
            importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError("report", "writing reports") from error
