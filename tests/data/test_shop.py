"""The made-up shop: the same bytes everywhere, Zipf, a tree, and a task that can be learnt."""

import hashlib
import tracemalloc
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.data.shop import (
    Shop,
    shop_corpus,
    shop_documents,
    shop_label_index,
    shop_label_rows,
)
from labelgrove.errors import ConfigError


def digest(values):
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("labels", "seed", "part", "documents", "names"),
    [
        (10, 0, "train", "6ed6cbdeaa3b754e", "3fc3ffcd0622f826"),
        (2000, 0, "train", "d1300f1c2ea2aa36", "278ea925ecd46d96"),
        (2000, 1, "dev", "8349a08028c50cc6", "cfa7bf969d17858d"),
    ],
)
def test_bytes_never_change(labels, seed, part, documents, names):
    # So what was once true of frequencies, of labels that occur together and of how well they can
    # be learnt stays true.
    made = shop_documents(300, labels=labels, seed=seed, part=part)
    assert digest([(d.id, d.text, list(d.labels)) for d in made]) == documents
    assert digest(list(islice(shop_label_rows(labels, seed), 500))) == names


def test_a_shop_has_two_thousand_labels_and_seed_zero_by_default():
    assert list(shop_documents(3)) == list(shop_documents(3, labels=2000, seed=0, part="train"))
    assert list(shop_label_rows()) == list(shop_label_rows(2000, seed=0))
    assert shop_label_index() == shop_label_index(2000, seed=0)
    assert shop_corpus(3).labels.shape == (3, 2000)


def test_a_document_does_not_depend_on_how_many_are_made():
    whole = list(shop_documents(600, labels=500, seed=3))
    assert list(shop_documents(270, labels=500, seed=3)) == whole[:270]
    assert list(shop_documents(0, labels=500)) == []


@pytest.mark.parametrize("labels", [10, 500, 3000])
def test_every_label_occurs_where_that_is_asked_for(labels):
    n = int(1.6 * labels)
    documents = list(shop_documents(n, labels=labels, every_label=True))
    occurring = {label for document in documents for label in document.labels}
    assert len(occurring) == labels
    usual = list(shop_documents(n, labels=labels))
    assert documents[::2] == usual[::2]
    assert documents[1::2] != usual[1::2]


def test_corpus_equals_documents():
    corpus = shop_corpus(100, labels=300, seed=5, part="dev")
    documents = list(shop_documents(100, labels=300, seed=5, part="dev"))
    assert list(corpus.texts) == [d.text for d in documents]
    assert list(corpus.ids) == [d.id for d in documents]
    assert [sorted(row) for row in corpus.label_lists()] == [sorted(d.labels) for d in documents]


def test_label_index_is_whole_and_readable():
    index = shop_label_index(5000, seed=2)
    assert len(set(index.ids)) == len(set(index.names)) == 5000
    assert all(index.texts)
    assert sum(len(columns) for columns in index.groups.values()) == 5000
    for kind, columns in index.groups.items():
        assert all(index.ids[column].startswith(f"{kind}-") for column in columns)
    documents = shop_documents(2000, labels=5000, seed=2)
    assert all(index.get(label) is not None for d in documents for label in d.labels)


def test_a_label_means_the_same_in_a_larger_shop():
    small = {row[0]: row for row in shop_label_rows(1000, 4)}
    large = {row[0]: row for row in shop_label_rows(30_000, 4)}
    assert all(large[label] == row for label, row in small.items())


@given(st.integers(0, 50_000_000), st.integers(0, 2**64 - 1))
def test_categories_form_a_tree(number, seed):
    labels = Shop(100, seed=seed)
    category = labels.category(number)
    assert category.path[-1] == number
    assert list(category.path) == sorted(set(category.path))
    if len(category.path) > 1:
        parent = labels.category(category.path[-2])
        assert parent.path == category.path[:-1]
        # A child is called after its parent's product.
        assert category.product is not None and category.path[0] == parent.path[0]


@pytest.mark.parametrize("labels", [10, 11, 25, 50, 400, 1_500_000, 100_000_000])
def test_any_number_of_labels(labels):
    shop = Shop(labels, seed=9)
    documents = list(shop_documents(600, labels=labels, seed=9))
    for document in documents:
        assert document.text and document.labels
        assert len(set(document.labels)) == len(document.labels)
        for label in document.labels:
            kind, number = label.split("-")
            assert int(number) < shop.sizes[kind]


@pytest.mark.slow
def test_millions_of_labels_need_no_memory_of_their_own():
    list(shop_documents(1, labels=10))  # imports and constant tables are not what is measured
    tracemalloc.start()
    try:
        count = sum(len(d.labels) for d in shop_documents(1000, labels=3_000_000))
        count += sum(1 for _ in islice(shop_label_rows(3_000_000), 20_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count > 20_000
    assert peak < 16e6, f"{peak:,} bytes: more than 5 bytes per label"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": 9}, "labels"),
        ({"labels": 100_000_001}, "labels: must be between 10 and 100,000,000, got 100,000,001"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"part": "valid"}, "part"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    pytest.raises(ConfigError, next, shop_documents(1, **arguments)).match(message)
    pytest.raises(ConfigError, next, shop_documents(-1)).match("documents: must not be negative")
