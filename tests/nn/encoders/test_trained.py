"""An encoder in a trained model can be named like any other."""

import pytest

pytest.importorskip("torch")
import torch

from labelgrove import Linear
from labelgrove.core.part import Part
from labelgrove.disk.model_folder import save_model
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.nn.encoders.encoder import load_encoder
from labelgrove.nn.encoders.files import EncoderParams, states_width
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import embed
from support.tiny_encoders import FAMILIES, TEXTS, WIDTH, make_encoder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABELGROVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def save(folder, encoder, *, nested=True):
    """A model folder that has the encoder, within a network or by itself."""
    state = encoder.state()
    part = Part({"encoder": state.config, "story": {}}, state.arrays) if nested else state
    parts = {"labels": Part({}), "network": part}
    save_model(folder, method="lightxml", params={}, parts=parts, overwrite=True)
    return EncoderParams(encoder=str(folder), max_tokens=12)


def vectors(encoder):
    return embed(encoder, tokenize(TEXTS, encoder, 12))


@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoder_of_any_family_comes_back(family, tmp_path):
    folder = make_encoder(tmp_path / "encoder", family)
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=12, pooling="mean"))
    with torch.no_grad():
        next(encoder.model.parameters()).add_(0.01)  # as if it had learnt
    params = save(tmp_path / "model", encoder, nested=family != "bert")
    again = load_encoder(params)
    assert again.pooling == "mean"
    assert (again.pad_id, again.pad_left) == (encoder.pad_id, encoder.pad_left)
    assert vectors(again).tobytes() == vectors(encoder).tobytes()
    assert states_width(params.folder()) == WIDTH


def test_a_pooler_stays(tmp_path):
    folder = make_encoder(tmp_path / "encoder", "bert")
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=12, pooling="pooler"))
    again = load_encoder(save(tmp_path / "model", encoder))
    assert again.pooling == "pooler"
    assert vectors(again).tobytes() == vectors(encoder).tobytes()


def test_a_model_is_unpacked_once_and_again_when_it_changes(tmp_path, cache):
    folder = make_encoder(tmp_path / "encoder", "bert")
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=12, pooling="mean"))
    params = save(tmp_path / "model", encoder)
    first = params.folder()
    assert params.folder() == first and first.is_relative_to(cache)
    with torch.no_grad():
        next(encoder.model.parameters()).add_(0.5)
    save(tmp_path / "model", encoder)
    assert params.folder() != first
    assert vectors(load_encoder(params)).tobytes() == vectors(encoder).tobytes()


def test_a_model_without_an_encoder_is_refused(tmp_path):
    Linear().fit(["a text", "two"], [["a"], ["b"]]).save(tmp_path / "linear")
    with pytest.raises(ConfigError, match="this trained model has no encoder; give a model"):
        EncoderParams(encoder=str(tmp_path / "linear")).folder()
    (tmp_path / "linear" / "tfidf.json").write_text("{}")
    pytest.raises(ModelFormatError, EncoderParams(encoder=str(tmp_path / "linear")).folder)
