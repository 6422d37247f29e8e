"""``write_report``: one evaluation as one HTML file, and its pictures as PNG files."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.data.corpus import Corpus
from labelgrove.methods.base import TrainingFacts
from labelgrove.metrics import Propensity
from labelgrove.report.figures import figures
from labelgrove.report.measuring import Report, measure_report
from labelgrove.report.page import page
from labelgrove.report.png import check_png, write_png
from labelgrove.report.sections import introduction, sections


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
    """Writes a report on a model's predictions for labelled documents, and gives its numbers.

    - ``model``: a fitted model, a model folder, ``Predictions``, or a file that ``predict`` wrote.
    - ``data``: a Corpus or a file with the true labels. Only texts of these documents are shown,
      the beginnings of the ``worst`` most wrong ones; ``worst=0`` shows none.
    - ``against``: other such runs on the same documents, a list or a mapping from names.
    - ``k``: how far the curves go. ``intervals``: bootstrap resamples; None draws no intervals.
    - ``training``: number and label frequencies of the training documents, where no model knows
      them (``TrainingFacts.of(corpus)``); without them there is no PSP and no split by frequency.
    - ``png_folder``: a folder for the pictures as PNG files (extra: report).

    >>> import tempfile; from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> file = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(Linear().fit(corpus), corpus, file).evaluations[0]["P@1"]
    1.0
    >>> file.read_text(encoding="utf-8")[:15]
    '<!DOCTYPE html>'
    """
    if png_folder is not None:
        check_png()  # before the work, not after it
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


def to_html(report: Report) -> str:
    """The page of a report.

    >>> from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> "<h2" in to_html(measure_report(Linear().fit(corpus), corpus))
    True
    """
    from labelgrove import __version__

    now = datetime.datetime.now(datetime.UTC)
    footer = f"<p>Written by labelgrove {__version__} on {now:%Y-%m-%d at %H:%M} UTC.</p>"
    return page(report.title, introduction(report), sections(report, figures(report)), footer)


def write_pngs(report: Report, folder: str | Path) -> list[Path]:
    """Paints the pictures of a report into a folder, and gives their files."""
    check_png()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for name, drawing in figures(report).items():
        files.append(target / f"{name}.png")
        write_png(drawing, files[-1])
    return files
