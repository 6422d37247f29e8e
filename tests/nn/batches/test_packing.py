"""Packed batches: every document once, one shape, and the encoder's states as with padding."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from labelgrove.errors import DataError  # noqa: E402
from labelgrove.nn.batches.packing import PackedBatch, PackedBatches  # noqa: E402
from labelgrove.nn.batches.padded import Batches  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import Tokens  # noqa: E402
from support.tiny_encoders import LAYERS, make_encoder  # noqa: E402

PAD = 1


def make_tokens(lengths, words=10**6):
    """Numbers that tell which document and place they come from, as far as ``words`` allows."""
    ids = [(1000 * i + np.arange(n)) % words for i, n in enumerate(lengths)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Tokens(np.concatenate([*ids, np.zeros(0)]).astype(np.int32), offsets)


@settings(max_examples=80)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=80),
    size=st.integers(1, 12),
    max_tokens=st.one_of(st.none(), st.integers(40, 200)),
    epoch=st.integers(0, 3),
)
def test_every_document_once_in_batches_of_one_shape(lengths, size, max_tokens, epoch):
    tokens = make_tokens(lengths)
    batches = PackedBatches(tokens, size, pad_id=PAD, max_tokens=max_tokens)
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
    assert batch.tokens == bounds[len(batch)] and (ids[batch.tokens :] == PAD).all()
    counted = np.concatenate([np.arange(e - b) for b, e in pairwise(bounds)])
    np.testing.assert_array_equal(batch.positions.numpy(), counted)


def test_epochs_differ_repeat_and_continue():
    tokens = make_tokens(np.random.default_rng(0).integers(1, 30, 200).tolist())

    def rows(seed, epoch, start=0):
        batches = PackedBatches(tokens, 16, pad_id=PAD, seed=seed)
        return [batch.rows.tolist() for batch in batches.epoch(epoch, start=start)]

    assert rows(0, 1) == rows(0, 1)
    assert rows(0, 1) != rows(0, 2) and rows(0, 1) != rows(1, 1)
    assert rows(0, 1, start=5) == rows(0, 1)[5:]


def test_little_is_padding():
    tokens = make_tokens(np.random.default_rng(0).integers(1, 385, 5000).tolist())
    batches = PackedBatches(tokens, 64, pad_id=PAD)
    assert len(tokens.ids) > 0.96 * len(batches) * batches.capacity
    pytest.raises(DataError, PackedBatches, make_tokens([]), 2, pad_id=PAD).match("no documents")


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


def test_a_document_does_not_see_its_neighbours(tmp_path):
    encoder = load(tmp_path / "tiny", "bert", pooling="first").eval()
    words = encoder.model.config.vocab_size
    both = make_tokens([7, 9], words)
    (batch,) = PackedBatches(both, 2, pad_id=encoder.pad_id).epoch(0)
    alone = PackedBatches(Tokens(both.ids[:7], both.offsets[:2]), 1, pad_id=encoder.pad_id)
    (single,) = alone.epoch(0)
    place = batch.rows.tolist().index(0)
    torch.testing.assert_close(encoder.packed(batch)[0][place], encoder.packed(single)[0][0])


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
@pytest.mark.parametrize("form", ["eager", "recorded", "compiled", "graphs"])
def test_on_a_gpu_in_half_precision(tmp_path, form, pooling):
    make_encoder(tmp_path / "tiny", "bert", hidden_size=64, intermediate_size=96)
    params = EncoderParams(
        encoder=str(tmp_path / "tiny"), max_tokens=16, pooling=pooling, dropout=0.0
    )
    encoder = load_encoder(params).cuda().train()  # evaluation is never compiled
    tokens = make_tokens([9, 1, 5, 16, 3], encoder.model.config.vocab_size)
    (padded,) = Batches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    padded = padded.to("cuda")
    exact = encoder(padded.ids, padded.mask, (1, LAYERS))
    exact = [state[np.argsort(padded.rows)] for state in exact]
    encoder.record(form == "recorded")
    if form in ("compiled", "graphs"):
        encoder.compile(dynamic=True, graphs=form == "graphs")
    (packed,) = PackedBatches(tokens, 5, pad_id=encoder.pad_id).epoch(0)
    packed = packed.to("cuda")
    for _ in range(3):  # the first pass of a graph warms up, the second records, the third replays
        torch.compiler.cudagraph_mark_step_begin()
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
