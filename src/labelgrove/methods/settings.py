"""Settings of a model: its groups of parameters and their checks."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, overload

import numpy as np

from labelgrove.core.params import Params, as_table, checked
from labelgrove.core.processes import MAX_THREADS
from labelgrove.errors import ConfigError

P = TypeVar("P", bound=Params)


class Group(Generic[P]):
    """A constructor argument that is a group of parameters, with the method's own defaults.

    A table in place of a group changes the values that it names: ``search={"beam": 30}``. So does
    the name of an encoder, ``encoder="gte-small"``. None stands for the method's defaults.
    """

    def __init__(self, kind: type[P], values: Mapping[str, Any]) -> None:
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

    def __set__(self, model: object, value: P | Mapping[str, Any] | str | None) -> None:
        present = vars(model).get(self.name)
        if value is None:
            value = self.kind(**self.values)
        table = as_table(self.name, value)
        if isinstance(table, Mapping):
            base = present.get_params() if isinstance(present, Params) else self.values
            value = self.kind(**{**base, **table})
        vars(model)[self.name] = value  # ``check_settings`` refuses what is no group

    def from_table(self, value: Any) -> P:
        """A validated group from a table of a config."""
        table = as_table(self.name, value)
        if not isinstance(table, Mapping):
            raise ConfigError(f"{self.name}: must be a table of parameters, got {value!r}")
        return self.kind.from_dict({**self.values, **table}, self.name)


def group(kind: type[P], **values: Any) -> Group[P]:
    """The argument of a method for a group, and values that differ from the group's defaults."""
    return Group(kind, values)


class Groups:
    """The groups of a model class by name, from its fields."""

    def __get__(self, _: object, owner: type) -> dict[str, Group[Any]]:
        fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
        values = {field.name: inspect.getattr_static(owner, field.name, None) for field in fields}
        return {name: value for name, value in values.items() if isinstance(value, Group)}


def check_settings(model: Any) -> None:
    """Checks a model's arguments against their types, and its groups; ``fit`` does it first."""
    values, groups = vars(model), type(model).groups
    for name, group in groups.items():
        if not isinstance(values[name], group.kind):
            raise ConfigError(
                f"{name}: must be {group.kind.__name__}, got {type(values[name]).__name__}"
            )
        values[name].validate(name)
    for name, hint in _argument_types(type(model)).items():
        if name not in groups:
            checked(values[name], hint, name)
    jobs = model.n_jobs
    if jobs is not None and (jobs == 0 or not -1 <= jobs <= MAX_THREADS):
        raise ConfigError(
            f"n_jobs: must be at least 1 and at most {MAX_THREADS}, or -1 or none for all cores, "
            f"got {jobs}"
        )
    if model.random_state < 0:
        raise ConfigError(f"random_state: must be at least 0, got {model.random_state}")


@cache
def _argument_types(cls: type) -> dict[str, Any]:
    """The types of a dataclass's arguments, as its module names them."""
    annotations = {field.name: field.type for field in dataclasses.fields(cls) if field.init}
    named = types.SimpleNamespace(__annotations__=annotations)
    return typing.get_type_hints(named, vars(sys.modules[cls.__module__]))


def check_count(name: str, value: Any) -> None:
    """Refuses everything but whole numbers of at least 1."""
    if not _whole(value) or value < 1:
        raise ConfigError(f"{name}: must be a whole number of at least 1, got {value!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
