"""Gradient times input: against finite differences, and adding up when it is integrated."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from labelgrove.methods.explaining.attribution import _no_word, attribute, word_reasons
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder
from labelgrove.nn.encoders.tokens import TokenPlace, token_places, tokenize
from support.tiny_encoders import FAMILIES, TEXTS, WIDTH, make_encoder

Read = Callable[[torch.Tensor], list[torch.Tensor]]


def problem(folder: Path, family: str, pooling: str = "auto") -> tuple[Encoder, Any, Read]:
    params = EncoderParams(encoder=str(make_encoder(folder / family, family)), max_tokens=16)
    params.pooling = pooling  # type: ignore[assignment]
    encoder = load_encoder(params).eval().double()
    weights = torch.tensor(np.random.default_rng(1).normal(size=(2, WIDTH)))
    ids = torch.tensor(tokenize(TEXTS[2:3], encoder, 16).row(0).astype(np.int64))[None]

    def read(ids: torch.Tensor) -> list[torch.Tensor]:
        last, inner = encoder(ids, None, (-1, 1))
        return [last.double() @ weights[0], inner.double() @ weights[1]]

    return encoder, ids, read


def moved(encoder: Encoder, tokens: slice, share: float) -> Any:
    """Has the encoder read some tokens a share of the way from no word to themselves."""
    start = _no_word(encoder)

    def move(_module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        changed = output.clone().reshape(-1, output.shape[-1])
        changed[tokens] = start + share * (changed[tokens] - start)
        return changed.reshape(output.shape)

    return encoder.model.get_input_embeddings().register_forward_hook(move)


def numbers(read: Read, ids: torch.Tensor) -> list[float]:
    with torch.no_grad():
        return [float(number[0]) for number in read(ids)]


@pytest.mark.parametrize("family", FAMILIES)
def test_one_step_is_the_slope_on_the_way_from_no_word(tmp_path: Path, family: str) -> None:
    encoder, ids, read = problem(tmp_path, family)
    found = attribute(encoder, ids, read, steps=1)
    assert found.values == pytest.approx(numbers(read, ids))
    assert found.shares.shape == (2, ids.shape[1])
    step = 1e-3
    for token in range(ids.shape[1]):
        sides = []
        for share in (1 + step, 1 - step):
            handle = moved(encoder, slice(token, token + 1), share)
            sides.append(numbers(read, ids))
            handle.remove()
        slopes = (np.array(sides[0]) - sides[1]) / (2 * step)
        # Pooled states are single precision.
        np.testing.assert_allclose(found.shares[:, token], slopes, rtol=0.02, atol=0.01)
    assert np.abs(found.shares).max() > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_integrated_gradients_add_up_to_the_change(tmp_path: Path, family: str) -> None:
    encoder, ids, read = problem(tmp_path, family)
    handle = moved(encoder, slice(1, None), 0.0)
    without = numbers(read, ids)
    handle.remove()
    special = [True] + [False] * (ids.shape[1] - 1)
    coarse, fine = (attribute(encoder, ids, read, special=special, steps=n) for n in (1, 64))
    assert fine.values == pytest.approx(coarse.values)
    assert not fine.shares[:, 0].any() and fine.shares[:, 1:].all()
    change = np.array(fine.values) - without
    np.testing.assert_allclose(fine.shares.sum(1), change, rtol=0.02, atol=0.02)


def test_an_encoder_is_left_as_it_was(tmp_path: Path) -> None:
    encoder, ids, read = problem(tmp_path, "bert")
    before = numbers(read, ids)
    with torch.inference_mode(False), torch.no_grad():
        attribute(encoder, ids, read, steps=3)
    assert numbers(read, ids) == before
    assert all(parameter.grad is None for parameter in encoder.parameters())
    assert not encoder.model.get_input_embeddings()._forward_hooks


def test_other_threads_predict_undisturbed(tmp_path: Path) -> None:
    encoder, ids, read = problem(tmp_path, "bert")
    expected = numbers(read, ids)
    others: list[list[float]] = []

    def read_twice(ids: torch.Tensor) -> list[torch.Tensor]:
        thread = threading.Thread(target=lambda: others.append(numbers(read, ids[:1])))
        thread.start()
        thread.join()
        return read(ids)

    found = attribute(encoder, ids, read_twice, steps=2)
    assert others == [expected]
    assert not np.allclose(found.shares, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_token_places_fit_the_tokens(tmp_path: Path, family: str) -> None:
    params = EncoderParams(encoder=str(make_encoder(tmp_path / family, family)), max_tokens=8)
    encoder = load_encoder(params)
    for text in ("", "red", "Red  shoes, blue\n", "🌳 red \ud800 shoes " + "blue " * 200):
        ids, places = token_places(text, encoder, 8)
        assert ids.tolist() == tokenize([text], encoder, 8).row(0).tolist()
        assert len(places) == len(ids)
        reasons, others = word_reasons(text, places, np.ones(len(ids)))
        assert sum(reason.contribution for reason in reasons) + others == pytest.approx(len(ids))
        for reason in reasons:
            (span,) = reason.spans
            assert text[span.start : span.end] == reason.text == reason.text.strip() != ""
        if "hoes" in text and family not in (
            "eurobert",
            "roberta",
        ):  # here their tokens are letters
            assert "red" in {reason.text.lower() for reason in reasons}


def test_padding_stands_for_no_word_where_it_was_learnt(tmp_path: Path) -> None:
    encoder, _, _ = problem(tmp_path, "bert")
    table = encoder.model.get_input_embeddings().weight.data
    assert not table[encoder.pad_id].any()  # torch begins it at 0
    assert torch.equal(_no_word(encoder), table.mean(0))
    table[encoder.pad_id] = 0.2
    assert torch.equal(_no_word(encoder), table[encoder.pad_id])


def test_a_text_that_is_one_word_to_the_tokenizer_is_told_token_by_token() -> None:
    places = [TokenPlace(0, 3, 0), TokenPlace(4, 6, 0), TokenPlace(6, 8, 0)]
    reasons, others = word_reasons("red shoe", places, np.array([1.0, 2.0, 0.5]))
    assert [(r.text, r.contribution) for r in reasons] == [("red", 1.0), ("shoe", 2.5)]
    assert others == 0.0
