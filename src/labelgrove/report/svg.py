"""A drawing as inline SVG that takes its colours from the page around it."""

from __future__ import annotations

from labelgrove.report.drawing import Area, Dot, Drawing, Line, Point, Shape
from labelgrove.report.markup import escape


def to_svg(drawing: Drawing, name: str) -> str:
    """An ``svg`` element with title and description; ``name`` makes their ids unique in a page.

    >>> svg = to_svg(Drawing(10, 10, "Nothing", "An empty sheet."), "empty")
    >>> "<title id='empty-title'>Nothing</title>" in svg
    True
    """
    inside = "".join(_element(shape) for shape in drawing.shapes)
    return (
        f"<svg viewBox='0 0 {_number(drawing.width)} {_number(drawing.height)}' role='img' "
        f"aria-labelledby='{name}-title {name}-about'>"
        f"<title id='{name}-title'>{escape(drawing.title)}</title>"
        f"<desc id='{name}-about'>{escape(drawing.summary)}</desc>{inside}</svg>"
    )


def _element(shape: Shape) -> str:
    if isinstance(shape, Line):
        dash = " ".join(map(_number, shape.dash))
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        return (
            f"<polyline class='s-{shape.role}' stroke-width='{_number(shape.width)}'{dashed} "
            f"points='{_points(shape.points)}'/>"
        )
    if isinstance(shape, Area):
        faint = f" fill-opacity='{_number(shape.strength)}'" if shape.strength < 1 else ""
        return f"<polygon class='f-{shape.role}'{faint} points='{_points(shape.points)}'/>"
    x, y = map(_number, shape.at)
    if isinstance(shape, Dot):
        return f"<circle class='f-{shape.role}' cx='{x}' cy='{y}' r='{_number(shape.radius)}'/>"
    return (
        f"<text class='f-{shape.role}' x='{x}' y='{y}' font-size='{_number(shape.size)}' "
        f"text-anchor='{shape.anchor}'>{escape(shape.text)}</text>"
    )


def _points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
