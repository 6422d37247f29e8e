"""One key changes one value: for every method, every group and every way to give a setting.

Nothing is trained. A new method joins by being in ``labelgrove.methods.METHODS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import labelgrove
import labelgrove.experiments.bench.config
import labelgrove.serve.settings
from labelgrove import Neighbours, scorer
from labelgrove.cli.options import Settings
from labelgrove.core.params import Params, to_toml
from labelgrove.errors import ArgumentError, ConfigError
from labelgrove.methods import METHODS, create, folders, method_class
from labelgrove.methods.settings import GONE, groups_of
from support.values import other_value

REFUSED_ALONE = {"propensity_a", "propensity_b", "text_encoder"}  # they need others of their group


def all_settings() -> dict[str, dict[str, Any]]:
    """Every group of parameters and every method with defaults, bounds and help, as JSON."""
    methods = {method_class(name) for name in METHODS}
    found: dict[str, dict[str, Any]] = {}
    for kind in sorted([*methods, *Params.__subclasses__()], key=lambda kind: kind.__name__):
        own = found[f"{kind.__module__}.{kind.__name__}"] = {}
        for field in fields(kind):
            made = field.default_factory is not MISSING
            default = field.default_factory() if made else field.default  # type: ignore[misc]
            if group := groups_of(kind).get(field.name):
                default = group.kind.__name__, group.values
            default = "to be given" if default is MISSING else default
            own[field.name] = {"is": f"{field.type} = {default!r}", **field.metadata}
    return {name: own for name, own in found.items() if name.startswith("labelgrove")}


def test_settings_have_the_defaults_bounds_and_help_that_they_had(pinned: Any) -> None:
    found = all_settings() | {"gone": [GONE, folders.REPLACED, sorted(folders.REFUSED)]}
    pinned("settings", found | {"methods": {name: vars(entry) for name, entry in METHODS.items()}})


@cache
def settings_of(name: str) -> list[tuple[str, str, Any, dict[str, Any]]]:
    """Each key of each group, a value for it, and the config that this value alone makes."""
    model = create(name)
    default, cases = model.to_config(), []
    for name, group in groups_of(type(model)).items():
        hints = get_type_hints(group.kind)
        # A setting with one value left stays for files that name it.
        only = {key for key, hint in hints.items() if hint == Literal[default[name][key],]}
        for key in default[name].keys() - REFUSED_ALONE - only:
            written, value = other_value(group.kind, key, default[name][key])
            cases.append((name, key, written, default | {name: default[name] | {key: value}}))
    return cases


def as_toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {json.dumps(v)}" for key, v in value.items()) + "}"
    return json.dumps(value)


def by_create(name: str, group: str, key: str, value: Any, folder: Path) -> Any:
    return create(name, {group: {key: value}})


def by_file(name: str, group: str, key: str, value: Any, folder: Path) -> Any:
    file = folder / "config.toml"
    file.write_text(to_toml({"method": name, group: {key: value}}), encoding="utf-8")
    return create(*Settings(config=file).tables(None, "auto"))


def by_flag(name: str, group: str, key: str, value: Any, folder: Path) -> Any:
    flag = f"{group}.{key}={as_toml(value)}"
    return create(*Settings(method=name, settings=[flag]).tables(None, "auto"))


def by_member(name: str, group: str, key: str, value: Any, folder: Path) -> Any:
    """A default of an ensemble for its members."""
    members = [{"method": name}]
    return create("ensemble", {"members": members, group: {key: value}}).members[0]


def by_parameter(name: str, group: str, key: str, value: Any, folder: Path) -> Any:
    return create(name).set_params(**{f"{group}__{key}": value})


WAYS = [by_create, by_file, by_flag, by_member, by_parameter]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] * bool(entry.preset))
        for n, entry in METHODS.items()
    ],
)
def test_one_key_changes_one_value(name: str, way: Callable[..., Any], tmp_path: Path) -> None:
    for group, key, value, expected in settings_of(name):
        model = way(name, group, key, value, tmp_path)
        getattr(model, group).validate()
        assert model.to_config() == expected, f"{group}.{key}"


@pytest.mark.parametrize("name", [n for n, entry in METHODS.items() if not entry.preset])
def test_a_table_for_a_class_changes_one_value(name: str) -> None:
    kind = method_class(name)
    for group, key, value, expected in settings_of(name):
        assert kind.from_config({group: {key: value}}).to_config() == expected
        model = kind(**{group: {key: value}})
        getattr(model, group).validate()
        assert model.to_config() == expected
        assert kind(**{group: None}).to_config() == kind().to_config()


WITH_ENCODER = [name for name in METHODS if "encoder" in groups_of(method_class(name))]


@pytest.mark.parametrize("name", WITH_ENCODER)
def test_the_name_of_an_encoder_stands_for_its_group(name: str, tmp_path: Path) -> None:
    expected = create(name, {"encoder": {"encoder": "some-name"}}).to_config()
    file = tmp_path / "config.toml"
    file.write_text(f'method = "{name}"\nencoder = "some-name"\n', encoding="utf-8")
    flags = Settings(method=name, settings=["encoder=some-name"])
    for tables in (
        {"encoder": "some-name"},
        Settings(config=file).tables(None, "auto")[1],
        flags.tables(None, "auto")[1],
    ):
        assert create(name, tables).to_config() == expected
    both = Settings(config=file, settings=["encoder.max_tokens=9"]).tables(None, "auto")
    assert create(*both).encoder.get_params() == expected["encoder"] | {"max_tokens": 9}
    model = clone(create(name, {"encoder": {"max_tokens": 9}})).set_params(encoder="some-name")
    assert model.encoder.get_params() == expected["encoder"] | {"max_tokens": 9}
    model.encoder = "another"
    assert model.get_params()["encoder__encoder"] == "another"
    if not METHODS[name].preset:
        model = method_class(name)(encoder="some-name")  # type: ignore[call-arg]
        assert model.to_config() == expected
        cloned = clone(model)
        assert cloned.to_config() == expected and cloned.get_params()["encoder"] is cloned.encoder


def test_a_search_over_names_of_encoders() -> None:
    model = Neighbours(encoder={"max_tokens": 9})  # which compares tf-idf
    search = GridSearchCV(model, {"encoder": ["one", "two"]}, scoring=scorer("P@1"), cv=2)
    search.fit(["red shoe", "blue hat"] * 4, [["shoes"], ["hats"]] * 4)
    assert search.best_estimator_.encoder.encoder == "one"
    assert search.best_estimator_.encoder.max_tokens == 9


@pytest.mark.parametrize("name", [n for n, entry in METHODS.items() if not entry.preset])
def test_an_unknown_argument_suggests_one_that_works(name: str) -> None:
    kind = method_class(name)
    with pytest.raises(ArgumentError, match=r"random_stat: .*; did you mean random_state\?"):
        kind(random_stat=1)  # type: ignore[call-arg]
    known = kind._get_param_names()
    for group, key, value, expected in settings_of(name):
        if key in known or len(json.dumps(value)) > 40:
            continue
        with pytest.raises(TypeError, match="has no such argument; did you mean") as caught:
            kind(**{key: value})
        advice = str(caught.value).partition("did you mean ")[2].removesuffix("?")
        call = next(call for call in advice.split(" or ") if call.startswith(f"{group}="))
        # What is suggested can be typed by someone who has only ``labelgrove``.
        model = eval(f"labelgrove.{kind.__name__}({call})", vars(labelgrove) | names_of(kind))
        getattr(model, group).validate()
        assert model.to_config() == expected


def names_of(kind: Any) -> dict[str, Any]:
    """The classes of a method's groups, as a user imports them."""
    names = [group.kind.__name__ for group in groups_of(kind).values()]
    return {"labelgrove": labelgrove} | {name: getattr(labelgrove, name) for name in names}


def test_groups_suggest_their_own_names() -> None:
    with pytest.raises(ArgumentError, match=r"^c: RankerParams has no such argument; .* mean C\?$"):
        labelgrove.RankerParams(c=1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^C: Linear .* mean ranker=RankerParams\(C=2\)\?$"):
        labelgrove.Linear(C=2)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"mean n_trees\?"):
        labelgrove.Linear(n_tree=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"^C: unknown key; did you mean ranker__C\?$"):
        labelgrove.Linear().set_params(C=2)
