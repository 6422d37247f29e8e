"""Stratified splits: copies together, labels in train, and shares of labels like those of parts."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.data.shop import shop_corpus
from labelgrove.data.splits import HashSplit
from labelgrove.data.stratified import StratifiedSplit


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sets(st.integers(0, 9))), max_size=30),
    st.sampled_from([(0, 0.5), (0.1, 0.1), (0.4, 0.4), (0, 0)]),
    st.integers(0, 3),
)
def test_a_stratified_split_trains_every_label_that_it_can(documents, shares, seed):
    documents = [(key, [str(label) for label in labels]) for key, labels in documents]
    settings = {"dev": shares[0], "test": shares[1], "seed": seed}
    split = StratifiedSplit(iter(documents), **settings)
    parts = {key: split.part(key) for key, _ in documents}
    backwards = StratifiedSplit(documents[::-1], **settings)
    assert parts == {key: backwards.part(key) for key in parts}
    for part, share in zip(("dev", "test"), shares, strict=True):
        assert share or part not in parts.values()
    for label in map(str, range(10)):
        keys = {key for key, labels in documents if label in labels}
        assert len(keys) < 2 or "train" in {parts[key] for key in keys}


def test_stratified_parts_have_their_sizes_and_their_share_of_every_label():
    corpus = shop_corpus(4000, labels=1500, seed=0)
    documents = [(str(row), labels) for row, labels in enumerate(corpus.label_lists())]
    totals = Counter(label for _, labels in documents for label in labels)

    def shares(split, low, high):
        """The shares in test of labels with so many documents, and of their occurrences."""
        held = Counter(x for key, labels in documents if split.part(key) == "test" for x in labels)
        names = [label for label, count in totals.items() if low <= count <= high]
        occurrences = sum(held[x] for x in names) / sum(totals[x] for x in names)
        return np.array([held[x] / totals[x] for x in names]), occurrences

    by_hash, split = HashSplit(dev=0.05, test=0.1), StratifiedSplit(documents, dev=0.05, test=0.1)
    sizes = Counter(split.part(key) for key, _ in documents)
    assert [sizes[part] for part in ("train", "dev", "test")] == pytest.approx(
        [3400, 200, 400], abs=10
    )
    assert shares(split, 100, 10_000)[0].std() < 0.5 * shares(by_hash, 100, 10_000)[0].std()
    # Rare labels are neither kept out of test nor gathered there.
    for low, high in ((1, 1), (2, 5), (6, 20)):
        assert shares(split, low, high)[1] == pytest.approx(0.1, abs=0.035), (low, high)
    other = StratifiedSplit(documents, seed=1)
    assert any(other.part(key) != split.part(key) for key, _ in documents)
