"""Charts: curves and bars on axes, drawn small enough to be read on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from labelgrove.report.drawing import (
    Area,
    Dot,
    Drawing,
    Line,
    Point,
    Words,
    box,
    run_dash,
    run_role,
)
from labelgrove.report.markup import shortened

WIDTH, HEIGHT = 420.0, 270.0
LEFT, RIGHT, BOTTOM = 40.0, 12.0, 40.0
SMALL = 11.0
LETTER = 6.2  # width of a letter of that size, roughly
NAME_LENGTH = 28


@dataclass(frozen=True)
class Series:
    """One run's values: (x, y) points, and a (x, low, high) band around them.

    ``run`` chooses colour and dashes. Points that are not numbers are left out.
    """

    name: str
    points: Sequence[tuple[float, float]]
    run: int = 0
    band: Sequence[tuple[float, float, float]] = ()
    dots: bool = True


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` along pixels from ``start`` to ``end``.

    >>> Axis(0, 10, 0, 100).at(5), Axis(1, 100, 0, 100, log=True).at(10)
    (50.0, 50.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where a value lies; what is outside goes to the nearest end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        return _powers(self.low, self.high) if self.log else round_steps(self.low, self.high)


def round_steps(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most ``most`` of them within the range.

    >>> round_steps(0, 1), round_steps(0, 7)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 2.0, 4.0, 6.0])
    """
    span = high - low
    if not span > 0:
        return [low]
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(f * size for f in (1, 2, 5, 10, 20) if span / (f * size) < most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first + 1) / 6))
    return [10.0**power for power in range(first, last + 1, every)]


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    summary: str,
    x_name: str,
    y_name: str,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    log: bool = False,
    diagonal: bool = False,
) -> Drawing:
    """Curves over a common axis; ``log`` makes both axes logarithmic.

    >>> one = Series("model", [(1, 0.5), (2, 0.4)])
    >>> chart = line_chart([one], title="P", summary="Falls.", x_name="k", y_name="P")
    >>> chart.title
    'P'
    """
    points = [p for s in series for p in s.points if _is_number(*p)]
    points += [(x, y) for s in series for x, *ends in s.band for y in ends if _is_number(y)]
    x_range = x_range or _span([x for x, _ in points], log)
    y_range = y_range or _roomy(_span([y for _, y in points], log), log)
    drawing, x_axis, y_axis = _sheet(
        [(s.name, s.run) for s in series] if len(series) > 1 else [],
        title,
        summary,
        x_range,
        y_range,
        log=log,
    )
    _horizontal_lines(drawing, x_axis, y_axis)
    ticks = x_ticks or [(tick, short_number(tick)) for tick in x_axis.ticks()]
    _write_ticks(drawing, [(x_axis.at(value), word) for value, word in ticks])
    _name_axes(drawing, y_axis, x_name, y_name)
    if diagonal:
        ends = ((x_axis.start, y_axis.start), (x_axis.end, y_axis.end))
        drawing.add(Line(ends, "muted", 1, (3, 3)))

    def place(x: float, y: float) -> Point:
        return x_axis.at(x), y_axis.at(y)

    for one in series:
        band = [row for row in one.band if _is_number(*row)]
        if len(band) > 1:
            upper = [place(x, high) for x, _, high in band]
            lower = [place(x, low) for x, low, _ in reversed(band)]
            drawing.add(Area((*upper, *lower), run_role(one.run), 0.18))
    for one in reversed(series):  # the first lies on top
        places = tuple(place(*p) for p in one.points if _is_number(*p))
        if len(places) > 1:
            drawing.add(Line(places, run_role(one.run), 2, run_dash(one.run)))
        if one.dots or len(places) == 1:
            drawing.add(*(Dot(p, run_role(one.run), 2.6) for p in places))
    return drawing


def bar_chart(
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str,
    summary: str,
    x_name: str,
    y_name: str,
    y_range: tuple[float, float] | None = None,
) -> Drawing:
    """Bars in groups, one per run; a value that is not a number has no bar.

    >>> values = [("model", [0.5, 0.25])]
    >>> bars = bar_chart(["a", "b"], values, title="", summary="", x_name="", y_name="")
    >>> sum(isinstance(shape, Area) for shape in bars.shapes)
    2
    """
    numbers = [v for _, values in series for v in values if _is_number(v)]
    y_range = y_range or (0.0, max(numbers, default=1.0) or 1.0)
    names = [(name, run) for run, (name, _) in enumerate(series)]
    drawing, x_axis, y_axis = _sheet(
        names if len(series) > 1 else [], title, summary, (0, max(len(groups), 1)), y_range
    )
    _horizontal_lines(drawing, x_axis, y_axis)
    _write_ticks(drawing, [(x_axis.at(g + 0.5), word) for g, word in enumerate(groups)])
    _name_axes(drawing, y_axis, x_name, y_name)
    wide = x_axis.at(1) - x_axis.at(0)
    bar = min(0.8 * wide / max(len(series), 1), 36)
    for run, (_, values) in enumerate(series):
        for group, value in enumerate(values):
            if _is_number(value):
                x = x_axis.at(group + 0.5) + (run - len(series) / 2) * bar
                top = y_axis.at(value)
                corners = box(x + 0.5, top, max(bar - 1, 0.5), y_axis.start - top)
                drawing.add(Area(corners, run_role(run), 0.85))
    return drawing


