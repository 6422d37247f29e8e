"""A stage is known by what it depends on: a parameter that fitting reads changes some stage's key,
a parameter that it does not read changes none.

Each method is fitted once with small settings. Then every parameter is changed in turn, and fitting
is replayed: stages give what the first fit gave, whatever their key, so only keys are computed.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from labelgrove.core.part import Part
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import LabelgroveError
from labelgrove.methods import create
from support import small_models as contract

pytestmark = pytest.mark.slow
METHODS = [
    "linear",
    "neighbours",
    "neighbours by both",
    "matcher",
    "linear-vectors",
    "lightxml",
    "cascadexml in three levels",
    "xtransformer",
    "xrtransformer in three levels",
]
# Parameters that prediction reads, or that say only how a fit runs, or that these settings leave
# without effect. Everything else must reach the key of some stage.
RUNS_ONLY = {"n_jobs", "device", "encoder.convert_weights"}
LOOP = {f"training.{name}" for name in ("log_every", "checkpoint_minutes")}
UNREAD: dict[str, set[str]] = {
    "linear": {"search.last_level"},
    # Votes are counted by predictions; nothing is drawn, and tf-idf needs no encoder.
    "neighbours": {"voting", "random_state", "encoder"},
    "neighbours by both": {"voting", "random_state"},
    # Nothing is fine-tuned.
    "linear-vectors": {"heads", "indexing", "training", "held_out", "search.last_level"},
    # One head over all labels needs no tree; without held-out documents there is no baseline, and
    # nothing to return to a ranker.
    "lightxml": {"rerank", "ranker", "tree", "baseline"},
    # The widths of its tree come from the heads.
    "cascadexml in three levels": {
        *("rerank.share", "baseline"),
        *("tree.branching", "tree.max_leaf_size", "tree.top_width"),
    },
    # Rankers learn the same, however margins become a score.
    "xtransformer": {"baseline", "indexing.embeddings"},
    # A level more or less is read off the tree, which is too small for this limit.
    "xrtransformer in three levels": {*("search.last_level", "baseline", "heads.max_clusters")},
}


@cache
def small(method: str) -> Any:
    pytest.importorskip("torch") if method not in ("linear", "neighbours", "matcher") else None
    return contract.new(method)


class Replay(RunFolder):
    """A run folder that remembers keys; given ``results``, it computes nothing."""

    keys: dict[str, str]
    results: dict[str, Part]
    replays: bool = False

    def stage(self, name: str, inputs: Any, compute: Any) -> Part:
        self.keys[name] = inputs["key"]
        if self.replays:
            if name not in self.results:
                raise _NotReplayed
            return self.results[name]
        self.results[name] = super().stage(name, inputs, compute)
        return self.results[name]


class _NotReplayed(Exception):
    """The changed setting asks for a stage that the first fit did not have."""


@pytest.fixture(scope="module")
def quick_encoders() -> Iterator[None]:
    """An encoder is read once for each of its settings; reading takes most of a replay's time."""
    if importlib.util.find_spec("torch") is None:
        yield
        return
    from labelgrove.nn.encoders import encoder

    models: dict[str, Any] = {}
    read = encoder._load_model

    def load_model(config: Any, folder: Any, params: Any) -> Any:
        key = f"{folder} {params} {config.to_json_string()}"
        if key not in models:
            models[key] = read(config, folder, params)
        return copy.deepcopy(models[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "_load_model", load_model)
        yield


@pytest.fixture(scope="module", params=METHODS)
def first(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, quick_encoders: None
) -> Iterator[tuple[str, Replay]]:
    method = str(request.param)
    model = small(method)
    with Replay(tmp_path_factory.mktemp("run") / "run") as run:
        run.keys, run.results = {}, {}
        model.fit(*contract.planted(40), run=run)
        run.replays = True
        yield method, run


def replayed_keys(config: dict[str, Any], method: str, run: Replay) -> dict[str, str] | None:
    """The keys of a replayed fit; None if the setting is refused."""
    run.keys = {}
    try:
        create(method, config).fit(*contract.planted(40), run=run)
    except _NotReplayed:
        pass
    except LabelgroveError:
        return None
    return dict(run.keys)


def changes(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each parameter by its dotted name, with a config in which only it is another."""
    config = model.to_config()
    for name, value in config.items():
        if isinstance(value, dict):
            group = vars(model)[name]
            hints = typing.get_type_hints(type(group))
            for field in dataclasses.fields(group):
                for other in others(value[field.name], hints[field.name]):
                    yield f"{name}.{field.name}", config | {name: value | {field.name: other}}
        else:
            for other in others(value, type(value)):
                yield name, config | {name: other}


def others(value: Any, hint: Any) -> list[Any]:
    """Other values of a parameter, likely to be allowed."""
    kinds = [hint, *typing.get_args(hint)]
    choices = [
        c
        for kind in kinds
        if typing.get_origin(kind) is typing.Literal
        for c in typing.get_args(kind)
    ]
    found: list[Any] = [choice for choice in choices if choice != value]
    if isinstance(value, bool) or bool in kinds:
        found += [True, False]
    elif isinstance(value, int) or int in kinds:
        found += [(value if isinstance(value, int) else 1) + step for step in (1, -1)]
    elif isinstance(value, float) or float in kinds:
        number = value if isinstance(value, float) else 0.5
        found += [number * 0.5, number + 0.25]
    return [other for other in found if other != value]


def test_every_parameter_that_fitting_reads_is_in_a_key(first: tuple[str, Replay]) -> None:
    method, run = first
    model = small(method)
    base = replayed_keys(model.to_config(), model.method, run)
    assert base
    silent, loud = set(), set()
    for name, config in changes(model):
        if name in loud:  # one value that changes a key is enough
            continue
        keys = replayed_keys(config, model.method, run)
        if keys is not None:
            (silent if keys == base else loud).add(name)
    silent -= loud  # some other value changed a key
    expected = {
        name
        for name in silent
        if name in RUNS_ONLY | LOOP | UNREAD.get(method, set())
        or name.split(".")[0] in UNREAD.get(method, set())
    }
    assert silent == expected, f"{method}: in no key: {sorted(silent - expected)}"
    wrongly = loud & (RUNS_ONLY | LOOP | {n for n in UNREAD.get(method, set()) if "." in n})
    assert not wrongly, f"{method}: in a key, but fitting does not read it: {sorted(wrongly)}"
