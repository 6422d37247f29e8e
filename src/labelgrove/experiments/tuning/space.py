"""The search space: ranges and choices under dotted names, checked before any trial."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from labelgrove.core.params import Settings, unknown_key, with_setting
from labelgrove.data.corpus import Corpus
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.methods import create
from labelgrove.methods.base import Model

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Space = dict[str, "BaseDistribution"]


def load_optuna() -> ModuleType:
    """The package optuna, or an error that says how to install it."""
    try:
        optuna = import_module("optuna")
    except ImportError as missing:
        raise MissingExtraError("tune", "searching for settings") from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def built_in_space(model: Model) -> Space:
    """What is worth searching for an unfitted model's method."""
    table = model.search_space()
    if not table:
        raise ConfigError(
            f"there is no built-in search space for the method {model.method}; give one"
        )
    return parse_space(table)


def parse_space(table: Mapping[str, object]) -> Space:
    """A search space from a mapping, such as the ``[space]`` table of a TOML file.

    A value is a list of choices, or ``{low, high}`` with ``log = true`` or a ``step``. Names are
    dotted and quoted (``"ranker.C"``), or tables within the table.

    >>> space = parse_space({"ranker.C": [0.5, 2.0], "tree": {"branching": [8, 16]}})
    >>> {key: span.choices for key, span in space.items()}
    {'ranker.C': (0.5, 2.0), 'tree.branching': (8, 16)}
    """
    space: Space = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            for name, inner in value.items():
                space[f"{key}.{name}"] = _parsed(f"{key}.{name}", inner)
        else:
            space[key] = _parsed(key, value)
    if not space:
        raise ConfigError("space: is empty; name at least one setting")
    return space


def _parsed(key: str, value: object) -> BaseDistribution:
    kinds = load_optuna().distributions
    if isinstance(value, str) or not isinstance(value, Sequence | Mapping):
        raise ConfigError(
            f"space: {key}: must be a list of values or {{low = ..., high = ...}}, got {value!r}"
        )
    limits = _range(key, value) if isinstance(value, Mapping) else None
    span: BaseDistribution
    try:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):
            if limits is not None:
                span = kinds.FloatDistribution(**limits)
            else:
                # Optuna compares choices: a list becomes a tuple.
                choices = [tuple(v) if isinstance(v, list) else v for v in value]
                span = kinds.CategoricalDistribution(choices)
            return span
    except ValueError as error:
        raise ConfigError(f"space: {key}: {error}") from error


def _range(key: str, table: Mapping[str, object]) -> Settings:
    names = ["low", "high", "log", "step"]
    for name in table:
        if name not in names:
            raise ConfigError("space: " + unknown_key(name, names, key))
    values: Settings = {"low": None, "high": None, "log": False, **table}
    if not isinstance(values["log"], bool):
        raise ConfigError(f"space: {key}: log must be true or false, got {values['log']!r}")
    for name, number in values.items():
        if name != "log" and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise ConfigError(f"space: {key}: {name} must be a number, got {number!r}")
    low, high = values["low"], values["high"]
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"space: {key}: low must be below high, got {low} and {high}")
    return values


def checked_space(space: Space, method: str, base: Mapping[str, object]) -> Space:
    """The space, with whole numbers for settings that need them. Bad values raise ConfigError."""
    return {key: _checked(key, span, method, base) for key, span in space.items()}


def _checked(key: str, span: Any, method: str, base: Mapping[str, object]) -> BaseDistribution:
    spans, kinds = [span], load_optuna().distributions
    if isinstance(span, kinds.FloatDistribution):
        numbers = [span.low, span.high, span.step or 1.0]
        if all(number.is_integer() for number in numbers):
            low, high, step = map(int, numbers)
            spans.append(kinds.IntDistribution(low, high, span.log, step))
    errors = []
    for candidate in spans:
        try:
            for value in ends(candidate):
                create(method, laid_over(base, {key: value}))
            return candidate
        except ConfigError as error:
            errors.append(error)
    raise ConfigError(f"space: {errors[0]}") from errors[0]


def ends(span: Any) -> tuple[Any, ...]:
    """Values that the method must accept: the ends of a range, or all choices."""
    return getattr(span, "choices", None) or (span.low, span.high)


def laid_over(base: Mapping[str, object], settings: Mapping[str, object]) -> Settings:
    """Config tables, overridden by dotted settings."""
    merged = dict(base)
    for key, value in settings.items():
        merged = with_setting(merged, key, list(value) if isinstance(value, tuple) else value)
    return merged


def default_settings(model: Model, space: Space, corpus: Corpus) -> Settings:
    """The settings of an unfitted model, as far as the space contains them."""
    resolved = model.resolve_defaults(corpus)  # numbers for settings that are "auto"
    settings = {}
    for key, span in space.items():
        value, choices = value_of(model, key), getattr(span, "choices", None)
        if value == "auto" and choices is None:
            value = value_of(resolved, key)
        if choices is not None:
            inside = value in choices
        else:
            inside = isinstance(value, (int, float)) and ends(span)[0] <= value <= ends(span)[1]
        if inside:
            settings[key] = value
    return settings


def value_of(model: Model, key: str) -> Any:
    """The setting of an unfitted model under a dotted name."""
    value = model.to_config()
    for name in key.split("."):
        value = value[name]
    return tuple(value) if isinstance(value, list) else value
