"""What small models of every method learn and say is what it was: a change shows in a fixture.

Networks compute other last digits on other processors, so numbers may differ by a hundredth.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any, get_type_hints

import numpy as np
import pytest

pytest.importorskip("torch")

from sklearn.base import clone

import labelgrove
from labelgrove import Corpus
from labelgrove.core.params import Params
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import LabelgroveError, UnsupportedError
from labelgrove.methods.settings import groups_of
from support import small_models as small
from support.values import other_value, words

KINDS = [name for name in small.ALL if name not in small.PRESETS]
MEASURES = ["P@1", "R@3", "nDCG@5", "PSP@3", "PSnDCG@3", "RP@3", "F1@3", "micro-F1@2"]
MEASURES += ["macro-F1@2", "coverage@3", "tail-R@3"]


@cache
def parts() -> tuple[Corpus, Corpus]:
    """Documents to learn from and new ones: some words name labels, most do not."""
    shop, (texts, labels) = shop_corpus(220, labels=30, seed=1), small.planted(220)
    both = [f"{text} {more}" for text, more in zip(texts, shop.texts, strict=True)]
    rows = [[*row, *more] for row, more in zip(labels, shop.label_lists(names=True), strict=True)]
    return Corpus.from_lists(both[:160], rows[:160]), Corpus.from_lists(both[160:], rows[160:])


def plain(value: Any) -> Any:
    """What JSON can hold, with numbers in four digits and without times."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = value.get_params() if isinstance(value, Params) else vars(value)
    if isinstance(value, dict):
        left_out = ("seconds", "tokens_per_second", "encoder")
        return {str(key): plain(item) for key, item in value.items() if key not in left_out}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int) else str(value)


def scores(model: Any, *, raw: bool = True) -> Any:
    texts, labels = parts()[1].texts[:3], list(model.index_.ids)[::2]
    return plain(model.score_labels(texts, labels, raw=raw))


def grown(model: Any) -> Any:
    new = ["a quiet robot that waters plants", "a robot that is red", "one more robot"]
    try:
        growth = model.update(new, [["robots"], ["robots", "colour red"], ["robots"]])
    except UnsupportedError as error:
        return str(error)
    return plain(growth), scores(model)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_small_model_is_what_it_was(kind: str, pinned: Any) -> None:
    known, new = parts()
    model, messages = small.shortened(small.new(kind), 10), small.Messages()
    if "held_out" in model.get_params():
        model.held_out = 0.25
    model.fit(known, callbacks=[messages])
    found = {
        "said": [text for text in messages if " s; " not in text],
        "memory": model.estimate_memory(known),
        "cost": plain(model.cost_estimate(20_000, 3_000)),
        "steps": [(step.name, step.documents, step.merged) for step in model.steps(20_000)],
        "search space": plain(model.search_space()),
        "chosen": plain(model.derived_),
        "report": plain(model.report_),
        "history": plain(model.history_),
        "trees": [plain(tree.state().arrays) for tree in model.trees().values()],
        "scores": scores(model),
        "reasons": plain(model.explain(new.texts[0], top=4)),
    }
    model.calibrate(new.take(range(40)), k=5)
    found["calibration"] = plain(model.calibration_), scores(model, raw=False)
    found["measured"] = plain(
        labelgrove.evaluate(model, new.take(range(40, 60)), metrics=MEASURES, intervals=20)
    )
    found["grown"] = grown(model)
    pinned(f"small/{kind.replace(' ', '-')}", found, near=0.01)


# The encoder is the tiny one.
LEFT_ALONE = {"attention", "encoder", "text_encoder", "propensity_a", "propensity_b"}
SHARED = {"tfidf", "tree", "ranker", "search", "encoder"}  # networks have those of linear methods
SETTINGS_OF = ["linear", "mined", "neighbours by both", "matcher", "linear-vectors", "dual"]
SETTINGS_OF += ["lightxml in groups", "lightxml with a full head", "cascadexml in three levels"]
SETTINGS_OF += ["xrtransformer", "xtransformer"]


def values_of(kind: type[Params], key: str, default: Any) -> list[Any]:
    """All other words that a setting may be, or else one other value."""
    allowed = words(get_type_hints(kind)[key])
    if len(allowed) == 1:
        return []
    return [word for word in allowed if word != default] or [other_value(kind, key, default)[1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS_OF)
def test_every_setting_does_what_it_did(kind: str, pinned: Any) -> None:
    known, new = parts()
    known, found = known.take(range(80)), {}
    model = small.shortened(small.new(kind), 3)
    for name, group in groups_of(type(model)).items():
        if name in SHARED and hasattr(model, "training"):
            continue
        for key, default in getattr(model, name).get_params().items():
            setting = f"{name}.{key}"
            for value in [] if key in LEFT_ALONE else values_of(group.kind, key, default):
                changed = clone(model).set_params(**{f"{name}__{key}": value})
                try:
                    answer = changed.fit(known).predict(new.texts[:6], k=3)
                except LabelgroveError as error:
                    found[f"{setting}={value}"] = str(error)
                else:
                    found[f"{setting}={value}"] = plain(answer.scores.ravel())
    pinned(f"settings/{kind.replace(' ', '-')}", found, near=0.01)
