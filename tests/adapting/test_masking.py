"""Hidden tokens: which ones, by what, and the same ones in whatever batch a document is."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from labelgrove.adapting.masking import MaskedBatch, MaskedBatches, Masking  # noqa: E402
from labelgrove.nn.batches.packing import PackedBatch  # noqa: E402
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import Tokens  # noqa: E402
from reference import adapting as reference  # noqa: E402
from support.tiny_encoders import make_encoder  # noqa: E402

SPECIAL, MASK, VOCABULARY = [0, 1, 2, 3, 4], 4, 9
FRAMES = (1, 1)  # [CLS] and [SEP]


def masking(share: float = 0.3, seed: int = 5) -> Masking:
    return Masking(share, MASK, np.array(SPECIAL), VOCABULARY, seed)


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Encoder]:
    """One that reads packed texts, and one that reads padded ones."""
    folder: Path = tmp_path_factory.mktemp("encoders")
    params = {"max_tokens": 32, "pooling": "mean"}
    return {
        family: load_encoder(EncoderParams(str(make_encoder(folder / family, family)), **params))  # type: ignore[arg-type]
        for family in ("bert", "distilbert")
    }


def documents(lengths: list[int]) -> Tokens:
    """Texts between [CLS] and [SEP], of random words."""
    random = np.random.default_rng(len(lengths))
    rows = [[2, *random.integers(5, VOCABULARY, n).tolist(), 3] for n in lengths]
    ids = np.array([token for row in rows for token in row], np.int32)
    return Tokens(ids, np.cumsum([0, *map(len, rows)]))


@settings(max_examples=60, deadline=None)
@given(
    ids=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40),
    first=st.integers(0, 10**9),
    epoch=st.integers(0, 5),
    share=st.floats(0.05, 0.9),
    seed=st.integers(0, 2**33),
)
def test_tokens_are_hidden_like_in_the_reference(
    ids: list[int], first: int, epoch: int, share: float, seed: int
) -> None:
    places = first + np.arange(len(ids))
    shown, chosen = masking(share, seed).hide(np.array(ids), places, epoch)
    how: dict[str, Any] = {"seed": seed, "epoch": epoch, "share": share, "mask_id": MASK}
    how |= {"special": SPECIAL, "vocabulary": VOCABULARY}
    expected = [reference.hidden(t, p, **how) for t, p in zip(ids, places.tolist(), strict=True)]
    assert list(zip(shown.tolist(), chosen.tolist(), strict=True)) == expected


def test_shares_of_what_is_hidden() -> None:
    count = 1_000_000
    ids = np.random.default_rng(0).integers(0, VOCABULARY, count)
    shown, chosen = masking(0.15).hide(ids, np.arange(count), 0)
    ordinary = ~np.isin(ids, SPECIAL)
    assert not chosen[~ordinary].any() and (shown[~chosen] == ids[~chosen]).all()
    assert chosen[ordinary].mean() == pytest.approx(0.15, abs=0.005)
    masks = shown[chosen] == MASK
    assert masks.mean() == pytest.approx(0.8, abs=0.01)
    others = shown[chosen][~masks]
    assert set(others.tolist()) == set(range(5, VOCABULARY))  # replaced by anything but specials
    # Kept, or drawn by chance: one in ten, and a fourth of one in ten.
    kept = (others == ids[chosen][~masks]).mean()
    assert kept == pytest.approx(0.625, abs=0.02)
    again, _ = masking(0.15).hide(ids, np.arange(count), 1)
    assert (again != shown).mean() > 0.1


def true_tokens(batch: MaskedBatch) -> Any:
    """The tokens of a batch with the hidden ones put back."""
    ids = batch.batch.ids.clone().reshape(-1)
    ids[batch.places] = batch.targets
    return ids.reshape(batch.batch.ids.shape)


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    family=st.sampled_from(["bert", "distilbert"]),
    size=st.integers(32, 100),
)
def test_every_document_is_whole_behind_its_mask(
    encoders: dict[str, Encoder], lengths: list[int], family: str, size: int
) -> None:
    tokens = documents(lengths)
    batches = MaskedBatches(tokens, encoders[family], masking(), size)
    seen: Counter[int] = Counter()
    for batch in batches.epoch(2):
        ids = true_tokens(batch)
        for i, row in enumerate(batch.rows.tolist()):
            if isinstance(batch.batch, PackedBatch):
                start, end = batch.batch.bounds[i : i + 2].tolist()
                text = ids[start:end]
            else:
                text = ids[i][batch.batch.mask[i] == 1]
            assert text.tolist() == tokens.row(row).tolist()
        seen.update(batch.rows.tolist())
        assert batch.tokens == int(tokens.lengths[batch.rows].sum()) <= max(size, tokens.longest)
    assert seen == Counter(range(len(lengths)))


def test_what_is_hidden_does_not_depend_on_the_batch(encoders: dict[str, Encoder]) -> None:
    tokens = documents([12, 30, 7, 25, 18, 3])

    def shown(family: str, size: int) -> dict[int, list[int]]:
        texts = {}
        for batch in MaskedBatches(tokens, encoders[family], masking(), size).epoch(1):
            for i, row in enumerate(batch.rows.tolist()):
                if isinstance(batch.batch, PackedBatch):
                    start, end = batch.batch.bounds[i : i + 2].tolist()
                    texts[row] = batch.batch.ids[start:end].tolist()
                else:
                    texts[row] = batch.batch.ids[i][batch.batch.mask[i] == 1].tolist()
        return texts

    assert shown("bert", 40) == shown("bert", 1000) == shown("distilbert", 64)


def test_a_tokenizer_that_pads(encoders: dict[str, Encoder]) -> None:
    tokens, bert = documents([20] * 5), encoders["bert"]
    plain = next(iter(MaskedBatches(tokens, bert, masking(), 200, views=True).epoch(0)))
    try:
        bert.tokenizer.enable_padding(length=16)
        padding = next(iter(MaskedBatches(tokens, bert, masking(), 200, views=True).epoch(0)))
    finally:
        bert.tokenizer.no_padding()
    assert padding.batch.ids.equal(plain.batch.ids) and len(padding.pairs) == 5


def test_an_epoch_can_begin_in_the_middle(encoders: dict[str, Encoder]) -> None:
    batches = MaskedBatches(documents([20] * 9), encoders["bert"], masking(), 64, views=True)
    whole, rest = list(batches.epoch(3)), list(batches.epoch(3, start=1))
    assert len(rest) == len(whole) - 1 > 0
    for one, other in zip(whole[1:], rest, strict=True):
        assert one.batch.ids.equal(other.batch.ids) and one.places.equal(other.places)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    size=st.integers(40, 200),
    epoch=st.integers(0, 3),
)
def test_views_are_like_in_the_reference(
    encoders: dict[str, Encoder], lengths: list[int], size: int, epoch: int
) -> None:
    tokens = documents(lengths)
    batches = MaskedBatches(tokens, encoders["bert"], masking(), size, views=True)
    shapes = set()
    for batch in batches.epoch(epoch):
        assert isinstance(batch.batch, PackedBatch)
        ids, bounds = true_tokens(batch), batch.batch.bounds.tolist()
        parts = [ids[start:end].tolist() for start, end in pairwise(bounds)]
        for i, row in enumerate(batch.rows.tolist()):
            document = tokens.row(row).tolist()
            expected = reference.views(document, row, frames=FRAMES, seed=5, epoch=epoch)
            assert (parts[2 * i], parts[2 * i + 1]) == expected
            assert (i in batch.pairs.tolist()) == bool(expected[1])
        positions = [n for start, end in pairwise(bounds) for n in range(end - start)]
        assert batch.batch.positions.tolist() == positions
        assert set(ids[batch.batch.tokens :].tolist()) <= {encoders["bert"].pad_id}
        assert max(end - start for start, end in pairwise(bounds)) <= batch.batch.longest
        shapes.add((len(ids), len(bounds)))
    assert len(shapes) == 1
