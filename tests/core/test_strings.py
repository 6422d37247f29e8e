"""String tables behave like the lists they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core import strings
from labelgrove.core.strings import LONGEST, StringTable, cut, nearest_strings, row_numbers
from labelgrove.errors import DataError

# Every code point, lone surrogates included.
Strings = st.lists(st.text(st.characters(exclude_categories=()), max_size=6), max_size=8)


@given(Strings)
def test_a_table_is_the_list_it_was_made_of(strings):
    table = StringTable.from_strings(iter(strings))
    assert list(table) == strings
    assert len(table) == len(strings)
    assert [table[i] for i in range(-len(strings), len(strings))] == strings * 2
    assert table[1:5:2] == strings[1:5:2]
    assert table[::-1] == strings[::-1]
    assert all(string in table for string in strings)


@given(Strings, st.data())
def test_take_picks_like_a_list(strings, data):
    table = StringTable.from_strings(strings)
    numbers = st.integers(-len(strings), len(strings) - 1)
    rows = data.draw(st.lists(numbers, max_size=6)) if strings else []
    assert list(table.take(np.array(rows, dtype=np.int64))) == [strings[row] for row in rows]
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(strings), max_size=len(strings)))
    )
    if strings:
        expected = [s for s, keep in zip(strings, mask, strict=True) if keep]
        assert list(table.take(mask)) == expected


@given(Strings)
def test_arrays_give_the_table_back(strings):
    arrays = StringTable.from_strings(strings).arrays("names")
    assert set(arrays) == {"names.blob", "names.offsets"}
    assert list(StringTable.from_arrays(arrays, "names")) == strings


def test_tables_without_an_array_or_with_bytes_that_are_not_utf8():
    with pytest.raises(DataError, match=r"names.offsets"):
        StringTable.from_arrays({"names.blob": np.zeros(0, np.uint8)}, "names")
    table = StringTable(np.array([65, 255], np.uint8), np.array([0, 1, 2]))
    assert table[0] == "A"
    with pytest.raises(DataError, match="string 1 of the table is not valid UTF-8"):
        _ = table[1]


@pytest.mark.parametrize("position", [3, -4, 1 << 40])
def test_positions_outside_are_index_errors(position):
    with pytest.raises(IndexError, match="of 3 strings"):
        StringTable.from_strings("abc")[position]


@pytest.mark.parametrize(
    ("blob", "offsets"),
    [
        (np.zeros(1, np.int8), np.array([0, 1])),
        (np.zeros(1, np.uint8), np.array([0, 1], np.int32)),
        (np.zeros(1, np.uint8), np.array([], np.int64)),
        (np.zeros(1, np.uint8), np.array(0)),
        (np.zeros((1, 1), np.uint8), np.array([0, 1])),
        (np.zeros(2, np.uint8), np.array([0, 1])),
        (np.zeros(2, np.uint8), np.array([1, 2])),
        (np.zeros(2, np.uint8), np.array([0, 3, 2])),
        (np.zeros(2, np.uint8), np.array([0, -1, 2])),
        (np.zeros(2, np.uint8), np.array([0, 2**63 - 1, -2, 2])),  # differences overflow
    ],
)
def test_arrays_that_are_no_table_are_refused(blob, offsets):
    pytest.raises(DataError, StringTable, blob, offsets).match("string table")


@pytest.mark.parametrize("wrong", [None, 3, b"x", float("nan")])
def test_what_is_not_a_string_is_located(wrong):
    with pytest.raises(DataError, match=r"string 2 is .*, not a string"):
        StringTable.from_strings(["a", "b", wrong])


def test_tables_are_read_in_blocks_and_share_their_arrays(monkeypatch):
    table = StringTable.from_strings("abc")
    assert StringTable.from_strings(table).blob is table.blob
    monkeypatch.setattr(strings, "_BLOCK", 3)
    for count in range(8):
        texts = [str(number) * number for number in range(count)]
        assert list(StringTable.from_strings(texts)) == texts


@pytest.mark.parametrize(
    "rows", [[3], [-4], [0.5], [[0]], [True, False], ["a"], 1, [1 << 63], [True] * 4]
)
def test_rows_that_are_no_rows_are_refused(rows):
    pytest.raises(DataError, row_numbers, rows, 3).match("row")


def test_no_rows_are_fine():
    assert row_numbers([], 3).tolist() == []
    assert row_numbers(np.zeros(0, bool), 0).tolist() == []


def test_the_nearest_strings_of_many_are_found_without_comparing_all(monkeypatch):
    names = [f"label {number} of many" for number in range(20_000)]
    names[12_345] = "Umweltschutz\nund mehr"
    assert nearest_strings("umwelschutz und mehr", names)[0] == names[12_345]
    assert nearest_strings("zzz", names) == nearest_strings("l", names) == []
    assert nearest_strings("word", []) == nearest_strings("word", ["", ""]) == []
    assert nearest_strings("Été", ["\ud800", "été"]) == ["été"]
    monkeypatch.setattr(strings, "_MOST_COMPARED", 3)
    assert set(nearest_strings("label 7 of many", names)) == set(names[:3])


def test_long_texts_are_cut_and_stay_on_one_line():
    assert cut("red\n\tshoes ") == "red shoes"
    assert cut("x" * LONGEST) == "x" * LONGEST
    assert cut("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert cut(" " * 10_000 + "far") == "…"  # something is there, and it is not read in full
    assert len(cut("word " * 1_000_000)) <= LONGEST
