"""The linear method on text vectors of its own: the neural papers' baselines by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from labelgrove import Linear
from labelgrove.disk.run_folder import RunFolder
from labelgrove.methods import create
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder
from labelgrove.nn.encoders.tokens import tokenize
from labelgrove.nn.network import embed
from support.run_logs import computed
from support.small_models import FEW_UPDATES, planted, stored, tiny_training


def new(method: str, **settings: Any) -> Any:
    return create(method, tiny_training() | {"training": FEW_UPDATES} | settings)


@pytest.mark.parametrize("beside", [True, False])
def test_it_is_the_linear_method_on_those_vectors(beside: bool) -> None:
    texts, labels = planted(80)
    model = new("linear-vectors", vectors={"beside_tfidf": beside}).fit(texts, labels)
    encoder = load_encoder(EncoderParams(**tiny_training()["encoder"]))
    dense = embed(encoder, tokenize(texts, encoder, encoder.max_tokens)).astype(np.float16)
    same = Linear().fit(texts, labels, dense=dense) if beside else Linear().fit(dense, labels)
    expected = (
        same.predict(texts, k=3, dense=dense) if beside else same.predict(np.asarray(dense), k=3)
    )
    assert np.array_equal(model.predict(texts, k=3).columns, expected.columns)
    assert np.allclose(model.predict(texts, k=3).scores, expected.scores, atol=1e-5)


@pytest.mark.slow
def test_fine_tuned_vectors_are_those_of_x_transformers_matcher(tmp_path: Path) -> None:
    texts, labels = planted(60)
    with RunFolder(tmp_path / "run") as run:
        matcher = new("xtransformer").fit(texts, labels, run=run)
    before = computed(tmp_path / "run")
    with RunFolder(tmp_path / "run") as run:
        model = new("parabel-finetuned-tfidf").fit(texts, labels, run=run)
    after = computed(tmp_path / "run")[len(before) :]
    assert not {"network", "matching", "tfidf", "tokens", "clusters"} & set(after)
    theirs, ours = (network.state_dict() for network in (matcher.network_, model.embedder_))
    assert all((theirs[name] == ours[name]).all() for name in theirs)
    again = stored(model, tmp_path / "model").predict(texts, k=3)
    assert again.scores.tobytes() == model.predict(texts, k=3).scores.tobytes()
    assert model.score(texts, labels) > 0.9
