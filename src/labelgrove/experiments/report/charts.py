"""The charts of a report: SVG by matplotlib that takes its colours from the page around it."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from labelgrove.core.strings import cut
from labelgrove.experiments.report.measuring import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The service's page and the report share this file; it is the only place that knows the colours.
LOOK = Path(__file__).parents[2] / "serve" / "page" / "look.css"
STYLE = Path(__file__).with_name("templates") / "charts.mplstyle"
WIDTH, HEIGHT = 420, 266  # in points, which are the units of the SVG
LEFT, RIGHT, BOTTOM, LEGEND_ROW = 40, 12, 40, 17
NAME_LENGTH = 28
# Runs differ in dashes, too: not everyone can tell the colours apart.
RUNS = ("accent", "run-1", "run-2", "run-3", "run-4", "run-5")
DASHES = ("-", (0, (3, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)), "-.", ":")
FAMILY_NAMES = {
    "P": "Precision",
    "nDCG": "nDCG",
    "PSP": "Propensity-scored precision",
    "R": "Recall",
}

# Control characters and lone surrogates are not allowed in HTML or XML, escaped or not.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


@cache
def colours() -> dict[str, str]:
    """The light colours of the stylesheet by their names."""
    css = LOOK.read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}),", css))


def printable(text: str) -> str:
    """The text with a replacement character for every character that a page may not contain."""
    return _UNPRINTABLE.sub("\ufffd", text)


def percent(value: float, *, signed: bool = False) -> str:
    """A fraction in percent, without the percent sign; a dash where it is undefined."""
    if math.isnan(value):
        return "–"
    return f"{100 * value:+.2f}" if signed else f"{100 * value:.2f}"


def charts(report: Report) -> dict[str, Chart]:
    """All charts that the report has data for, by name."""
    curves = {f"curve-{family.lower()}": _curve(report, family) for family in report.families}
    return curves | ({"calibration": _calibration(report)} if any(report.calibrations) else {})


def _curve(report: Report, family: str) -> Chart:
    series, ends = [], []
    for number, (run, evaluation) in enumerate(zip(report.runs, report.evaluations, strict=True)):
        names = {k: f"{family}@{k}" for k in range(1, report.depth + 1)}
        points = [(k, 100 * evaluation.values[name]) for k, name in names.items()]
        bounds = [(k, evaluation.intervals.get(name)) for k, name in names.items()]
        band = [(k, 100 * pair[0], 100 * pair[1]) for k, pair in bounds if pair]
        series.append(Series(run.name, points, number, band))
        first, last = (percent(value / 100) for _, value in (points[0], points[-1]))
        ends.append(f"{run.name} {first} % at 1, {last} % at {report.depth}")
    return line_chart(
        series,
        title=f"{FAMILY_NAMES[family]} by number of labels",
        summary=f"{family}@k: {'; '.join(ends)}.",
        axes=("labels per document, k", f"{family}@k, percent"),
    )


def _calibration(report: Report) -> Chart:
    series, errors = [], []
    for number, (run, diagram) in enumerate(zip(report.runs, report.calibrations, strict=True)):
        if diagram is not None:
            points = list(zip(diagram.claimed.tolist(), (100 * diagram.true).tolist(), strict=True))
            series.append(Series(run.name, points, number))
            errors.append(f"{run.name}: expected calibration error {percent(diagram.ece)} %")
    return line_chart(
        series,
        title="Reliability of the scores",
        summary=f"Share of right labels against mean score; {'; '.join(errors)}. On the dotted "
        "diagonal, scores would be probabilities.",
        axes=("mean score", "right, percent"),
        diagonal=True,
    )


@dataclass(frozen=True)
class Series:
    """One run's (x, y) points, and (x, low, high) of a band around them.

    ``run`` selects colour and dashes. Points that are not finite numbers are left out.
    """

    name: str
    points: Sequence[tuple[float, float]]
    run: int = 0
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Chart:
    """A figure; ``title`` and ``summary`` describe it to people who do not see it."""

    figure: Figure
    title: str
    summary: str

    def svg(self, name: str) -> str:
        """An ``svg`` element for a page; ``name`` makes its ids unique there."""
        with _style():
            buffer = io.BytesIO()
            self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        root = ElementTree.fromstring(buffer.getvalue())
        _make_inline(root, name)
        root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img"}
        for tag, text in (("desc", self.summary), ("title", self.title)):
            node = ElementTree.Element(tag, id=f"{name}-{tag}")
            node.text = printable(text)
            root.insert(0, node)
        root.set("aria-labelledby", f"{name}-title {name}-desc")
        return ElementTree.tostring(root, encoding="unicode")


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    summary: str,
    axes: tuple[str, str],
    diagonal: bool = False,
) -> Chart:
    """Curves over the named axes; with a ``diagonal``, x ends at 0 and 1, and y at 0 and 100."""
    from matplotlib.ticker import MaxNLocator

    with _style():
        figure, area = _axes([(s.name, s.run) for s in series], *axes)
        if diagonal:
            area.plot((0, 1), (0, 1), ":", color=colours()["muted"], lw=1, transform=area.transAxes)
            area.set_xlim(0, 1)
        else:
            area.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
        for one in reversed(series):  # the first is drawn last, on top
            look = _run(one.run)
            if band := [row for row in one.band if _finite(*row)]:
                x, low, high = zip(*band, strict=True)
                area.fill_between(x, low, high, color=look["color"], alpha=0.18, lw=0)
            points = [p for p in one.points if _finite(*p)]
            x, y = zip(*points, strict=True) if points else ((), ())
            area.plot(x, y, marker="o", ms=4.5, mew=0, **look)
        if diagonal:
            area.set_ylim(0, 100)
        elif area.dataLim.y0 >= 0 > area.get_ylim()[0]:
            area.set_ylim(bottom=0)
    return Chart(figure, title, summary)


def _axes(names: Sequence[tuple[str, int]], x_name: str, y_name: str) -> tuple[Figure, Axes]:
    """An empty figure with axes, below a legend where there are several runs.

    What the axes show stands above one and below the other: vertical text is hard to read.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    columns = 3 if all(len(name) <= 14 for name, _ in names) else 2
    rows = math.ceil(len(names) / columns) if len(names) > 1 else 0
    height = HEIGHT + LEGEND_ROW * rows
    figure = Figure((WIDTH / 72, height / 72))
    top = height - LEGEND_ROW * rows - 26
    # Fixed margins: matplotlib's own layouts take as long as all the drawing.
    axes = figure.add_axes(
        (LEFT / WIDTH, BOTTOM / height, 1 - (LEFT + RIGHT) / WIDTH, (top - BOTTOM) / height)
    )
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    muted = colours()["muted"]
    figure.text(4 / WIDTH, (top + 12) / height, y_name, color=muted)
    figure.text(1 - RIGHT / WIDTH, 6 / height, x_name, ha="right", color=muted)
    if rows:
        lines = [Line2D((), (), **_run(run)) for _, run in names]
        # Named afterwards, because matplotlib hides names that begin with an underscore.
        legend = figure.legend(
            lines, map(str, range(len(lines))), ncols=columns, loc="upper left", borderaxespad=0.3
        )
        for text, (name, _) in zip(legend.get_texts(), names, strict=True):
            text.set_text(printable(cut(name, NAME_LENGTH)))
    return figure, axes


