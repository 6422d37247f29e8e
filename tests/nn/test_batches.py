"""Batches, padded or packed: every document once, the same order again, equal work for all."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from labelgrove.errors import DataError  # noqa: E402
from labelgrove.nn.batches import Batches, PackedBatch, PackedBatches, prefetched  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import Tokens  # noqa: E402
from support.tiny_encoders import LAYERS, make_encoder  # noqa: E402

PAD = 99


def make_tokens(lengths, words=10**6):
    """Document i's tokens are 1000 i, 1000 i + 1, ..., as far as there are words."""
    ids = [(1000 * i + np.arange(n, dtype=np.int32)) % words for i, n in enumerate(lengths)]
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
@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=20), pad_left=st.booleans())
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


@pytest.mark.parametrize("kind", [Batches, PackedBatches])
def test_an_epoch_can_be_had_again_and_entered_anywhere(kind):
    tokens = random_tokens(200)
    batches = kind(tokens, 8, pad_id=PAD, seed=5)
    whole = as_lists(batches, 3)
    again = kind(tokens, 8, pad_id=PAD, seed=5)
    for start in (0, 1, 17, len(batches)):
        assert as_lists(again, 3, start) == whole[start:]
    assert as_lists(batches, 4) != whole
    assert as_lists(kind(tokens, 8, pad_id=PAD, seed=6), 3) != whole
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


PACKED_PAD = 1


@settings(max_examples=80)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=80),
    size=st.integers(1, 12),
    max_tokens=st.one_of(st.none(), st.integers(40, 200)),
    epoch=st.integers(0, 3),
)
def test_every_document_once_in_batches_of_one_shape(lengths, size, max_tokens, epoch):
    tokens = make_tokens(lengths)
    batches = PackedBatches(tokens, size, pad_id=PACKED_PAD, max_tokens=max_tokens)
    every = list(batches.epoch(epoch))
    assert len(every) == len(batches)
    assert sorted(row for batch in every for row in batch.rows.tolist()) == list(
        range(len(lengths))
    )
    assert len({(len(batch.ids), len(batch.bounds)) for batch in every}) == 1
    assert max(len(batch) for batch in every) - min(len(batch) for batch in every) <= 1
    assert max(len(batch) for batch in every) == batches.rounds <= size
    if max_tokens is not None:
        assert len(every[0].ids) <= max_tokens
        if (fewer := len(every) - 1) * size >= len(lengths):  # would break the limit of tokens
            assert sum(sorted(lengths, reverse=True)[::fewer]) > max_tokens
    for batch in every:
        check_layout(batch, tokens)


def check_layout(batch, tokens):
    bounds, ids = batch.bounds.tolist(), batch.ids.numpy()
    assert bounds[0] == 0 and bounds[-1] == len(ids)
    assert all(0 <= end - begin <= batch.longest for begin, end in pairwise(bounds))
    for place, row in enumerate(batch.rows):
        expected = tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]]
        np.testing.assert_array_equal(ids[bounds[place] : bounds[place + 1]], expected)
    assert batch.tokens == bounds[len(batch)] and (ids[batch.tokens :] == PACKED_PAD).all()
    counted = np.concatenate([np.arange(e - b) for b, e in pairwise(bounds)])
    np.testing.assert_array_equal(batch.positions.numpy(), counted)


def test_little_is_padding():
    tokens = make_tokens(np.random.default_rng(0).integers(1, 385, 5000).tolist())
    batches = PackedBatches(tokens, 64, pad_id=PACKED_PAD)
    assert len(tokens.ids) > 0.96 * len(batches) * batches.capacity
    pytest.raises(DataError, PackedBatches, make_tokens([]), 2, pad_id=1).match("no documents")


