"""Which names are found in a text, and where."""

from __future__ import annotations

import numpy as np
import pytest

from labelgrove import LabelIndex
from labelgrove.methods.matcher.names import Names, words_of


def found(names: list[str], text: str, *, texts: list[str] | None = None) -> set[str]:
    table = Names(LabelIndex(names, texts=texts), 8)
    matches = table.find(table.read([text]))
    return {names[label] for label in table.labels[matches.name]}


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("data base", "two data bases", True),
        ("data base", "a base of data", False),
        ("data base", "data. Base", True),  # punctuation does not count
        ("Haus", "in den Hausen", True),
        ("Städte", "eine STADT", True),
        ("city", "cities", True),
        ("Straße", "strassen", True),
        ("Algorithmus", "some algorithms", True),
        ("Bach, Johann Sebastian", "by Johann Sebastian Bach", True),
        ("Bach, Johann Sebastian", "Bach, Johann Sebastian:", True),
        ("Bach, Johann Sebastian", "Johann Bach", False),
        ("Memory (Motiv)", "a memory", True),
        ("(Motiv)", "das Motiv", True),  # nothing but a qualifier is the name
        ("???", "???", False),
        ("a b c", "a b", False),
        (
            "one two three four five six seven eight nine ten eleven twelve end (Ring)",
            "ring",
            False,
        ),
        ("cafe\u0301", "caf\u00e9", True),
    ],
)
def test_names_in_texts(name: str, text: str, is_found: bool) -> None:
    assert found([name], text) == ({name} if is_found else set())


def test_names_do_not_cross_texts() -> None:
    names = Names(LabelIndex(["red hat"]), 8)
    matches = names.find(names.read(["a red", "hat", "", "red hat"]))
    assert matches.text.tolist() == [3]
    assert len(names.find(names.read([])).text) == 0


def test_short_parts_of_a_label_text_are_other_names() -> None:
    texts = ["kitty; domestic feline", "a text that goes on and on about dogs"]
    ids = ["cat", "dog"]
    assert found(ids, "a kitty", texts=texts) == {"cat"}
    assert found(ids, "domestic felines", texts=texts) == {"cat"}
    assert found(ids, "on and on about dogs", texts=texts) == {"dog"}
    assert found(ids, "goes on", texts=texts) == set()


def test_every_place_is_found_as_by_comparing_word_by_word() -> None:
    random = np.random.default_rng(0)
    letters = list("abcd")
    names = sorted({" ".join(random.choice(letters, random.integers(1, 4))) for _ in range(30)})
    texts = [" ".join(random.choice(letters, random.integers(0, 30))) for _ in range(20)]
    table = Names(LabelIndex(names), 8)
    reading = table.read(texts)
    matches = table.find(reading)
    start = matches.start - reading.starts[matches.text]
    got = sorted(zip(matches.text, table.labels[matches.name], start, strict=True))
    expected = [
        (row, label, place)
        for row, text in enumerate(texts)
        for label, name in enumerate(names)
        for place in range(len(text.split()))
        if words_of(text)[place : place + len(name.split())] == name.split()
    ]
    assert got == sorted(expected) and expected
    assert (matches.likeness == 1).all()


def test_names_inside_longer_ones_and_other_inflections() -> None:
    table = Names(LabelIndex(["base", "data base"]), 8)
    matches = table.find(table.read(["data bases and a base"]))
    entries = {
        (int(table.labels[name]), int(start)): (likeness, bool(inside))
        for name, start, likeness, inside in zip(
            matches.name, matches.start, matches.likeness, matches.inside, strict=True
        )
    }
    assert entries[0, 1] == (pytest.approx(8 / 9), True)
    assert entries[1, 0] == (pytest.approx(8 / 9), False)
    assert entries[0, 4] == (1.0, False)


def test_qualifiers_in_the_text() -> None:
    names = ["Ring (Mathematik, Algebra)", "ring", "Ring <Motiv>"]
    table = Names(LabelIndex(names), 8)
    reading = table.read(["ein ring", "ring der algebra", "motive"])
    text, label = np.array([0, 1, 1, 1, 2]), np.array([0, 0, 1, 2, 2])
    counts, present = table.qualified(reading, text, label)
    assert counts.tolist() == [2, 2, 0, 1, 1]
    assert present.tolist() == [False, True, False, False, True]


def test_labels_that_share_a_name_are_counted() -> None:
    index = LabelIndex(["1", "2", "3"], names=["Mercury (planet)", "mercury (metal)", "moon"])
    assert Names(index, 8).sharing.tolist() == [2, 2, 1]
