"""The settings of a model: its groups of parameters, their checks, and what scikit-learn asks.

scikit-learn itself is not imported: that takes longer than loading a model and predicting.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np

from labelgrove.core.aliases import Table, TableView
from labelgrove.core.params import Params, argument_names, as_table, checked, unknown_key
from labelgrove.core.processes import MAX_THREADS
from labelgrove.errors import ConfigError

P = TypeVar("P", bound=Params)
M = TypeVar("M")
LabelTexts = Literal["names"] | None  # whether names of labels are learnt as documents
# Settings that have gone, and values that change nothing: files with these values still load.
GONE: dict[str, tuple[object, ...]] = {
    "encoder.freeze": (None, "none"),
    "heads.label_weights": ("ignore",),
    "heads.lr": ([],),
    "heads.logits": ("auto", "union", "full"),
    "heads.matcher": ("linear",),
    "heads.name_logit": (0,),
    "heads.propensity_a": (0.55,),
    "heads.propensity_b": (1.5,),
    "heads.sharded": (False, None, "none"),
    "heads.soft_targets": (False,),
    "matcher.start": ("initial",),
    "ranker.start": ("initial",),
    "ranking.cluster_transform": ("l4-hinge",),
    "ranking.combine": ("ranker",),
    "ranking.label_transform": ("l4-hinge",),
    "rerank.start": ("none",),
    "tfidf.n_buckets": (None, "none"),
    "training.average_tables": (True,),
    "training.batch_tokens": (None, "none"),
    "training.compile": (True, False, "auto"),
    "training.ema_decay": (0.999,),
    "training.graphs": (True, False),
    "training.patience": (None, "none"),
    "training.table_optimizer": ("adam",),
    "training.table_state": ("fp32",),
}


class Group(Generic[P]):
    """A constructor argument that is a group of parameters, with the method's own defaults.

    A table in place of a group changes the values that it names: ``search={"beam": 30}``. So does
    the name of an encoder, ``encoder="gte-small"``. None stands for the method's defaults.
    """

    def __init__(self, kind: type[P], values: TableView) -> None:
        self.kind, self.values = kind, values

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, model: None, owner: type) -> None: ...
    @overload
    def __get__(self, model: object, owner: type) -> P: ...
    def __get__(self, model: object | None, owner: type) -> P | None:
        # The dataclass asks its class for the default of the argument.
        return None if model is None else vars(model)[self.name]

    def __set__(self, model: object, value: P | TableView | str | None) -> None:
        present = vars(model).get(self.name)
        if value is None:
            value = self.kind(**self.values)
        table = as_table(self.name, value)
        if isinstance(table, Mapping):
            base = present.get_params() if isinstance(present, Params) else self.values
            value = self.kind(**{**base, **table})
        vars(model)[self.name] = value  # ``check_settings`` refuses what is no group

    def from_table(self, value: object) -> P:
        """A validated group from a table of a config."""
        table = as_table(self.name, value)
        if not isinstance(table, Mapping):
            raise ConfigError(f"{self.name}: must be a table of parameters, got {value!r}")
        gone = [key for key in table if table[key] in GONE.get(f"{self.name}.{key}", ())]
        current = {key: value for key, value in table.items() if key not in gone}
        return self.kind.from_dict({**self.values, **current}, self.name)


def group(kind: type[P], **values: Any) -> Group[P]:
    """The argument of a method for a group, and values that differ from the group's defaults."""
    return Group(kind, values)


@cache
def groups_of(cls: type) -> dict[str, Group[Any]]:
    """The groups of a model class by name, from its fields."""
    members = (item for base in reversed(cls.__mro__) for item in vars(base).items())
    return {name: value for name, value in members if isinstance(value, Group)}


def from_config(cls: type, config: TableView) -> Any:
    """An unfitted model from config tables: a table per group, other keys are arguments."""
    groups, names = groups_of(cls), sorted(argument_names(cls))
    arguments: Table = {}
    for key, value in config.items():
        if key not in names:
            inside = keys_inside(cls, lambda group, inner: f"{group.name}.{inner}")
            raise ConfigError(unknown_key(key, names, inside=inside))
        if key in groups:
            arguments[key] = groups[key].from_table(value)
        else:
            arguments[key] = None if value == "none" else value  # TOML has no null
    model = cls(**arguments)
    model.check_settings()
    return model


