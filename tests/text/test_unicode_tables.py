"""The tables of characters agree with the running Python for every code point."""

import re

import numpy as np
import pytest

from labelgrove.text import unicode_tables
from labelgrove.text.unicode_tables import CASED, CODE_POINTS, IGNORABLE, SPACE, WORD, strip_marks

CHARS = [chr(code) for code in range(CODE_POINTS)]


@pytest.mark.parametrize(("pattern", "bit"), [(r"\w", WORD), (r"\s", SPACE)])
def test_classes_are_those_of_re(pattern, bit):
    matches = re.compile(pattern).match
    literal = np.fromiter((matches(char) is not None for char in CHARS), np.bool_)
    assert np.array_equal(unicode_tables._classes() & bit != 0, literal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lowercase", "strip_accents"), [(True, False), (False, True), (True, True), (False, False)]
)
def test_changes_are_those_of_str(lowercase, strip_accents):
    changes = unicode_tables._changes(lowercase, strip_accents)
    for code, char in enumerate(CHARS):
        folded = char.lower() if lowercase else char
        folded = strip_marks(folded) if strip_accents else folded
        assert changes.get(code, char) == folded


@pytest.mark.slow
def test_sigma_classes_are_those_of_str():
    def final(before):
        return np.fromiter((f"{before}{c}Σ".lower().endswith("ς") for c in CHARS), np.bool_)

    classes = unicode_tables._sigma_classes()
    assert np.array_equal(classes & CASED != 0, final(" "))
    assert np.array_equal(classes & IGNORABLE != 0, final("a") & ~final(" "))
