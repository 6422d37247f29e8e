"""Drawings as lists of shapes, so that the same picture can become SVG in a page or a PNG file.

Colours are roles ("ink", "grid", "run 0"), not values: a page gives them their colours by its style
sheet, light or dark, and a PNG file by the table here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]

# Light and dark value of every role; runs are told apart by their dashes, too.
COLOURS = {
    "paper": ("#ffffff", "#15181c"),
    "ink": ("#1c2127", "#e6e8eb"),
    "muted": ("#5b6470", "#a3abb5"),
    "grid": ("#d9dde3", "#353b43"),
    "run0": ("#0b62a8", "#6cb6ff"),
    "run1": ("#b9460c", "#ffa657"),
    "run2": ("#0f766e", "#4fd1c5"),
    "run3": ("#9d174d", "#f786b8"),
    "run4": ("#6d28d9", "#b79bff"),
    "run5": ("#57534e", "#c9c4bd"),
}
RUN_COLOURS = 6
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 3), (8, 3, 2, 3), (4, 2), (1, 2))


def run_role(number: int) -> str:
    """The colour of the run with this number.

    >>> run_role(0), run_role(6)
    ('run0', 'run0')
    """
    return f"run{number % RUN_COLOURS}"


def run_dash(number: int) -> tuple[float, ...]:
    """The dashes of the run with this number; runs of the same colour have different ones.

    >>> run_dash(0), run_dash(1)
    ((), (6, 3))
    """
    return DASHES[(number + number // RUN_COLOURS) % len(DASHES)]


@dataclass(frozen=True)
class Line:
    """Straight pieces through points."""

    points: tuple[Point, ...]
    role: str = "ink"
    width: float = 2.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True)
class Area:
    """A filled shape; ``strength`` 1 is the full colour."""

    points: tuple[Point, ...]
    role: str = "ink"
    strength: float = 1.0


@dataclass(frozen=True)
class Dot:
    """A filled circle."""

    at: Point
    role: str = "ink"
    radius: float = 3.0


@dataclass(frozen=True)
class Words:
    """A line of text whose baseline starts, is centred or ends ``at`` a point."""

    at: Point
    text: str
    role: str = "ink"
    anchor: Anchor = "start"
    size: float = 12.0


Shape: TypeAlias = Line | Area | Dot | Words


@dataclass
class Drawing:
    """Shapes on a sheet; ``title`` and ``summary`` tell those who do not see it what it shows.

    >>> sheet = Drawing(10, 10, "A line", "It rises.")
    >>> sheet.add(Line(((0, 10), (10, 0))))
    >>> len(sheet.shapes)
    1
    """

    width: float
    height: float
    title: str
    summary: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Puts shapes on top of what is there."""
        self.shapes.extend(shapes)


def box(x: float, y: float, width: float, height: float) -> tuple[Point, ...]:
    """The corners of an upright rectangle.

    >>> box(0, 0, 2, 1)
    ((0, 0), (2, 0), (2, 1), (0, 1))
    """
    return (x, y), (x + width, y), (x + width, y + height), (x, y + height)
