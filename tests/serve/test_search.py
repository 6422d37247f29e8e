"""Labels by name: against a plain reading of the same rule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelgrove.data.corpus import LabelIndex
from labelgrove.serve.browse import LabelSearch

pytestmark = pytest.mark.slow
NAMES = st.lists(st.text("aAbß é\n", max_size=8), min_size=1, max_size=12)


def plain(text):
    return " ".join(text.casefold().split())


@settings(max_examples=200, deadline=None)
@given(names=NAMES, query=st.text("aAbß é", max_size=4), limit=st.integers(1, 15))
def test_hits_come_in_the_order_that_is_promised(names, query, limit):
    frequencies = np.array([len(name) % 3 for name in names], np.int64)
    index = LabelIndex([str(number) for number in range(len(names))], names=names)
    found = LabelSearch(index, frequencies).find(query, limit=limit).tolist()
    wanted = plain(query)

    def rank(column):
        name = plain(names[column])
        kinds = [name == wanted, name.startswith(wanted), f" {wanted}" in name, wanted in name]
        kind = kinds.index(True) if wanted and True in kinds else 0
        return kind, -int(frequencies[column]), column

    hits = [column for column in range(len(names)) if wanted in plain(names[column])]
    assert found == sorted(hits, key=rank)[:limit]


def test_ids_are_found_too_behind_names_of_the_same_kind():
    index = LabelIndex(["gnd:1", "gnd:2"], names=["hats", "on gnd:1"])
    search = LabelSearch(index, np.zeros(2, int))
    assert search.find("GND:1", limit=5).tolist() == [0, 1]
    assert search.find("gnd:2", limit=5).tolist() == [1]


def test_many_labels_are_searched_quickly():
    index = LabelIndex([f"label number {number}" for number in range(200_000)])
    search = LabelSearch(index, np.zeros(200_000, int))
    assert search.find("199999", limit=3).tolist() == [199_999]
    assert search.find("label number 77", limit=2).tolist() == [77, 770]
    assert len(search.find("a", limit=100)) == 100
    assert search.find("", limit=2).tolist() == [0, 1]
    search._frequencies = np.zeros(0)  # sorted once, not for each request
    assert search.find(" ", limit=3).tolist() == [0, 1, 2]


def test_the_spelling_of_accents_makes_no_difference():
    search = LabelSearch(
        LabelIndex(["1", "2"], names=["cafe\u0301", "caf\u00e9s"]), np.zeros(2, int)
    )
    for query in ("cafe\u0301", "caf\u00e9"):
        assert search.find(query, limit=5).tolist() == [0, 1]
