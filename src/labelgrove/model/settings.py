"""Settings of a model: its groups of parameters and their checks."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from labelgrove.core.params import Params, fixed
from labelgrove.core.processes import MAX_THREADS
from labelgrove.errors import ConfigError

P = TypeVar("P", bound=Params)
FEATURES = ("auto", "own", "given", "both")  # the values of ``features``, where a method has it


def group(kind: type[P], **values: Any) -> P:
    """A constructor argument that is a group of parameters, with the method's own defaults."""
    field: P = dataclasses.field(
        default_factory=lambda: kind(**values), metadata={"group": kind, "values": values}
    )
    return field


class Groups:
    """The groups of a model class by name, from its fields."""

    def __get__(self, _: object, owner: type) -> dict[str, type[Params]]:
        fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
        return {f.name: f.metadata["group"] for f in fields if "group" in f.metadata}


def fill_groups(model: Any) -> None:
    """Sets groups that are None to their defaults."""
    for field in dataclasses.fields(model):
        if "group" in field.metadata and vars(model)[field.name] is None:
            setattr(model, field.name, field.metadata["group"](**field.metadata["values"]))


def check_settings(model: Any) -> None:
    """Validates every group and the arguments that methods share; ``fit`` calls it first."""
    values = vars(model)
    for name, kind in type(model).groups.items():
        if not isinstance(values[name], kind):
            raise ConfigError(f"{name}: must be {kind.__name__}, got {type(values[name]).__name__}")
        values[name].validate(name)
    for name in ("random_state", "n_jobs"):
        value = values[name]
        if not _whole(value) and not (value is None and name == "n_jobs"):
            raise ConfigError(f"{name}: must be a whole number, got {value!r}")
    jobs = model.n_jobs
    if jobs is not None and (jobs == 0 or not -1 <= jobs <= MAX_THREADS):
        raise ConfigError(
            f"n_jobs: must be at least 1 and at most {MAX_THREADS}, or -1 or none for all cores, "
            f"got {jobs}"
        )
    if model.random_state < 0:
        raise ConfigError(f"random_state: must be at least 0, got {model.random_state}")
    held_out = fixed(values.get("held_out", 0.0), 0.0)
    if isinstance(held_out, bool) or not isinstance(held_out, (int, float, np.number)):
        raise ConfigError(f"held_out: must be a number, got {held_out!r}")
    if values.get("features", "auto") not in FEATURES:
        raise ConfigError(
            f"features: must be one of {', '.join(FEATURES)}, got {values['features']!r}"
        )
    for name in ("baseline", "refine", "return_held_out"):
        if not isinstance(values.get(name, False), (bool, np.bool_)):
            raise ConfigError(f"{name}: must be true or false, got {values[name]!r}")


def check_count(name: str, value: Any) -> None:
    """Refuses everything but whole numbers of at least 1."""
    if not _whole(value) or value < 1:
        raise ConfigError(f"{name}: must be a whole number of at least 1, got {value!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
