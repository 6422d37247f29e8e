"""Charts hold what they should, inside their sheet, whatever the values are."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.report.charts import (
    Axis,
    Series,
    bar_chart,
    line_chart,
    round_steps,
    row_chart,
    short_number,
)
from labelgrove.report.drawing import Area, Dot, Drawing, Line, Words
from labelgrove.report.svg import to_svg

NAMES = {"title": "t", "summary": "s", "x_name": "x", "y_name": "y"}


def places(drawing: Drawing) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for shape in drawing.shapes:
        found += shape.points if isinstance(shape, Line | Area) else [shape.at]
    return found


@given(
    st.lists(st.tuples(st.floats(), st.floats()), max_size=8),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_curves_stay_on_the_sheet(points: list[tuple[float, float]], log: bool) -> None:
    points = [(x, y) for x, y in points if not (abs(x) > 1e300 or abs(y) > 1e300)]
    drawing = line_chart([Series("a", points), Series("b", [])], log=log, **NAMES)
    for x, y in places(drawing):
        assert math.isfinite(x) and math.isfinite(y)
        assert -1 <= x <= drawing.width + 1 and -1 <= y <= drawing.height + 1


def test_a_single_point_is_a_dot_and_gaps_are_left_out() -> None:
    drawing = line_chart([Series("a", [(1, 0.5), (2, math.nan)], dots=False)], **NAMES)
    assert sum(isinstance(shape, Dot) for shape in drawing.shapes) == 1


def test_bars_are_as_high_as_their_values() -> None:
    drawing = bar_chart(
        ["a", "b", "c"], [("one", [50.0, 100.0, math.nan])], y_range=(0, 100), **NAMES
    )
    areas = [shape for shape in drawing.shapes if isinstance(shape, Area)]
    heights = [area.points[2][1] - area.points[1][1] for area in areas]
    assert len(areas) == 2 and heights[0] == pytest.approx(heights[1] / 2)


def test_rows_are_as_long_as_their_values() -> None:
    drawing = row_chart([("a", 2.0, "2 s"), ("b", 1.0, "1 s")], title="", summary="")
    bars = [s for s in drawing.shapes if isinstance(s, Area) and s.role == "run0"]
    lengths = [bar.points[1][0] - bar.points[0][0] for bar in bars]
    assert lengths[0] == pytest.approx(2 * lengths[1])
    assert row_chart([], title="", summary="").height > 0


def test_many_runs_get_a_legend_of_several_lines() -> None:
    many = [Series(f"a rather long name of run {n}", [(0, n), (1, n)], n) for n in range(9)]
    drawing = line_chart(many, **NAMES)
    words = {shape.text for shape in drawing.shapes if isinstance(shape, Words)}
    assert all(f"a rather long name of run {n}" in words for n in range(9))
    lines = [s for s in drawing.shapes if isinstance(s, Line) and s.role.startswith("run")]
    assert len({(line.role, line.dash) for line in lines}) == 9


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_steps_are_few_and_inside(low: float, span: float) -> None:
    steps = round_steps(low, low + span)
    assert len(steps) <= 7
    slack = 1e-6 * max(abs(low), span)
    assert all(low - slack <= step <= low + span + slack for step in steps)


def test_axis_ticks_of_a_logarithmic_axis_are_powers_of_ten() -> None:
    assert Axis(1, 5000, 0, 1, log=True).ticks() == [1, 10, 100, 1000]
    assert short_number(20_000) == "20k"


def test_svg_escapes_names_and_is_told_to_those_who_do_not_see_it() -> None:
    hostile = "<script>'\"&"
    drawing = line_chart(
        [Series(hostile, [(0, 0), (1, 1)]), Series("b", [(0, 1)])], **NAMES | {"title": hostile}
    )
    svg = to_svg(drawing, "chart")
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(svg)
    assert "script" not in tags
    assert "role='img'" in svg and "aria-labelledby='chart-title chart-about'" in svg
