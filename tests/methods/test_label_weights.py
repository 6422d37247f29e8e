"""``heads.label_weights``: the costs reach every training that has labels in its loss."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import labelgrove
from labelgrove.errors import ConfigError
from labelgrove.methods import create
from support.small_models import new, planted, tiny_training

TEXTS, LABELS = planted(40)
EQUAL = {"label_weights": "propensity", "propensity_a": 0.0}  # all costs are 1
RARE = {"label_weights": "propensity", "propensity_a": 0.9, "propensity_b": 0.5}
STATIC = {"one_head_up_to": 0, "negatives": "static", "groups_kept": 2}


def model(kind: str, **heads: Any) -> Any:
    if kind == "lightxml with static negatives":
        tree = {"max_leaf_size": 3, "branching": 2}
        created = create("lightxml", deepcopy(tiny_training()) | {"heads": STATIC, "tree": tree})
    else:
        created = deepcopy(new(kind))
    created.training.max_steps = 4
    created.heads.set_params(**heads)
    return created


def weights(fitted: Any) -> list[Any]:
    encoder = fitted.encoder_ if fitted.method == "xrtransformer" else fitted.network_
    return [value.cpu().numpy() for value in encoder.state_dict().values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        "lightxml",
        "lightxml in groups",
        "lightxml with a full head",
        "lightxml with static negatives",
        "cascadexml in three levels",
        "xrtransformer in three levels",
    ],
)
def test_positives_of_rare_labels_cost_more_in_training(kind: str, tmp_path: Path) -> None:
    plain, equal, rare = (model(kind, **heads).fit(TEXTS, LABELS) for heads in ({}, EQUAL, RARE))
    pairs = list(zip(weights(plain), weights(equal), weights(rare), strict=True))
    assert all(np.array_equal(one, other) for one, other, _ in pairs)
    assert not all(np.array_equal(one, other) for one, _, other in pairs)
    rare.save(tmp_path / "model")
    loaded = labelgrove.load(tmp_path / "model")
    assert {name: getattr(loaded.heads, name) for name in RARE} == RARE
    one, other = (m.predict(TEXTS[:5], k=3) for m in (rare, loaded))
    assert np.array_equal(one.columns, other.columns) and np.array_equal(one.scores, other.scores)


@pytest.mark.parametrize("kind", ["lightxml", "cascadexml", "xrtransformer"])
def test_constants_that_no_loss_reads_are_refused(kind: str) -> None:
    message = "heads.propensity_a: has no effect, label_weights is not propensity"
    with pytest.raises(ConfigError, match=message):
        model(kind, propensity_a=0.6).fit(TEXTS, LABELS)


def test_costs_of_labels_that_the_encoder_does_not_learn_are_refused() -> None:
    kind = "xrtransformer in three levels"
    with pytest.raises(ConfigError, match=r"heads\.label_weights: has no effect.*set ranker\."):
        model(kind, max_clusters=8, **RARE).fit(TEXTS, LABELS)
    matching = model(kind)
    matching.matcher.label_weights = "propensity"
    with pytest.raises(ConfigError, match=r"matcher\.label_weights: has no effect"):
        matching.fit(TEXTS, LABELS)