def load(folder, family, **settings):
    make_encoder(folder, family)
    return load_encoder(EncoderParams(encoder=str(folder), max_tokens=16, **settings))


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_states_and_gradients_are_those_of_the_padded_pass(tmp_path, family, pooling):
    encoder = load(tmp_path / "tiny", family, pooling=pooling).eval()
    words = encoder.model.config.vocab_size
    # Without the number of padding: RoBERTa counts positions by it.
    tokens = make_tokens([9, 1, 5, 16, 3], words)
    tokens = Tokens(np.where(tokens.ids == encoder.pad_id, 5, tokens.ids), tokens.offsets)
    layers = tuple(range(LAYERS + 1))
    passes = {}
    (packed,) = PackedBatches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    (padded,) = Batches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    for name, batch in (("packed", packed), ("padded", padded)):
        encoder.zero_grad()
        if isinstance(batch, PackedBatch):
            states = encoder.packed(batch, layers)
        else:
            states = encoder(batch.ids, batch.mask, layers)
        # Back to document order; every layer gets a slope of its own.
        together = torch.stack(states)[:, np.argsort(batch.rows)]
        (together * torch.linspace(-1, 1, together.numel()).view_as(together)).sum().backward()
        slopes = {n: p.grad for n, p in encoder.named_parameters() if p.grad is not None}
        passes[name] = together.detach(), slopes
    torch.testing.assert_close(passes["packed"][0], passes["padded"][0], rtol=1e-4, atol=1e-5)
    assert passes["packed"][1].keys() == passes["padded"][1].keys()
    for name, slope in passes["packed"][1].items():
        torch.testing.assert_close(slope, passes["padded"][1][name], rtol=1e-4, atol=1e-4, msg=name)


def test_dropout_acts_in_training(tmp_path):
    encoder = load(tmp_path / "tiny", "bert", pooling="first", dropout=0.5).train()
    (batch,) = PackedBatches(make_tokens([7, 9], 5), 2, pad_id=encoder.pad_id).epoch(0)
    torch.manual_seed(0)
    first, second = encoder.packed(batch)[0], encoder.packed(batch)[0]
    assert not torch.allclose(first, second)


def test_who_packs(tmp_path):
    assert load(tmp_path / "bert", "bert", pooling="first").packs
    assert not load(tmp_path / "last", "bert", pooling="last").packs
    assert not load(tmp_path / "mpnet", "mpnet", pooling="first").packs
    assert not load(tmp_path / "c", "bert", pooling="first", gradient_checkpointing=True).packs


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("form", ["eager", "recorded"])
def test_on_a_gpu_in_half_precision(tmp_path, form, pooling):
    make_encoder(tmp_path / "tiny", "bert", hidden_size=64, intermediate_size=96)
    params = EncoderParams(
        encoder=str(tmp_path / "tiny"), max_tokens=16, pooling=pooling, dropout=0.0
    )
    encoder = load_encoder(params).cuda().train()
    tokens = make_tokens([9, 1, 5, 16, 3], encoder.model.config.vocab_size)
    (padded,) = Batches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    padded = padded.to("cuda")
    exact = encoder(padded.ids, padded.mask, (1, LAYERS))
    exact = [state[np.argsort(padded.rows)] for state in exact]
    encoder.record(form == "recorded")
    (packed,) = PackedBatches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    packed = packed.to("cuda")
    for _ in range(3):
        encoder.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            passes = encoder.packed(packed, (1, LAYERS))
        for ours, theirs in zip(passes, exact, strict=True):
            torch.testing.assert_close(ours[np.argsort(packed.rows)], theirs, rtol=0.1, atol=0.15)
        passes[-1].sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_pass_has_the_bits_of_a_plain_one(tmp_path):
    make_encoder(tmp_path / "tiny", "bert", hidden_size=64, intermediate_size=96)
    encoder = load_encoder(EncoderParams(encoder=str(tmp_path / "tiny"), max_tokens=16)).cuda()
    encoder.train()
    words = encoder.model.config.vocab_size
    shapes = [make_tokens(lengths, words) for lengths in ([9, 1, 5, 16, 3], [2, 3, 4])]
    batches = [next(PackedBatches(t, 5, pad_id=encoder.pad_id).epoch(0)) for t in shapes]

    def learnt(seed):
        """States and gradients of both shapes in one update, with dropout."""
        torch.manual_seed(seed)
        encoder.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            states = [encoder.packed(batch.to("cuda"), (1, LAYERS))[1] for batch in batches]
        torch.cat(states).square().sum().backward()
        gradients = [p.grad.clone() for p in encoder.parameters() if p.grad is not None]
        return [*(state.detach().clone() for state in states), *gradients]

    plain = [learnt(seed) for seed in (0, 1)]
    encoder.record(True)
    for _ in range(2):
        for seed, expected in enumerate(plain):
            for ours, theirs in zip(learnt(seed), expected, strict=True):
                assert torch.equal(ours, theirs)
    encoder.record(False)
    assert not torch.equal(plain[0][0], plain[1][0])
