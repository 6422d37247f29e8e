"""One spelling of accents: the same as Python's own, in tables and with places."""

import sys
import unicodedata
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core.nfc import nfc, nfc_places, nfc_table
from labelgrove.core.strings import StringTable

# Accents, letters with and without them, Korean, Indic and Japanese signs that melt, compatibility
# characters, musical signs, half of a surrogate pair.
TRICKY = "e\u00e9 A\u0300\u0301\u0327\u0345\u1100\u1161\u11a8\uac00\u2126\u212b\u2000"
TRICKY += "\u09c7\u09be\u0915\u093c\u0958\u304b\u3099\U00011131\U00011127\U0002f800\U0001d15e\ud800"
TEXTS = st.text(st.one_of(st.sampled_from(TRICKY), st.characters()), max_size=12)


@given(st.lists(TEXTS, max_size=6))
def test_a_table_is_composed_like_its_strings(texts):
    expected = [unicodedata.normalize("NFC", text) for text in texts]
    table = StringTable.from_strings(texts)
    assert list(nfc_table(table)) == expected
    if texts == expected:
        assert nfc_table(table) is table


@given(TEXTS)
def test_every_character_comes_from_its_place(text):
    composed, places = nfc_places(text)
    assert composed == nfc(text) == unicodedata.normalize("NFC", text)
    assert len(places) == len(composed)
    assert places == sorted(places)
    covered = sorted(set(places))
    assert [start for start, _ in covered] == [0, *(end for _, end in covered)][: len(covered)]
    assert (covered[-1][1] if covered else 0) == len(text)
    assert "".join(nfc(text[start:end]) for start, end in covered) == composed


@pytest.mark.slow
def test_every_character_after_every_kind_of_letter():
    others = [chr(code) for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    pairs = (before + other for other in others for before in ("e", "\u0628", "\u0915", "\u1100"))
    resolved, settled_apart = (partial(unicodedata.is_normalized, form) for form in ("NFC", "NFD"))
    texts = [pair for n, pair in enumerate(pairs) if n % 16 == 0 or not resolved(pair)]
    texts += [unicodedata.normalize("NFD", other) for other in others if not settled_apart(other)]
    table = nfc_table(StringTable.from_strings(texts))
    wrong = [t for t, c in zip(texts, table, strict=True) if c != unicodedata.normalize("NFC", t)]
    assert not wrong


def test_what_does_not_melt_stays():
    raw = b"e\xcc\x81\xff" + b"e\xcc\x81" + b"\xcc"
    table = StringTable(np.frombuffer(raw, np.uint8), np.array([0, 4, 7, 8]))
    assert nfc_table(table).blob.tobytes() == b"e\xcc\x81\xff" + b"\xc3\xa9" + b"\xcc"
    assert nfc_places("x\u0301y") == ("x\u0301y", [(0, 2), (0, 2), (2, 3)])
