"""Neighbours by the text vectors of an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
import torch

import labelgrove
from labelgrove import Neighbours
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.methods.lightxml.method import LightXML
from labelgrove.methods.neighbours.memory import VotingParams
from labelgrove.nn.encoders.encoder import load_encoder
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.training.params import TrainingParams
from reference import neighbours as reference
from support.tiny_encoders import make_encoder

TEXTS = ["red shoes", "red", "blue shoe", "blue blue red", "shoe shoes blue", "red red shoe"]
LABELS = [["shoes", "red"], ["red"], ["shoes"], ["red", "blue"], ["shoes"], ["shoes", "red"]]
NEW = ["blue", "shoes red red", "red blue"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> EncoderParams:
    folder = make_encoder(tmp_path_factory.mktemp("encoders") / "tiny", "bert")
    return EncoderParams(encoder=str(folder), max_tokens=12, pooling="mean")


def fitted(encoder: EncoderParams, vectors: Any = "encoder", **voting: Any) -> Neighbours:
    model = Neighbours(
        vectors=vectors, encoder=encoder, voting=VotingParams(**voting), device="cpu"
    )
    return model.fit(TEXTS, LABELS)


def states(encoder: EncoderParams, texts: list[str]) -> list[list[float]]:
    """The mean of the last states of each text, by the encoder alone."""
    reader = load_encoder(encoder).eval()
    rows = []
    for text in texts:
        ids = torch.tensor([reader.tokenizer.encode(text).ids])
        with torch.inference_mode():
            hidden = reader.model(input_ids=ids).last_hidden_state[0]
        rows.append(hidden.mean(dim=0).tolist())
    return rows


def test_scores_are_those_of_the_slow_reference(encoder: EncoderParams) -> None:
    model = fitted(encoder, neighbours=4, power=2.0)
    # The mean and the spread are those of the training documents, so new texts follow these.
    documents = states(encoder, TEXTS)
    training = reference.standardised(documents)
    shift = [sum(column) / len(column) for column in zip(*documents, strict=True)]
    spread = model.reader_.standard.scale[0].tolist()
    own = [{model.index_.get(label) for label in row} for row in LABELS]
    for text, state in zip(NEW, states(encoder, NEW), strict=True):
        query = {
            column: (value - mean) * scale
            for column, (value, mean, scale) in enumerate(zip(state, shift, spread, strict=True))
        }
        expected = reference.label_scores(
            query, training, own, len(model.index_), neighbours=4, power=2.0, rarity=0, prior=0.1
        )
        found = model.score_labels([text], list(model.index_.ids))[0]
        np.testing.assert_allclose(found, expected, atol=2e-3)  # vectors have half precision
    np.testing.assert_allclose(
        [training[0][column] for column in range(16)],
        (np.array(documents[0]) - shift) * spread,
        atol=1e-4,
    )


def test_a_loaded_model_maps_its_vectors(encoder: EncoderParams, tmp_path: Path) -> None:
    model = fitted(encoder, "both")
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    rows = loaded.memory_.vectors.rows
    assert rows.dtype == np.float16 and not rows.flags.owndata and not rows.flags.writeable
    np.testing.assert_allclose(np.linalg.norm(rows.astype(float), axis=1), 1, atol=1e-3)


def test_how_an_encoder_reads_is_derived_and_saved(encoder: EncoderParams, tmp_path: Path) -> None:
    model = Neighbours(vectors="encoder", encoder=EncoderParams(encoder=encoder.encoder))
    model.fit(TEXTS, LABELS)
    assert model.encoder.pooling == "auto"
    assert model.derived_["encoder.pooling"][0] == "mean"
    assert model.trained_config()["encoder"]["max_tokens"] == model.reader_.encoder.max_tokens
    assert [params.encoder for params in model.encoders()] == [encoder.encoder]
    assert Neighbours().encoders() == []


def test_what_does_not_fit_is_refused(encoder: EncoderParams) -> None:
    with pytest.raises(UnsupportedError, match="no encoder to export"):
        labelgrove.export(fitted(encoder, "tfidf"), "unused")
    fields = EncoderParams(encoder=encoder.encoder, fields=["by"])
    with pytest.raises(ConfigError, match="'by' is no field"):
        Neighbours(vectors="encoder", encoder=fields).fit(TEXTS, LABELS)


def test_the_encoder_of_a_trained_model_reads(
    encoder: EncoderParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABELGROVE_CACHE", str(tmp_path / "cache"))
    training = TrainingParams(max_steps=3, batch_size=4, lr=1e-2, head_lr=1e-2)
    network = LightXML(encoder=encoder, training=training, held_out=0.0, device="cpu")
    network.fit(TEXTS, LABELS).save(tmp_path / "network")
    model = fitted(EncoderParams(encoder=str(tmp_path / "network"), max_tokens=12))
    own, learnt = (
        m.state_dict() for m in (model.reader_.encoder.model, network.network_.encoder.model)
    )
    assert own.keys() == learnt.keys()
    assert all(torch.equal(own[name], learnt[name]) for name in own)
    raw = load_encoder(encoder).model.state_dict()
    assert not all(torch.equal(own[name], raw[name]) for name in own)
    assert model.reader_.encoder.pooling == "mean"  # as it was trained
