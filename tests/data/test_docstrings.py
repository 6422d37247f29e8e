"""Docstrings as a corpus: what becomes a document, and which labels it gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from labelgrove.data.docstrings import described, docstring_documents

KETTLE = '''
def boil(litres):
    """Heat water
    until it bubbles.

    What stands here is not read.
    """

class Kettle:
    """A vessel that whistles when ready."""

    def pour(self):
        """Methods are not documents either."""

async def wait():
    """Wait until the water boils."""

def _hidden():
    """This one is for the kitchen only."""

def terse():
    """Too short."""

def silent():
    pass
'''


@pytest.fixture
def teahouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    files = {
        "__init__.py": 'def open_house():\n    """Let all the guests in."""',
        "hot/__init__.py": "",
        "hot/_kettle.py": KETTLE,
        "hot/leaves/green.py": 'def steep():\n    """Leave the leaves alone for long."""',
        "hot/copy.py": 'def steep_too():\n    """Leave the leaves alone for long."""',
        "tests/test_hot.py": 'def helper():\n    """A helper of the tests only."""',
        "tests/cups.py": 'def cup():\n    """A cup for the tests only."""',
        "template.py": "def {{ name }}():",
    }
    for name, source in files.items():
        file = tmp_path / "teahouse" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return "teahouse"


def test_first_paragraphs_of_public_functions_and_classes() -> None:
    assert list(described(KETTLE.encode())) == [
        ("boil", "Heat water until it bubbles."),
        ("Kettle", "A vessel that whistles when ready."),
        ("wait", "Wait until the water boils."),
    ]


@pytest.mark.parametrize("source", [b"def {{ name }}():", b"\0", b"# coding: klingon\n"])
def test_what_python_cannot_parse_has_no_documents(source: bytes) -> None:
    assert list(described(source)) == []


def test_labels_are_the_public_modules_around(teahouse: str) -> None:
    found = {d.id: d.labels for d in docstring_documents([teahouse], least=1)}
    hot = ["teahouse", "teahouse.hot"]
    assert found == {
        "teahouse.open_house": ["teahouse"],
        "teahouse.hot.boil": hot,
        "teahouse.hot.Kettle": hot,
        "teahouse.hot.wait": hot,
        "teahouse.hot.copy.steep_too": [*hot, "teahouse.hot.copy"],
    }
    assert teahouse not in sys.modules, "sources are parsed, never imported"


def test_rare_and_deep_labels_are_left_out(teahouse: str) -> None:
    rare = docstring_documents([teahouse], least=4)
    assert {label for d in rare for label in d.labels} == {"teahouse", "teahouse.hot"}
    flat = docstring_documents([teahouse], levels=1, least=1)
    assert {label for d in flat for label in d.labels} == {"teahouse"}
    assert docstring_documents([teahouse], levels=1, least=6) == []


def test_by_default_a_label_has_five_documents_and_three_levels(teahouse: str) -> None:
    sources = Path(sys.path[0], teahouse, "cold", "drinks")
    sources.mkdir(parents=True)
    functions = [f'def pour{n}():\n    """Pour glass number {n} slowly."""\n' for n in range(5)]
    (sources / "iced.py").write_text("".join(functions[:4]))
    (sources / "fizzy.py").write_text("".join(functions).replace("glass", "bottle"))
    found = {d.id: d.labels for d in docstring_documents([teahouse])}
    drinks = ["teahouse", "teahouse.cold", "teahouse.cold.drinks"]
    assert found["teahouse.cold.drinks.iced.pour0"] == drinks
    assert found["teahouse.hot.boil"] == ["teahouse"]
    deeper = {d.id: d.labels for d in docstring_documents([teahouse], levels=4)}
    assert deeper["teahouse.cold.drinks.fizzy.pour4"] == [*drinks, "teahouse.cold.drinks.fizzy"]
    assert deeper["teahouse.cold.drinks.iced.pour0"] == drinks


def test_packages_that_are_not_installed_are_left_out(teahouse: str) -> None:
    both = docstring_documents([teahouse, "no_such_package_anywhere"], least=1)
    assert both == docstring_documents([teahouse], least=1)
