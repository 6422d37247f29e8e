"""A drawing as a PNG file, painted with Pillow (extra: report)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from labelgrove.errors import MissingExtraError
from labelgrove.report.drawing import COLOURS, Area, Dot, Drawing, Line, Point, Words

SCALE = 2  # pixels per unit of the drawing
FINER = 2  # painted so many times larger, then reduced: smooth edges


def write_png(drawing: Drawing, path: str | Path) -> None:
    """Paints a drawing in its light colours."""
    painting = _modules()
    zoom = SCALE * FINER
    size = (round(drawing.width * zoom), round(drawing.height * zoom))
    image = painting.Image.new("RGB", size, COLOURS["paper"][0])
    brush = painting.ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _paint(painting, brush, shape, zoom)
    image.reduce(FINER).save(path, format="PNG", optimize=True)


def check_png() -> None:
    """Raises MissingExtraError where PNG files cannot be painted."""
    _modules()


def _modules() -> Any:
    try:
        import PIL.Image
        import PIL.ImageDraw
        import PIL.ImageFont
    except ImportError:
        raise MissingExtraError("report", "writing PNG files") from None
    return PIL


def _paint(painting: Any, brush: Any, shape: Any, zoom: int) -> None:
    if isinstance(shape, Line):
        width = max(1, round(shape.width * zoom))
        for piece in _dashes(shape.points, shape.dash):
            brush.line(_scaled(piece, zoom), fill=_colour(shape.role), width=width, joint="curve")
    elif isinstance(shape, Area):
        brush.polygon(_scaled(shape.points, zoom), fill=_colour(shape.role, shape.strength))
    elif isinstance(shape, Dot):
        (x, y), r = shape.at, shape.radius
        corners = _scaled([(x - r, y - r), (x + r, y + r)], zoom)
        brush.ellipse(corners, fill=_colour(shape.role))
    elif isinstance(shape, Words):
        font = painting.ImageFont.load_default(size=shape.size * zoom)
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
        place = _scaled([shape.at], zoom)[0]
        brush.text(place, shape.text, fill=_colour(shape.role), font=font, anchor=anchor)


def _scaled(points: Any, zoom: int) -> list[Point]:
    return [(x * zoom, y * zoom) for x, y in points]


def _colour(role: str, strength: float = 1.0) -> tuple[int, ...]:
    """The light colour of a role, thinned with paper."""
    ink, paper = (bytes.fromhex(COLOURS[name][0][1:]) for name in (role, "paper"))
    pairs = zip(ink, paper, strict=True)
    return tuple(round(strength * a + (1 - strength) * b) for a, b in pairs)


def _dashes(points: tuple[Point, ...], pattern: tuple[float, ...]) -> Iterator[list[Point]]:
    """The drawn pieces of a dashed line; the whole line where there is no pattern."""
    if not pattern or len(points) < 2:
        yield list(points)
        return
    if len(pattern) % 2:
        pattern += pattern
    step, left = 0, pattern[0]
    piece = [points[0]]
    for start, end in pairwise(points):
        done, length = 0.0, math.dist(start, end)
        while length - done > left:
            done += left
            share = done / length
            at = tuple(a + share * (b - a) for a, b in zip(start, end, strict=True))
            if step % 2 == 0:
                yield [*piece, (at[0], at[1])]
            piece = [(at[0], at[1])]
            step = (step + 1) % len(pattern)
            left = pattern[step]
        left -= length - done
        piece.append(end)
    if step % 2 == 0 and len(piece) > 1:
        yield piece
