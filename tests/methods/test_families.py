"""Every family of encoders trains, is saved, predicts the same again, is explained and resumed.

The encoders are tiny and random, made from the family's own config and classes.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

import labelgrove
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.methods import create
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
from labelgrove.nn.encoders.files import layer_count, longest_text, states_width
from labelgrove.nn.encoders.tokens import tokenize
from support.small_models import COLOURS, THINGS, planted, stored
from support.tiny_encoders import FAMILIES, LAYERS, WIDTH, make_encoder

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs" / "encoders.md"
# As docs/encoders.md names them.
NAMES = {
    "bert": "BERT",
    "deberta-v2": "DeBERTa v2, v3",
    "distilbert": "DistilBERT",
    "electra": "ELECTRA",
    "eurobert": "EuroBERT",
    "modernbert": "ModernBERT",
    "mpnet": "MPNet",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-R",
    "xlnet": "XLNet",
}
HEADS = {
    "cascadexml": {"dropout": 0.0, "mix_dropout": 0.0, "clusters": [2, 4], "kept": 2},
    "lightxml": {"layers": 2, "dropout": 0.0},
    "xtransformer": {"dropout": 0.0},
    "xrtransformer": {"dropout": 0.0},
}


@cache
def folder_of(family: str) -> Path:
    words = [*COLOURS, *THINGS, "item", "is", "a", "that", "we", "sell"]
    return make_encoder(Path(tempfile.mkdtemp()) / family, family, words=words)


def encoder_of(family: str, **settings: Any) -> Any:
    params: dict[str, Any] = {"encoder": str(folder_of(family)), "max_tokens": 24} | settings
    return load_encoder(EncoderParams(**params))


@cache
def fitted(method: str, family: str) -> Any:
    settings = {
        "encoder": {"encoder": str(folder_of(family)), "max_tokens": 24, "dropout": 0.0},
        "training": {"max_steps": 40, "batch_size": 32, "lr": 3e-3, "head_lr": 3e-2},
        "heads": HEADS[method],
        "held_out": 0.0,
        "device": "cpu",
    }
    if method == "cascadexml":
        settings["rerank"] = {"enabled": False}
    return create(method, settings).fit(*planted(80))


METHODS = [(method, family) for family in FAMILIES for method in ("cascadexml", "lightxml")]
METHODS += [("xtransformer", family) for family in FAMILIES if family in ("xlnet", "modernbert")]
METHODS += [("xrtransformer", f) for f in FAMILIES if f in ("eurobert", "deberta-v2", "roberta")]


@pytest.mark.parametrize(("method", "family"), METHODS)
def test_a_model_learns_and_predicts_the_same_after_loading(
    method: str, family: str, tmp_path: Path
) -> None:
    model = fitted(method, family)
    texts, labels = planted(80)
    best = model.predict(texts, k=1).names()
    first = [ranked[0] in true for ranked, true in zip(best, labels, strict=True)]
    assert np.mean(first) > 0.5  # of 12 labels, two are right
    again = stored(model, tmp_path / "model")
    found, back = model.predict(texts, k=4), again.predict(texts, k=4)
    np.testing.assert_array_equal(found.columns, back.columns)
    assert found.scores.tobytes() == back.scores.tobytes()
    one = again.predict(texts[:1], k=4)  # alone, without padding
    np.testing.assert_allclose(one.scores[0], found.scores[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_of_the_files_is_what_the_encoder_does(family: str) -> None:
    folder = folder_of(family)
    assert (states_width(folder), layer_count(folder)) == (WIDTH, LAYERS)
    most = longest_text(folder)
    assert (most is None) == (family == "xlnet")
    encoder = encoder_of(family, max_tokens=most or 500).eval()
    tokens = tokenize(["red shoe " * 600], encoder, encoder.max_tokens)
    assert len(tokens.row(0)) == encoder.max_tokens
    with torch.no_grad():
        (state,) = encoder(torch.tensor(tokens.row(0)[None].astype(np.int64)), None)
    assert state.isfinite().all()


@cache
def documented(family: str) -> list[str]:
    """The row of docs/encoders.md: what the family allows."""
    rows = [line.strip(" |").split(" | ") for line in DOCS.read_text().splitlines() if "| " in line]
    return {cells[0]: cells[1:] for cells in rows}[NAMES[family]]


def test_the_table_of_families_is_true() -> None:
    for family in FAMILIES:
        encoder = encoder_of(family, pooling="mean")
        how = getattr(encoder.model.config, "_attn_implementation", "sdpa")  # or a Bert of ours
        fused = how == "sdpa"
        try:
            encoder_of(family, gradient_checkpointing=True)
            checkpoints = True
        except ConfigError:
            checkpoints = False
        tables = [n for n, _ in encoder.named_modules() if n.endswith("position_embeddings")]
        facts = [fused, encoder.packs, checkpoints, not tables]
        assert documented(family)[:4] == ["yes" if fact else "no" for fact in facts], family


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f in ("deberta-v2", "eurobert", "modernbert", "xlnet")]
)
def test_a_family_is_exported_or_refused(family: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model = fitted("lightxml", family)
    if documented(family)[4] == "no":
        with pytest.raises(UnsupportedError, match=f"of the kind {family} as ONNX"):
            labelgrove.export(model, tmp_path / "onnx")
        return
    labelgrove.export(model, tmp_path / "onnx")
    texts = planted(20, seed=3)[0]
    ours, theirs = labelgrove.load(tmp_path / "onnx").predict(texts, k=3), model.predict(texts, k=3)
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f in ("modernbert", "xlnet")])
def test_packing_is_refused_where_a_family_has_no_pass_for_it(family: str) -> None:
    settings = {
        "encoder": {"encoder": str(folder_of(family)), "max_tokens": 24},
        "training": {"max_steps": 1, "batch_size": 8, "packed": True},
        "device": "cpu",
    }
    with pytest.raises(ConfigError, match=rf"training\.packed: {family} encoders"):
        create("lightxml", settings).fit(*planted(30))