def row_chart(
    rows: Sequence[tuple[str, float, str]], *, title: str, summary: str, run: int = 0
) -> Drawing:
    """A bar to the right per row, its name above it and what it stands for behind it.

    >>> row_chart([("tree", 2.0, "2.00 s")], title="", summary="").height
    42.0
    """
    high = 34.0
    drawing = Drawing(WIDTH, 8 + high * len(rows), title, summary)
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    for number, (name, value, said) in enumerate(rows):
        top = 4 + high * number
        drawing.add(
            Words((4, top + 12), shortened(name, 40), "ink", "start", SMALL),
            Words((WIDTH - 4, top + 12), said, "muted", "end", SMALL),
            Area(box(4, top + 17, WIDTH - 8, 9), "grid", 0.5),
            Area(box(4, top + 17, max(1.0, (WIDTH - 8) * value / longest), 9), run_role(run), 0.85),
        )
    return drawing


def _sheet(
    names: Sequence[tuple[str, int]],
    title: str,
    summary: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    *,
    log: bool = False,
) -> tuple[Drawing, Axis, Axis]:
    """An empty sheet with a legend, and the axes below it."""
    drawing = Drawing(WIDTH, HEIGHT, title, summary)
    x, y = 4.0, 14.0
    for name, run in names:
        said = shortened(name, NAME_LENGTH)
        width = 30 + LETTER * len(said)
        if x > 4 and x + width > WIDTH:
            x, y = 4.0, y + 16
        drawing.add(
            Line(((x, y - 4), (x + 20, y - 4)), run_role(run), 3, run_dash(run)),
            Words((x + 24, y), said, "ink", "start", SMALL),
        )
        x += width + 8
    top = y + (36 if names else 14)
    drawing.height += top - 28
    x_axis = Axis(*x_range, LEFT, WIDTH - RIGHT, log)
    return drawing, x_axis, Axis(*y_range, drawing.height - BOTTOM, top, log)


def _horizontal_lines(drawing: Drawing, x_axis: Axis, y_axis: Axis) -> None:
    for tick in y_axis.ticks():
        y = y_axis.at(tick)
        drawing.add(
            Line(((x_axis.start, y), (x_axis.end, y)), "grid", 1),
            Words((x_axis.start - 5, y + 4), short_number(tick), "muted", "end", SMALL),
        )


def _write_ticks(drawing: Drawing, ticks: Sequence[tuple[float, str]]) -> None:
    """Words under the axis, as many as fit beside each other."""
    free_from = -math.inf
    for x, word in ticks:
        half = LETTER * len(word) / 2
        if x - half >= free_from:
            drawing.add(Words((x, drawing.height - BOTTOM + 15), word, "muted", "middle", SMALL))
            free_from = x + half + 4


def _name_axes(drawing: Drawing, y_axis: Axis, x_name: str, y_name: str) -> None:
    """What the axes show, above one and under the other: words on their side are hard to read."""
    drawing.add(
        Words((4, y_axis.end - 12), y_name, "muted", "start", SMALL),
        Words((WIDTH - RIGHT, drawing.height - 8), x_name, "muted", "end", SMALL),
    )


def _span(values: Sequence[float], log: bool) -> tuple[float, float]:
    """A range that holds the values, and more than nothing."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if log:
        low = max(low, 1e-9)
        return low, max(high, 10 * low)
    if high > low:
        return low, high
    return (low - 0.5, high + 0.5) if low else (0.0, 1.0)


def _roomy(span: tuple[float, float], log: bool) -> tuple[float, float]:
    """A little more than the span, so that no curve runs along the edge."""
    low, high = span
    if log:
        return low, high
    spare = (high - low) / 20
    return max(low - spare, min(low, 0.0)), high + spare


def _is_number(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


def short_number(value: float) -> str:
    """A number for a tick.

    >>> short_number(0.2), short_number(10.0), short_number(2_000_000), short_number(0.00002)
    ('0.2', '10', '2M', '2e-05')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):g}{letter}"
    return f"{value:.10g}" if abs(value) >= 1e-3 else f"{value:g}"
