"""Weights of single nodes, read from levels and written into them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.tree import LabelTree
from labelgrove.ranking.ranker import Ranker
from labelgrove.ranking.weights import (
    ChunkedWeights,
    Columns,
    check_chunks,
    compress,
    dense_weights,
    read_columns,
    write_columns,
)
from reference.solver import level_weights

STORAGES = ["float32", "float16"]


def random_columns(nodes, terms, width, rng):
    matrix = rng.normal(size=(len(nodes), terms)) * (rng.random((len(nodes), terms)) < 0.4)
    return Columns(
        np.asarray(nodes, np.int64),
        as_csr(matrix.astype(np.float32)),
        rng.normal(size=len(nodes)).astype(np.float32),
        rng.normal(size=(len(nodes), width)).astype(np.float16).astype(np.float32),
    )


def random_level(children, terms, width, storage, rng):
    """A level whose every node was written into an empty one."""
    empty = ChunkedWeights.empty(children, width=width)
    everything = random_columns(range(int(children[-1])), terms, width, rng)
    return compress(write_columns(empty, children, children, everything), children, storage)


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    more=st.lists(st.integers(0, 3), min_size=5, max_size=5),
    width=st.sampled_from([0, 3]),
    storage=st.sampled_from(STORAGES),
    seed=st.integers(0, 2**16),
)
def test_written_columns_are_read_and_others_keep_their_bits(sizes, more, width, storage, seed):
    rng, terms = np.random.default_rng(seed), 7
    before = np.concatenate([[0], np.cumsum(sizes)])
    grown = np.array(sizes) + np.array(more[: len(sizes)])
    after = np.concatenate([[0], np.cumsum(grown)])
    level = random_level(before, terms, width, storage, rng)
    moved = np.concatenate([after[p] + np.arange(size) for p, size in enumerate(sizes)])
    new = np.setdiff1d(np.arange(after[-1]), moved)
    retrained = rng.choice(moved, rng.integers(0, len(moved)), replace=False)
    columns = random_columns(np.sort(np.concatenate([new, retrained])), terms, width, rng)

    written = write_columns(level, before, after, columns)

    options = {"features": terms, "width": width}
    kept = np.setdiff1d(moved, retrained)
    old = read_columns(level, before, np.searchsorted(moved, kept), **options)
    now = read_columns(written, after, kept, **options)
    assert np.array_equal(old.sparse.toarray(), now.sparse.toarray())
    assert np.array_equal(old.bias, now.bias)
    assert np.array_equal(old.dense, now.dense)
    found = read_columns(written, after, columns.nodes, **options)
    exact = {"float32": 0, "float16": 1e-3}[storage]
    assert np.allclose(found.sparse.toarray(), columns.sparse.toarray(), atol=4 * exact)
    assert np.array_equal(found.bias, columns.bias)
    assert np.array_equal(found.dense, columns.dense)
    assert written.values.dtype == level.values.dtype
    # The kernels' own checks accept it, and a literal reader finds the same.
    tree = LabelTree(
        [np.arange(len(sizes)) * 0, np.repeat(np.arange(len(sizes)), grown)], np.arange(after[-1])
    )
    upper = ChunkedWeights.empty(np.array([0, len(sizes)]), width=width)
    Ranker(tree, [upper, written], features=terms, width=width, bias=1.0)
    if storage == "float32" and width:
        literal = level_weights(written, after, terms, width)
        assert np.allclose(literal[columns.nodes, :terms], columns.sparse.toarray())


def test_more_than_256_children_take_wider_numbers():
    rng = np.random.default_rng(0)
    before, after = np.array([0, 200]), np.array([0, 300])
    level = random_level(before, 4, 0, "float16", rng)
    assert level.children.dtype == np.uint8
    columns = random_columns(range(200, 300), 4, 0, rng)
    written = write_columns(level, before, after, columns)
    assert written.children.dtype == np.uint16
    found = read_columns(written, after, [299], features=4, width=0)
    assert np.allclose(found.sparse.toarray(), columns.sparse[[99]].toarray(), atol=1e-3)


@pytest.mark.parametrize("storage", STORAGES)
def test_the_level_itself_is_never_written_to(storage):
    rng, children = np.random.default_rng(0), np.array([0, 3, 5])
    level = random_level(children, 4, 2, storage, rng)
    before = {name: array.copy() for name, array in level.arrays().items()}
    for array in level.arrays().values():
        array.flags.writeable = False  # as memory maps of a model folder are
    write_columns(level, children, np.array([0, 4, 6]), random_columns([3, 5], 4, 2, rng))
    for name, array in level.arrays().items():
        assert np.array_equal(array, before[name])


def test_nothing_to_read_and_dense_rows():
    level = ChunkedWeights.empty(np.array([0, 3]))
    found = read_columns(level, np.array([0, 3]), [], features=2, width=0)
    assert found.sparse.shape == (0, 2)
    joined = Columns.joined([found, random_columns([1], 2, 0, np.random.default_rng(0))])
    assert joined.nodes.tolist() == [1] and sparse.issparse(joined.sparse)
    rng, children = np.random.default_rng(3), np.array([0, 3, 4])
    columns = random_columns(range(4), 2, 5, rng)
    level = write_columns(ChunkedWeights.empty(children, width=5), children, children, columns)
    assert np.array_equal(dense_weights(level, children, 5), columns.dense)


def test_a_level_from_single_weights_in_any_order():
    children = np.array([0, 2, 2, 4])
    nodes, features = np.array([3, 0, 1, 2, 0]), np.array([5, 1, 1, 0, 0])
    values = np.array([1, 2, 3, 4, 5], np.float32)
    level = ChunkedWeights.from_entries(nodes, features, values, children)
    check_chunks(level, children, features=6, width=0, where="level")
    expected = np.zeros((4, 6))
    expected[nodes, features] = values
    found = read_columns(level, children, np.arange(4), features=6, width=0)
    assert np.array_equal(found.sparse.toarray(), expected)
    assert level.chunk_rows.tolist() == [0, 2, 2, 4]
    assert level.row_start.tolist() == [0, 1, 3, 0, 0, 1, 2]


def test_halves_do_not_overflow():
    children, one = np.array([0, 1]), np.zeros(1, np.int64)
    level = ChunkedWeights.from_entries(one, one, np.array([-1e6], "f4"), children)
    assert compress(level, children, "float16").values.tolist() == [-65504.0]
    pytest.raises(ConfigError, compress, level, children, "float8").match("storage: must be one")


def test_damaged_arrays_are_refused():
    children = np.array([0, 2])
    sound = ChunkedWeights.from_entries(
        np.array([0, 1]), np.array([0, 1]), np.ones(2, np.float32), children
    )
    damages = [
        ("must be a list of int32", {"features": np.zeros(2)}),
        *[(f"{name} must be a list", {name: np.zeros((1, 1))}) for name in sound.arrays()],
        *[
            ("sizes of its arrays", {name: np.append(array, array.dtype.type(0))})
            for name, array in sound.arrays().items()
        ],
        ("feature lies outside 0..1", {"features": np.array([0, 2], np.int32)}),
        ("must rise from 0", {"row_start": np.array([0, 0, 2], np.uint32)}),
        ("does not fit chunk_entries", {"row_start": np.array([0, 1, 3], np.uint32)}),
        ("that its parent does not have", {"children": np.array([0, 2], np.uint16)}),
    ]
    check_chunks(sound, children, features=2, width=0, where="level 0")
    for message, change in damages:
        with pytest.raises(DataError, match=f"level 0: .*{message}"):
            check_chunks(replace(sound, **change), children, features=2, width=0, where="level 0")
