"""The reranker reads the shortlists of the network and of the linear method."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import labelgrove
from labelgrove.methods.neural import make_runner
from labelgrove.methods.reranking import Reranker
from support.small_models import new, planted

METHODS = ["lightxml", "lightxml in groups", "lightxml with a full head", "cascadexml"]
METHODS += ["cascadexml in three levels"]
TEXTS, LABELS = planted(120)


@cache
def unlearnt(method: str, *, linear: bool = True) -> Any:
    """A model whose network has learnt next to nothing and lists two of eleven labels."""
    training = {"max_steps": 1, "batch_size": 4, "lr": 1e-6, "head_lr": 1e-6}
    rerank = {"enabled": True, "shortlist": 2, "linear": linear}
    return new(method, training=training, rerank=rerank, held_out=0.0).fit(TEXTS, LABELS)


@pytest.mark.parametrize("method", METHODS)
def test_labels_that_the_network_does_not_list_are_found(method: str) -> None:
    assert unlearnt(method, linear=False).score(TEXTS, LABELS) < 0.75
    assert unlearnt(method).score(TEXTS, LABELS) > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_a_score_does_not_depend_on_the_list_that_has_the_label(method: str) -> None:
    model = unlearnt(method)
    names = list(model.index_.names)
    every = model.score_labels(TEXTS[:20], names)
    best = model.predict(TEXTS[:20], k=3)
    for row, columns in enumerate(best.columns):
        assert np.allclose(every[row, columns], best.scores[row], rtol=1e-4, atol=1e-6)
    few = model.predict(TEXTS[:20], k=3, allow=names[:4])
    assert few.columns.max() < 4 and (few.counts == 3).all()


def test_a_model_without_the_linear_part_reads_the_networks_list(tmp_path: Path) -> None:
    """As earlier releases wrote it."""
    model = unlearnt("cascadexml")
    model.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    assert same(loaded.predict(TEXTS, k=2), model.predict(TEXTS, k=2))
    parts = {k: v for k, v in model.parts().items() if k != "rerank-linear"}
    assert len(parts) == len(model.parts()) - 1
    loaded.reranker_ = Reranker.from_parts(parts, loaded.rerank)
    runner = make_runner(loaded.network_, loaded.training.precision)
    lists = runner.read(loaded_tokens(loaded), 2)[0]
    columns = loaded.predict(TEXTS, k=2).columns
    assert np.array_equal(np.sort(columns, axis=1), np.sort(lists, axis=1))


def loaded_tokens(model: Any) -> Any:
    from labelgrove.nn.encoders.tokens import tokenize

    return tokenize(TEXTS, model.network_.encoder, model.network_.encoder.max_tokens)


def same(one: Any, other: Any) -> bool:
    return np.array_equal(one.columns, other.columns) and np.array_equal(one.scores, other.scores)
