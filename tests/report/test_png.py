"""PNG files: painted where Pillow is, refused with a sentence where it is not."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from labelgrove import Corpus, Linear
from labelgrove.errors import MissingExtraError
from labelgrove.report import write_report
from labelgrove.report.drawing import COLOURS, Area, Dot, Drawing, Line, Words, box
from labelgrove.report.png import SCALE, _dashes, write_png

CORPUS = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])


def test_shapes_have_the_colours_of_their_roles(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    drawing = Drawing(40, 20, "", "")
    drawing.add(
        Area(box(0, 0, 20, 20), "run0"),
        Area(box(20, 0, 20, 20), "run1", 0.0),
        Dot((30, 10), "run2", 5),
        Line(((0, 10), (20, 10)), "ink", 4, (3, 3)),
        Words((2, 18), "word", "paper"),
    )
    write_png(drawing, tmp_path / "a.png")
    with image_module.open(tmp_path / "a.png") as image:
        assert image.size == (40 * SCALE, 20 * SCALE)
        for place, role in (((10, 2), "run0"), ((38, 2), "paper"), ((30, 10), "run2")):
            pixel = image.getpixel((place[0] * SCALE, place[1] * SCALE))
            assert bytes(pixel[:3]).hex() == COLOURS[role][0][1:]


def test_dashes_cover_their_share_of_a_line() -> None:
    pieces = list(_dashes(((0, 0), (10, 0), (10, 10)), (3, 2)))
    drawn = sum(abs(b[0] - a[0]) + abs(b[1] - a[1]) for piece in pieces for a, b in pairwise(piece))
    assert drawn == pytest.approx(12)  # four times 3 of 5
    assert list(_dashes(((0, 0), (1, 1)), ())) == [[(0, 0), (1, 1)]]


def test_a_report_paints_its_pictures(tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    model = Linear().fit(CORPUS)
    write_report(model, CORPUS, tmp_path / "r.html", png_folder=tmp_path / "png")
    names = {file.name for file in (tmp_path / "png").iterdir()}
    assert {"curve-p.png", "calibration.png", "long-tail.png", "stages.png"} <= names


def test_without_pillow_a_sentence_says_what_to_install_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"labelgrove\[report\]"):
        write_report(None, CORPUS, tmp_path / "r.html", png_folder=tmp_path)
    assert not (tmp_path / "r.html").exists()
