"""Settings that are "auto" follow corpus, encoder and device; what the user sets stays."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelgrove.core.params import fixed
from labelgrove.methods.defaults import RULES, DefaultInputs, Derived, TrainingNeeds, derive

# What methods say that is not for a rule to derive, and every rule's name as "auto".
AUTO: dict[str, Any] = dict.fromkeys(RULES, "auto")
AUTO |= {"training.max_steps": None, "training.accumulate": 1}
AUTO |= {"heads.one_head_up_to": 100_000, "heads.loss": "bce", "heads.negatives": "dynamic"}


def case(
    documents: int, labels: int, tokens: list[int], clusters: tuple[int, ...] = (), **rest: Any
) -> DefaultInputs:
    """An encoder like gte-small on one GPU."""

    def lengths(most: int) -> Any:
        return np.minimum(np.asarray(tokens, np.int64), most)

    about = {"width": 384, "positions": 512, "pooling": None, "gpu": True, "processes": 1}
    return DefaultInputs(documents, labels, clusters, lengths=lengths, **about | rest)  # type: ignore[arg-type]


LONG = case(45_000, 4108, [700] * 100, (512,))  # like eurlex57k
SHORT = case(
    439_000, 178_719, [30] * 60 + [60] * 20 + [200] * 20, (256, 2048, 16_384)
)  # like commits
FEW = case(15_000, 31_000, [230] * 100, (512, 4096))  # abstracts
MANY = dataclasses.replace(LONG, documents=300_000, labels=180_000)  # with a full head


CHANGES: list[dict[str, Any]] = [
    *({"documents": count} for count in (700, 20_000, 3_000_000)),
    *({"labels": count} for count in (100_000, 10**6, 10**6 + 1)),
    {"width": 768},
    *({"positions": 300, "pooling": "first"}, {"processes": 2}, {"clusters": ()}),
    *({"gpu": False}, {"clusters": (100,)}),
    *({"lengths": lambda most: np.arange(20, 220, 2).clip(0, most)},),
]
GIVEN = [
    *({"training.max_steps": 150}, {"heads.steps": [50, 100], "training.max_steps": 9999}),
    *({"training.accumulate": 2}, {"encoder.max_tokens": 64}, {"heads.one_head_up_to": 3000}),
    *({"training.lr": 1e-5}, {"training.batch_size": 32}, {"heads.negatives": "static"}),
]
NEEDS = [TrainingNeeds(900, (2, 4), 3.0, (0.1, 0.5))]


def test_every_rule_gives_what_it_gave(pinned: Any) -> None:
    found: dict[str, Any] = {}
    for name, corpus in {"long": LONG, "short": SHORT, "few": FEW, "many": MANY}.items():
        usual = derive(AUTO, corpus, TrainingNeeds())
        found[name] = {setting: list(pair) for setting, pair in usual.items()}
        cases = [(change, {}, TrainingNeeds()) for change in CHANGES]
        cases += [({}, given, TrainingNeeds()) for given in GIVEN] + [({}, {}, n) for n in NEEDS]
        for number, (change, given, needs) in enumerate(cases):
            pairs = derive(AUTO | given, dataclasses.replace(corpus, **change), needs)
            changed = {k: list(pair) for k, pair in pairs.items() if pair != usual[k]}
            found[f"{name}, case {number}"] = changed
    pinned("derived", found)


@pytest.mark.parametrize("name", RULES)
def test_what_the_user_sets_is_not_derived(name: str) -> None:
    own = {"encoder.pooling": "last", "training.average": "none", "heads.level_weights": [1.0, 2.0]}
    value = own.get(name, 0.3 if name in ("held_out", "heads.dropout") else 3)
    derived = derive(AUTO | {name: value}, LONG, TrainingNeeds())
    assert set(derived) == set(RULES) - {name}


def test_a_setting_is_plain_where_nothing_is_known() -> None:
    assert fixed("auto", 3) == 3
    assert fixed(None, 3) is None


# Through the methods, with a tiny encoder.


def autos(config: dict[str, Any]) -> set[str]:
    """Names of settings that wait for a rule."""
    flat = {f"{t}.{k}": v for t, s in config.items() if isinstance(s, dict) for k, v in s.items()}
    return {name for name, value in (config | flat).items() if name in RULES and value == "auto"}


def left_alone(method: str) -> Any:
    """A model with nothing set but the encoder and the device."""
    from labelgrove.methods import create
    from support.small_models import tiny_training

    encoder = {"encoder": tiny_training()["encoder"]["encoder"]}
    return create(method, {"encoder": encoder, "device": "cpu", "n_jobs": 1})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cascadexml", "lightxml", "xrtransformer", "xtransformer"])
def test_a_fit_derives_what_is_auto_and_stores_it(method: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import labelgrove
    from labelgrove.disk.run_folder import RunFolder
    from support.small_models import planted

    texts, labels = planted(60)
    model = left_alone(method)
    asked = autos(model.to_config())
    assert {"training.lr", "encoder.max_tokens", "held_out"} <= asked
    with RunFolder(tmp_path / "run") as run:
        model.fit(texts, labels, run=run)
    assert set(model.derived_) == asked == autos(model.to_config())  # arguments stay as they came
    assert model.derived_["encoder.max_tokens"][0] == 32
    model.save(tmp_path / "model")
    stored = json.loads((tmp_path / "model" / "manifest.json").read_text())["params"]
    assert not autos(stored)
    again = labelgrove.load(tmp_path / "model")
    assert {n: tuple(p) for n, p in again.derived_.items()} == model.derived_
    expected = model.predict(texts, k=3)
    assert np.array_equal(again.predict(texts, k=3).columns, expected.columns)
    # The stored settings are those of the training: with them, every stage is found again.
    with RunFolder(tmp_path / "run", resume=True) as run:
        again.fit(texts, labels, run=run)
    assert all(t.reused for t in again.timings_.values())
    assert again.derived_ == {}


def test_a_plan_says_what_is_derived_and_why() -> None:
    pytest.importorskip("torch")
    from labelgrove import Corpus
    from labelgrove.experiments.planning.plan import plan_training
    from support.small_models import planted

    model = left_alone("cascadexml")
    model.training.lr = 0.5
    plan = plan_training(model, Corpus.from_lists(*planted(60)), calibrate=False)
    text = "\n".join(plan.lines())
    for name, (_, reason) in plan.derived.items():
        assert f"  setting  {name} = " in text and reason in text
    assert "training.lr" not in plan.derived
    assert plan.derived["training.head_lr"] == Derived(5.0, "10 times training.lr")
    assert plan.to_json()["derived"]["training.head_lr"]["value"] == 5.0
