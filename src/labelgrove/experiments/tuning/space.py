"""The search space: ranges and choices under dotted names, checked before any trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labelgrove.core.params import unknown_key, with_setting
from labelgrove.errors import ConfigError
from labelgrove.methods import create
from labelgrove.methods.base import Model


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, or only whole numbers."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that the method must accept."""
        return (round(self.low), round(self.high)) if self.whole else (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of several values, without an order."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that the method must accept."""
        return self.values


Span = Range | Choice
Space = dict[str, Span]


def built_in_space(model: Model) -> Space:
    """What is worth searching for an unfitted model's method."""
    table = model.search_space()
    if not table:
        raise ConfigError(
            f"there is no built-in search space for the method {model.method}; give one"
        )
    return parse_space(table)


def parse_space(table: Mapping[str, Any]) -> Space:
    """A search space from a mapping, such as the ``[space]`` table of a TOML file.

    A value is a list of choices, ``{values = [...]}``, or ``{low, high}`` with ``log = true`` or a
    ``step``. Names are dotted and quoted (``"ranker.C"``), or tables within the table.

    >>> parse_space({"ranker.C": [0.5, 2.0], "tree": {"branching": [8, 16]}})
    {'ranker.C': Choice(values=(0.5, 2.0)), 'tree.branching': Choice(values=(8, 16))}
    """
    space: Space = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not {"low", "high", "values"} & value.keys():
            for name, inner in value.items():
                space[f"{key}.{name}"] = _parsed(f"{key}.{name}", inner)
        else:
            space[key] = _parsed(key, value)
    if not space:
        raise ConfigError("space: is empty; name at least one setting")
    return space


def _parsed(key: str, value: Any) -> Span:
    if isinstance(value, (Range, Choice)):
        return value
    if isinstance(value, Mapping) and "values" in value:
        if len(value) > 1:
            raise ConfigError(f"space: {key}: values cannot go with low, high, log or step")
        value = value["values"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise ConfigError(f"space: {key}: give at least one value")
        # Optuna needs choices that it can compare and store: a list becomes a tuple.
        return Choice(tuple(tuple(v) if isinstance(v, list) else v for v in value))
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"space: {key}: must be a list of values or {{low = ..., high = ...}}, got {value!r}"
        )
    for name in value:
        if name not in ("low", "high", "log", "step"):
            raise ConfigError("space: " + unknown_key(name, ["low", "high", "log", "step"], key))
    low, high, log, step = (value.get(name) for name in ("low", "high", "log", "step"))
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise ConfigError(f"space: {key}: low and high must be numbers, got {dict(value)!r}")
    assert low is not None and high is not None
    log = False if log is None else log
    if not isinstance(log, bool):
        raise ConfigError(f"space: {key}: log must be true or false, got {log!r}")
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"space: {key}: low must be below high, got {low} and {high}")
    if log and low <= 0:
        raise ConfigError(f"space: {key}: with log, low must be above 0, got {low}")
    if step is not None and (log or isinstance(step, (bool, str)) or not step > 0):
        raise ConfigError(f"space: {key}: step must be above 0, and without log, got {step!r}")
    return Range(float(low), float(high), log, None if step is None else float(step))


def checked_space(space: Space, method: str, base: Mapping[str, Any]) -> Space:
    """The space, with whole numbers for settings that need them. Bad values raise ConfigError."""
    return {key: _checked(key, span, method, base) for key, span in space.items()}


def _checked(key: str, span: Span, method: str, base: Mapping[str, Any]) -> Span:
    spans: list[Span] = [span]
    if isinstance(span, Range):
        numbers = (span.low, span.high, span.step or 1.0)
        if all(number.is_integer() for number in numbers):
            spans.append(replace(span, whole=True))
    errors = []
    for candidate in spans:
        try:
            for value in candidate.ends:
                create(method, laid_over(base, {key: value}))
            return candidate
        except ConfigError as error:
            errors.append(error)
    raise ConfigError(f"space: {errors[0]}") from errors[0]


def laid_over(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Config tables, overridden by dotted settings."""
    merged = dict(base)
    for key, value in settings.items():
        merged = with_setting(merged, key, list(value) if isinstance(value, tuple) else value)
    return merged


def value_of(model: Model, key: str) -> Any:
    """The setting of an unfitted model under a dotted name."""
    value = model.to_config()
    for name in key.split("."):
        value = value[name]
    return tuple(value) if isinstance(value, list) else value
