"""Batches: every document once, the same order again, equal work for every process."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from labelgrove.errors import DataError  # noqa: E402
from labelgrove.nn.batches.padded import Batches, prefetched  # noqa: E402
from labelgrove.nn.encoders.tokens import Tokens  # noqa: E402

PAD = 99


def make_tokens(lengths):
    """Document i's tokens are 1000 i, 1000 i + 1, ..."""
    ids = [np.arange(n, dtype=np.int32) + 1000 * i for i, n in enumerate(lengths)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Tokens(np.concatenate([*ids, np.zeros(0, np.int32)]), offsets)


def random_tokens(count, seed=0):
    lengths = np.random.default_rng(seed).integers(1, 65, count)
    return make_tokens(lengths.tolist())


def as_lists(batches, epoch, start=0):
    return [batch.rows.tolist() for batch in batches.epoch(epoch, start=start)]


SHAPES = st.fixed_dictionaries(
    {
        "size": st.one_of(st.none(), st.integers(1, 7)),
        "max_tokens": st.one_of(st.none(), st.integers(20, 90)),
        "shuffle": st.booleans(),
    }
).filter(lambda s: s["size"] or s["max_tokens"])


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=60),
    shape=SHAPES,
    epoch=st.integers(0, 3),
)
def test_an_epoch_has_every_document_once_in_batches_of_the_sizes_asked_for(lengths, shape, epoch):
    batches = Batches(make_tokens(lengths), pad_id=PAD, **shape)
    parts = list(batches.epoch(epoch))
    assert len(parts) == len(batches)
    assert sorted(row for batch in parts for row in batch.rows) == list(range(len(lengths)))
    for batch in parts:
        assert 1 <= len(batch) <= (shape["size"] or 1000)
        if shape["max_tokens"]:
            assert batch.ids.numel() <= max(shape["max_tokens"], 20)


@settings(max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=20),
    pad_left=st.booleans(),
)
def test_a_batch_holds_the_documents_tokens_and_padding_elsewhere(lengths, pad_left):
    tokens = make_tokens(lengths)
    batches = Batches(tokens, 4, pad_id=PAD, pad_left=pad_left)
    for batch in batches.epoch(0):
        longest = max(lengths[row] for row in batch.rows)
        width = batch.ids.shape[1]
        assert longest <= width < longest + 8
        assert width % 8 == 0 or width == max(lengths)
        assert batch.tokens == int(batch.mask.sum())
        assert (batch.attention is None) == bool((batch.mask == 1).all())
        assert batch.ids.dtype == batch.mask.dtype == torch.int64
        for row, ids, mask in zip(batch.rows, batch.ids.numpy(), batch.mask.numpy(), strict=True):
            n = lengths[row]
            place = slice(width - n, width) if pad_left else slice(0, n)
            expected = np.full(width, PAD)
            expected[place] = tokens.row(row)
            assert ids.tolist() == expected.tolist()
            assert np.flatnonzero(mask).tolist() == list(range(width))[place]


def test_an_epoch_can_be_had_again_and_entered_anywhere():
    tokens = random_tokens(200)
    batches = Batches(tokens, 8, pad_id=PAD, seed=5)
    whole = as_lists(batches, 3)
    again = Batches(tokens, 8, pad_id=PAD, seed=5)
    for start in (0, 1, 17, len(batches)):
        assert as_lists(again, 3, start) == whole[start:]
    assert as_lists(batches, 4) != whole
    assert as_lists(Batches(tokens, 8, pad_id=PAD, seed=6), 3) != whole
    # Company changes as well as order: batches of another epoch are other sets of documents.
    sets = [{frozenset(rows) for rows in as_lists(batches, n)} for n in (0, 1)]
    assert not sets[0] & sets[1]


def test_shapes_repeat_from_epoch_to_epoch():
    batches = Batches(random_tokens(500), None, max_tokens=256, pad_id=PAD)

    def shapes(epoch):
        return sorted(tuple(batch.ids.shape) for batch in batches.epoch(epoch))

    assert shapes(0) == shapes(1)
    assert all(rows * width <= 256 for rows, width in shapes(0))
    assert {width % 8 for _, width in shapes(0)} == {0}


def test_batches_of_similar_lengths_save_padding():
    batches = list(Batches(random_tokens(2000), 16, pad_id=PAD).epoch(0))
    share = sum(batch.tokens for batch in batches) / sum(batch.ids.numel() for batch in batches)
    assert share > 0.88


def test_the_largest_batch_comes_first_and_the_rest_in_random_order():
    tokens = random_tokens(500)
    for epoch, batches in enumerate(
        (Batches(tokens, 8, pad_id=PAD), Batches(tokens, None, pad_id=PAD, max_tokens=200))
    ):
        sizes = [batch.ids.numel() for batch in batches.epoch(epoch)]
        assert sizes[0] == max(sizes)
        assert sizes != sorted(sizes, reverse=True)


def test_without_shuffling_the_longest_texts_come_first():
    longest_first = Batches(make_tokens([1, 25, 10, 17]), 3, pad_id=PAD, shuffle=False)
    assert as_lists(longest_first, 0) == as_lists(longest_first, 1) == [[1, 3, 2], [0]]
    pytest.raises(DataError, Batches, make_tokens([]), 1, pad_id=PAD).match("no documents")


def test_prefetching_works_ahead_and_keeps_the_order():
    batches = Batches(random_tokens(100), 8, pad_id=PAD)
    numbers = []

    def watched():
        for n, batch in enumerate(batches.epoch(0)):
            numbers.append(n)
            yield batch

    ahead = prefetched(watched(), "cpu")
    first = next(ahead)
    deadline = time.monotonic() + 240
    while len(numbers) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 3 <= len(numbers) <= 4  # one taken, two ready, perhaps one in the making
    rows = [first.rows.tolist(), *(batch.rows.tolist() for batch in ahead)]
    assert rows == as_lists(batches, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_prefetching_to_a_gpu_brings_the_same_batches():
    batches = Batches(random_tokens(500), 8, pad_id=PAD)
    on_gpu = list(prefetched(batches.epoch(0), "cuda"))
    for here, there in zip(batches.epoch(0), on_gpu, strict=True):
        assert there.ids.is_cuda
        assert torch.equal(here.ids, there.ids.cpu())
        assert torch.equal(here.mask, there.mask.cpu())


def test_leaving_early_ends_the_thread_and_errors_arrive():
    def threads():
        return [t.name for t in threading.enumerate() if t.name == "labelgrove-batches"]

    batches = Batches(random_tokens(100), 1, pad_id=PAD)
    for _ in prefetched(batches.epoch(0), "cpu"):
        break
    ahead = prefetched(batches.epoch(0), "cpu")
    next(ahead)
    ahead.close()
    assert threads() == []

    def broken():
        yield next(batches.epoch(0))
        raise OSError("the disk is gone")

    got = []
    pytest.raises(OSError, got.extend, prefetched(broken(), "cpu")).match("the disk is gone")
    assert threads() == []