def _run(number: int) -> dict[str, Any]:
    """Colour and dashes of a run; runs of the same colour have different dashes."""
    dashes = DASHES[(number + number // len(RUNS)) % len(DASHES)]
    return {"color": colours()[RUNS[number % len(RUNS)]], "linestyle": dashes}


def _finite(*values: float) -> bool:
    return all(abs(value) < 1e300 for value in values)


@contextmanager
def _style() -> Iterator[None]:
    """matplotlib's defaults and our look, whatever matplotlibrc says."""
    from matplotlib import style

    hue = colours()
    look = {"axes.edgecolor": hue["line"], "grid.color": hue["line"], "text.color": hue["ink"]}
    look |= {f"{axis}tick.labelcolor": hue["muted"] for axis in "xy"}
    with style.context(["default", STYLE, look]), warnings.catch_warnings():
        # Names in scripts that matplotlib's font lacks; browsers have fonts for them.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def _make_inline(root: ElementTree.Element, name: str) -> None:
    """Fits matplotlib's SVG into a page: unique ids, the page's colours and font, fewer bytes."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):  # a style here would apply to the page
                parent.remove(child)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
        node.text, node.tail = node.text if node.tag == "text" else None, None
        node.attrib = {
            key.rpartition("}")[2]: _attribute(key.rpartition("}")[2], value, name)
            for key, value in node.attrib.items()
            if not (key == "id" and node.tag == "g") and not value.startswith("rotate(-0")
        }


def _attribute(key: str, value: str, name: str) -> str:
    if key in ("id", "href", "clip-path"):
        return re.sub(r"^(url\()?(#?)", rf"\1\2{name}-", value)
    if key == "style":
        value = re.sub(r"font-family: [^;]*; ", "", value)
        for role in ("ink", "muted", "line", *RUNS):
            value = value.replace(colours()[role], f"var(--{role})")
    return " ".join(re.sub(r"\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", value).split())
