"""The loss of hidden tokens and of views, where the layer starts, and rows for new tokens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from labelgrove.adapting import objective  # noqa: E402
from labelgrove.adapting.masking import MaskedBatches, Masking  # noqa: E402
from labelgrove.adapting.objective import (  # noqa: E402
    MaskedModel,
    contrast_loss,
    grow_table,
    grown_head,
    loss_of,
    mean_rows,
    own_head,
)
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from reference import adapting as reference  # noqa: E402
from support.tiny_encoders import WIDTH, make_encoder  # noqa: E402

TEXTS = ["red shoes blue blue red", "blue " * 20, "red", "shoes red blue " * 7]


def load(folder: Path) -> Encoder:
    return load_encoder(EncoderParams(str(folder), max_tokens=32, pooling="mean", dropout=0.0))


def batch_of(encoder: Encoder, *, views: bool = False, share: float = 0.5) -> Any:
    masking = Masking(share, 4, np.arange(5), 9, 1)
    tokens = tokenize(TEXTS, encoder, 32)
    return next(iter(MaskedBatches(tokens, encoder, masking, 1000, views=views).epoch(0)))


def expected_loss(model: MaskedModel, states: Any, batch: Any) -> float:
    head = {name: value.tolist() for name, value in model.state_dict().items()}
    losses = [
        reference.guess_loss(
            states[place].tolist(),
            target,
            dense=head["dense.weight"],
            dense_bias=head["dense.bias"],
            scale=head["norm.weight"],
            shift=head["norm.bias"],
            table=model.table.tolist(),
            bias=head["bias"],
            activates=model._activates,
        )
        for place, target in zip(batch.places.tolist(), batch.targets.tolist(), strict=True)
    ]
    return sum(losses) / len(losses)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
@pytest.mark.parametrize("own", [False, True])
def test_loss_is_that_of_the_reference(tmp_path: Path, family: str, own: bool) -> None:
    encoder = load(make_encoder(tmp_path / "e", family))
    generator = torch.Generator().manual_seed(3)
    model = MaskedModel(encoder, {} if own else None)
    for parameter in (model.dense.weight, model.dense.bias, model.norm.weight, model.bias):
        torch.nn.init.normal_(parameter, generator=generator)
    batch = batch_of(encoder)
    with torch.no_grad():
        # The states as transformers computes them, text by text.
        whole = torch.zeros(batch.batch.ids.numel(), WIDTH)
        states = model.states(batch)
        for i in range(len(batch)):
            places = places_of(batch, i)
            text = batch.batch.ids.reshape(-1)[places]
            whole[places] = encoder.model(input_ids=text[None]).last_hidden_state[0]
            torch.testing.assert_close(states[places], whole[places], rtol=1e-4, atol=1e-5)
        loss = loss_of(model, batch)
    assert loss.item() == pytest.approx(expected_loss(model, whole, batch), rel=1e-4)


def places_of(batch: Any, i: int) -> Any:
    if hasattr(batch.batch, "bounds"):
        return torch.arange(*batch.batch.bounds[i : i + 2].tolist())
    width = batch.batch.ids.shape[1]
    return i * width + batch.batch.mask[i].nonzero()[:, 0]


def test_a_new_layer_is_the_identity(tmp_path: Path) -> None:
    encoder = load(make_encoder(tmp_path / "e", "bert"))
    model = MaskedModel(encoder)
    states = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))
    normed = torch.nn.functional.layer_norm(states, (WIDTH,))
    scores = normed @ model.table.T
    targets = torch.tensor([1, 2, 3, 4, 5])
    expected = torch.nn.functional.cross_entropy(scores, targets, reduction="sum")
    torch.testing.assert_close(model._loss(states, targets), expected)


def test_many_scores_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load(make_encoder(tmp_path / "e", "bert"))
    model = MaskedModel(encoder)
    batch = batch_of(encoder)
    whole = loss_of(model, batch)
    whole.backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    monkeypatch.setattr(objective, "MOST_SCORES", 5 * len(model.table))
    assert len(batch.targets) > 10
    chunked = loss_of(model, batch)
    chunked.backward()
    torch.testing.assert_close(chunked, whole)
    again = [p.grad for p in model.parameters() if p.grad is not None]
    torch.testing.assert_close(again, gradients, rtol=1e-4, atol=1e-6)


def test_no_hidden_token_is_no_loss(tmp_path: Path) -> None:
    encoder = load(make_encoder(tmp_path / "e", "bert"))
    model = MaskedModel(encoder)
    loss = loss_of(model, batch_of(encoder, share=1e-9))
    loss.backward()
    assert loss.item() == 0.0


def test_contrast_is_that_of_the_reference(tmp_path: Path) -> None:
    encoder = load(make_encoder(tmp_path / "e", "bert"))
    model = MaskedModel(encoder)
    batch = batch_of(encoder, views=True)
    assert batch.pairs.tolist() == [0, 1] and len(batch) == 4  # the long texts come first
    with torch.no_grad():
        states, bounds = model.states(batch), batch.batch.bounds.tolist()
        vectors = [states[a:b].mean(0).tolist() for a, b in pairwise(bounds)]
        pairs = batch.pairs.tolist()
        expected = reference.contrast(
            [vectors[2 * i] for i in pairs], [vectors[2 * i + 1] for i in pairs], 0.1
        )
        plain = loss_of(model, batch)
        both = loss_of(model, batch, contrast=0.5, temperature=0.1)
    assert (both - plain).item() == pytest.approx(0.5 * expected, rel=1e-4)
    assert expected > 0


def test_views_of_one_text_come_nearer() -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(6, 4, generator=generator, requires_grad=True)
    second = torch.randn(6, 4, generator=generator)
    before = contrast_loss(first, second, 0.05)
    before.backward()
    assert contrast_loss(first - 0.01 * first.grad, second, 0.05) < before


def test_the_layer_of_an_encoders_own_pretraining(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "e", "bert")
    config = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(1)
    pretrained = transformers.BertForMaskedLM(config).eval()
    torch.nn.init.normal_(pretrained.cls.predictions.bias)
    pretrained.save_pretrained(folder)
    encoder = load(folder)
    head = own_head(folder, 9, WIDTH)
    assert head is not None
    model = MaskedModel(encoder, head)
    batch = batch_of(encoder)
    with torch.no_grad():
        total = 0.0
        for i in range(len(batch)):
            places = places_of(batch, i)
            scores = pretrained(batch.batch.ids.reshape(-1)[places][None]).logits[0]
            inside = torch.isin(batch.places, places)
            targets = batch.targets[inside]
            rows = scores[batch.places[inside] - places[0]]
            total += torch.nn.functional.cross_entropy(rows, targets, reduction="sum").item()
        loss = loss_of(model, batch).item()
    assert loss == pytest.approx(total / len(batch.targets), rel=1e-4)
    grown = grown_head(head, [[5, 6], [7]], 9)["bias"]
    assert grown[:9].equal(head["bias"])
    torch.testing.assert_close(grown[9:], torch.stack([head["bias"][5:7].mean(), head["bias"][7]]))


def test_files_without_the_layer(tmp_path: Path) -> None:
    folder = make_encoder(tmp_path / "e", "bert")
    assert own_head(folder, 9, WIDTH) is None


@settings(max_examples=50, deadline=None)
@given(parts=st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=5), max_size=6))
def test_new_rows_are_means_of_their_parts(parts: list[list[int]]) -> None:
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(1))
    rows = mean_rows(table, parts)
    assert rows.shape == (len(parts), 4)
    for row, numbers in zip(rows, parts, strict=True):
        expected = [sum(table[n][j].item() for n in numbers) / len(numbers) for j in range(4)]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "electra", "modernbert"])
def test_a_table_grows(tmp_path: Path, family: str) -> None:
    encoder = load(make_encoder(tmp_path / "e", family))
    old = encoder.model.get_input_embeddings()
    before = old.weight.detach().clone()
    grow_table(encoder, [[5, 6], [7]], 9)
    new = encoder.model.get_input_embeddings()
    assert new.padding_idx == old.padding_idx and encoder.model.config.vocab_size == 11
    assert new.weight[:9].equal(before) and new.weight.requires_grad
    torch.testing.assert_close(new.weight[9:], torch.stack([before[5:7].mean(0), before[7]]))
    states = encoder(torch.tensor([[2, 10, 3]]), None)[0]
    torch.testing.assert_close(states, encoder(torch.tensor([[2, 7, 3]]), None)[0])
