"""Charts show what they should, whatever the values are, as SVG in a page."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove import Corpus
from labelgrove.errors import MissingExtraError
from labelgrove.experiments.report import write_report
from labelgrove.experiments.report.charts import Chart, Series, line_chart
from support.report_pages import Page

NAMES: dict[str, Any] = {"title": "t", "summary": "s", "axes": ("x", "y")}
CORPUS = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
HOSTILE = "_$a$ </text><script>'\"&\x00\ud800"


def lines(chart: Chart) -> list[list[tuple[float, float]]]:
    """The points of the curves."""
    return [line.get_xydata().tolist() for line in chart.figure.axes[0].lines]


@given(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), max_size=6), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_points_make_a_chart(points: list[tuple[float, float]], diagonal: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chart = line_chart([Series("a", points), Series("b", [])], diagonal=diagonal, **NAMES)
        Page(chart.svg("chart"))
    usable = [list(p) for p in points if all(abs(v) < 1e300 for v in p)]
    assert lines(chart)[-1] == usable
    if diagonal:
        axes = chart.figure.axes[0]
        assert (axes.get_xlim(), axes.get_ylim()) == ((0, 1), (0, 100))


def test_bands_surround_their_curves() -> None:
    chart = line_chart([Series("a", [(1, 2), (2, 3)], band=[(1, 1, 3), (2, 2, 4)])], **NAMES)
    (band,) = chart.figure.axes[0].collections
    assert band.get_datalim(chart.figure.axes[0].transData).bounds == (1, 1, 1, 3)


def test_charts_look_as_they_did(pinned: Any) -> None:
    found = []
    for count, length, diagonal in ((1, 3, False), (4, 3, True), (10, 30, False)):
        names = [f"{number}".rjust(length, "n") for number in range(count)]
        points = [(1, 0.2), (2, 0.9 if diagonal else 40.0)]
        drawn = [Series(name, points, n, [(1, 0.1, 0.3)]) for n, name in enumerate(names)]
        figure = line_chart(drawn, diagonal=diagonal, **NAMES).figure
        area = figure.axes[0]
        seen: Any = [figure.get_size_inches(), area.get_position().bounds, area.get_ylim()]
        seen += [area.get_xticks(), area.get_yticks(), [c.get_alpha() for c in area.collections]]
        seen += [[text.get_text(), text.get_position(), text.get_ha()] for text in figure.texts]
        seen += [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        for line in area.lines:
            look = line.get_linewidth(), line.get_marker(), line.get_markersize()
            seen.append([line.get_color(), str(line.get_linestyle()), *look])
        found.append(seen)
    pinned("charts", found)


def test_svg_is_escaped_described_and_takes_its_colours_from_the_page() -> None:
    series = [
        Series(HOSTILE, [(0, 0), (1, 1)], band=[(0, 0, 1), (1, 0, 1)]),
        Series("b", [(0, 1)], 1),
    ]
    chart = line_chart(series, **NAMES | {"title": HOSTILE, "summary": HOSTILE})
    svg = chart.svg("chart")
    page = Page(svg)
    assert all(link.removeprefix("#") in page.ids for link in page.links) and page.links
    assert {tag for tag, _ in page.tags} <= {
        *("svg", "title", "desc", "defs", "g", "path", "text", "use", "clippath", "rect")
    }
    # In the title, the description and the legend; only the control characters are replaced.
    assert page.text.count("_$a$ </text><script>'\"&\ufffd\ufffd") == 3
    assert "#" not in svg.replace("url(#chart-", "").replace('href="#chart-', "")
    assert "var(--accent)" in svg and "var(--run-1)" in svg and "font-family" not in svg
    assert svg == chart.svg("chart")


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_without_the_extra_a_sentence_says_what_to_install_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"writing reports .*the extra `report`"):
        write_report(None, CORPUS, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()