def get_params(model: object, deep: bool = True) -> Table:
    """Arguments by name; with ``deep``, those of groups as ``GROUP__NAME``."""
    params: Table = {}
    for name in sorted(argument_names(type(model))):
        params[name] = value = getattr(model, name)
        if deep and isinstance(value, Params):
            params |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
    return params


def set_params(model: M, **params: Any) -> M:
    """Sets arguments by the names of :func:`get_params`."""
    names, nested = sorted(argument_names(type(model))), defaultdict[str, Table](dict)
    for key, value in params.items():
        name, _, inner = key.partition("__")
        if name not in names:
            inside = keys_inside(type(model), lambda group, inner: f"{group.name}__{inner}")
            raise ConfigError(unknown_key(name, names, inside=inside))
        if inner:
            nested[name][inner] = value
        else:
            setattr(model, name, value)
    for name, values in nested.items():
        getattr(model, name).set_params(**values)
    return model


def keys_inside(cls: type, written: Callable[[Group[Any], str], str]) -> dict[str, list[str]]:
    """The keys of all groups, and how each of them is written."""
    inside = defaultdict[str, list[str]](list)
    for group in groups_of(cls).values():
        for key in argument_names(group.kind):
            inside[key].append(written(group, key))
    return inside


def arguments_inside(cls: type, value: object) -> dict[str, list[str]]:
    """How to pass ``value`` to an argument of a group, by the former's name."""
    text = repr(value) if len(repr(value)) <= 40 else "..."

    def written(group: Group[Any], key: str) -> str:
        if group.values:  # a new group would have other values than the method's
            return f"{group.name}={{{key!r}: {text}}}"
        return f"{group.name}={group.kind.__name__}({key}={text})"

    return keys_inside(cls, written)


def constructor_call(model: object) -> str:
    """The constructor call, with the arguments that differ from their defaults."""
    default = type(model)()
    changed = [
        f"{name}={_changes(getattr(model, name), getattr(default, name))}"
        for name in sorted(argument_names(type(model)))
        if getattr(model, name) != getattr(default, name)
    ]
    return f"{type(model).__name__}({', '.join(changed)})"


def _changes(value: object, default: object) -> str:
    """A group's constructor call with what differs from the default group; others in full."""
    if not isinstance(value, Params) or type(value) is not type(default):
        return repr(value)
    plain, own = type(value)().get_params(), value.get_params()
    inside = [f"{name}={own[name]!r}" for name in own if own[name] != plain[name]]
    return f"{type(value).__name__}({', '.join(inside)})"


def check_settings(model: object) -> None:
    """Checks a model's arguments against their types, and its groups; ``fit`` does it first."""
    cls: type = type(model)
    values, groups = vars(model), groups_of(cls)
    for name, group in groups.items():
        if not isinstance(values[name], group.kind):
            raise ConfigError(
                f"{name}: must be {group.kind.__name__}, got {type(values[name]).__name__}"
            )
        values[name].validate(name)
    for name, hint in _argument_types(cls).items():
        if name not in groups:
            setattr(model, name, checked(values[name], hint, name))  # the word none becomes None
    jobs, seed = values["n_jobs"], values["random_state"]
    if jobs is not None and (jobs == 0 or not -1 <= jobs <= MAX_THREADS):
        raise ConfigError(
            f"n_jobs: must be at least 1 and at most {MAX_THREADS}, or -1 or none for all cores, "
            f"got {jobs}"
        )
    if seed < 0:
        raise ConfigError(f"random_state: must be at least 0, got {seed}")


@cache
def _argument_types(cls: type) -> Table:
    """The types of a dataclass's arguments, as the modules of the class and its bases name them."""
    annotations = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    names: Table = {}
    for base in reversed(cls.__mro__):
        names |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations), names)


def check_count(name: str, value: object) -> None:
    """Refuses everything but whole numbers of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name}: must be a whole number of at least 1, got {value!r}")
