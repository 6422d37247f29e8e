"""Hash splits and samples: stable, in proportion, and indifferent to other documents."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.data.shop import shop_corpus
from labelgrove.data.splits import HashSplit, repeated_texts, sample_documents
from labelgrove.data.stratified import StratifiedSplit
from labelgrove.errors import ConfigError


def test_shares_are_met_and_places_are_the_same_everywhere():
    split = HashSplit(dev=0.05, test=0.1, seed=1)
    counts = Counter(split.part(f"document {i}") for i in range(20_000))
    assert counts["test"] / 20_000 == pytest.approx(0.1, abs=0.01)
    assert counts["dev"] / 20_000 == pytest.approx(0.05, abs=0.01)
    split = HashSplit(dev=0.3, test=0.3, seed=7)
    assert "".join(split.part(str(i))[2] for i in range(20)) == "asvvassasvaaavasaava"
    split = HashSplit(dev=0, test=0)
    assert {split.part(str(i)) for i in range(1000)} == {"train"}
    assert split.part("\ud800") == "train"


@given(st.lists(st.text(), max_size=20), st.integers(0, 5))
def test_a_larger_test_part_contains_the_smaller(keys, seed):
    small, large = HashSplit(test=0.2, seed=seed), HashSplit(test=0.5, seed=seed)
    assert {k for k in keys if small.part(k) == "test"} <= {
        k for k in keys if large.part(k) == "test"
    }
    assert [small.part(k) == "dev" for k in keys] == [large.part(k) == "dev" for k in keys]


def test_impossible_numbers_are_refused_and_repeated_texts_counted():
    for dev, test in ((-0.1, 0.1), (0.1, 1.0), (0.5, 0.5), (float("nan"), 0.1)):
        pytest.raises(ConfigError, HashSplit, dev=dev, test=test)
    pytest.raises(ConfigError, sample_documents, [], -1)
    assert repeated_texts(["a", "b", "b", "c"], iter(["b", "c", "d"])) == 3
    assert repeated_texts([], ["a"]) == 0


@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 3))
def test_sample_is_a_subset_in_order(size, n, seed):
    drawn = sample_documents(iter(range(size)), n, seed=seed)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(n, size)
    assert set(drawn) <= set(sample_documents(range(size), n + 1, seed=seed))


def test_every_place_has_the_same_chance():
    counts = Counter(x for seed in range(2000) for x in sample_documents(range(10), 3, seed=seed))
    assert all(count == pytest.approx(600, abs=90) for count in counts.values())
    assert len(counts) == 10


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
