"""What a search may choose from: ranges and choices under dotted names, checked before any work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from labelgrove.core.params import unknown_key
from labelgrove.errors import ConfigError
from labelgrove.methods import create


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; whole ones where both bounds are whole and it says so."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that are tried against the method's own rules."""
        return (round(self.low), round(self.high)) if self.whole else (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of some values, in no order."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that are tried against the method's own rules."""
        return self.values


Space = dict[str, Range | Choice]

_LINEAR: dict[str, Any] = {
    "ranker.C": {"low": 0.1, "high": 10.0, "log": True},
    "ranker.positive_weight": {"low": 0.5, "high": 4.0, "log": True},
    "ranker.threshold": {"low": 0.01, "high": 0.3, "log": True},
    "ranker.negatives": ["tfn", "tfn+man"],
    "tree.max_leaf_size": [25, 50, 100, 200, 400],
    "tree.branching": [8, 16, 32],
    "search.beam": ["auto", 5, 20, 40],
    "search.post_processor": ["l3-hinge", "l4-hinge", "sigmoid"],
}
_TRAINING: dict[str, Any] = {
    "training.lr": {"low": 1e-5, "high": 5e-4, "log": True},
    "training.head_lr": [None, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3],
    "training.epochs": {"low": 1.0, "high": 10.0, "log": True},
}
_RERANK: dict[str, Any] = {
    "rerank.share": {"low": 0.3, "high": 0.95},
    "rerank.shortlist": [50, 100, 200],
    "ranker.C": {"low": 0.1, "high": 10.0, "log": True},
}
_BUILT_IN: dict[str, dict[str, Any]] = {
    "linear": _LINEAR,
    "linear-vectors": {
        **_LINEAR,
        "ranker.dense_C": [None, 0.3, 1.0, 3.0, 10.0],
    },
    "lightxml": _TRAINING | {"heads.dropout": {"low": 0.0, "high": 0.6}},
    "cascadexml": _TRAINING
    | {"heads.dropout": [None, 0.1, 0.2, 0.3, 0.5], "heads.kept": [32, 64, 128, 256]},
    "xtransformer": _TRAINING
    | {
        "heads.dropout": {"low": 0.0, "high": 0.5},
        "ranking.clusters_kept": [5, 10, 20, 40],
        "ranker.C": {"low": 0.1, "high": 10.0, "log": True},
    },
    "xrtransformer": _TRAINING
    | {
        "heads.kept": [10, 20, 40],
        "ranker.C": {"low": 0.1, "high": 10.0, "log": True},
        "search.beam": [10, 20, 40],
    },
}


def built_in_space(model: Any) -> Space:
    """What is worth searching for an unfitted model's method.

    >>> sorted(built_in_space(create("linear")))[:2]
    ['ranker.C', 'ranker.negatives']
    """
    if model.method not in _BUILT_IN:
        known = ", ".join(_BUILT_IN)
        raise ConfigError(
            f"there is no search space for {model.method}: give one (there are some for {known})"
        )
    wanted = dict(_BUILT_IN[model.method])
    if hasattr(model, "rerank") and model.rerank.enabled:
        wanted |= _RERANK
    if getattr(getattr(model, "tree", None), "kind", "balanced") != "balanced":
        wanted["tree.branching"] = [50, 100, 200]
    return parse_space(wanted)


def parse_space(table: Mapping[str, Any]) -> Space:
    """A search space from a mapping, such as the ``[space]`` table of a TOML file.

    A value is a list of choices, ``{values = [...]}``, or ``{low, high}`` with ``log = true`` or a
    ``step``. Names are dotted, quoted (``"ranker.C"``) or as tables within the table.

    >>> parse_space({"ranker.C": {"low": 0.1, "high": 10, "log": True}})["ranker.C"].high
    10.0
    >>> parse_space({"tree": {"branching": [8, 16]}})
    {'tree.branching': Choice(values=(8, 16))}
    """
    space: Space = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not {"low", "high", "values"} & value.keys():
            for name, inner in value.items():
                space[f"{key}.{name}"] = _parsed(f"{key}.{name}", inner)
        else:
            space[key] = _parsed(key, value)
    if not space:
        raise ConfigError("space: there is nothing to search in it")
    return space


def _parsed(key: str, value: Any) -> Range | Choice:
    if isinstance(value, (Range, Choice)):
        return value
    if isinstance(value, Mapping) and "values" in value:
        if len(value) > 1:
            raise ConfigError(f"space: {key}: values stand alone, without low, high, log or step")
        value = value["values"]
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise ConfigError(f"space: {key}: give at least one value")
        # Optuna wants choices that can be compared and stored: a list becomes a tuple.
        return Choice(tuple(tuple(v) if isinstance(v, list) else v for v in value))
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"space: {key}: must be a list of values or {{low = ..., high = ...}}, got {value!r}"
        )
    for name in value:
        if name not in ("low", "high", "log", "step"):
            raise ConfigError("space: " + unknown_key(name, ["low", "high", "log", "step"], key))
    low, high = value.get("low"), value.get("high")
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise ConfigError(f"space: {key}: low and high must be numbers, got {dict(value)!r}")
    assert low is not None and high is not None
    log, step = value.get("log", False), value.get("step")
    if not isinstance(log, bool):
        raise ConfigError(f"space: {key}: log must be true or false, got {log!r}")
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"space: {key}: low must be below high, got {low} and {high}")
    if log and low <= 0:
        raise ConfigError(f"space: {key}: with log, low must be above 0, got {low}")
    if step is not None and (log or isinstance(step, (bool, str)) or not step > 0):
        raise ConfigError(f"space: {key}: step must be above 0 and not go with log, got {step!r}")
    return Range(float(low), float(high), log, None if step is None else float(step))


def checked_space(space: Space, method: str, base: Mapping[str, Any]) -> Space:
    """The space with whole numbers where the method wants them; refuses what the method refuses.

    >>> space = parse_space({"tree.branching": {"low": 4, "high": 32}})
    >>> checked_space(space, "linear", {})["tree.branching"].whole
    True
    """
    checked: Space = {}
    for key, span in space.items():
        wrong = _refused(key, span, method, base)
        if wrong is not None and isinstance(span, Range) and _is_whole(span):
            whole = replace(span, whole=True)
            wrong = wrong if _refused(key, whole, method, base) else None
            span = whole
        if wrong is not None:
            raise ConfigError(f"space: {wrong}") from wrong
        checked[key] = span
    return checked


def _is_whole(span: Range) -> bool:
    return all(value.is_integer() for value in (span.low, span.high, span.step or 1.0))


def _refused(
    key: str, span: Range | Choice, method: str, base: Mapping[str, Any]
) -> ConfigError | None:
    """What the method says against the ends of a span, or None."""
    try:
        for value in span.ends:
            create(method, laid_over(base, {key: value}))
    except ConfigError as error:
        return error
    return None


def laid_over(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Config tables with dotted settings laid over them.

    >>> laid_over({"ranker": {"C": 1.0}}, {"ranker.C": 2.0, "n_trees": 3})
    {'ranker': {'C': 2.0}, 'n_trees': 3}
    """
    merged = {k: dict(v) if isinstance(v, Mapping) else v for k, v in base.items()}
    for key, value in settings.items():
        value = list(value) if isinstance(value, tuple) else value
        table, dot, name = key.partition(".")
        if not dot:
            merged[key] = value
        elif isinstance(merged.setdefault(table, {}), dict) and "." not in name:
            merged[table][name] = value
        else:
            raise ConfigError(f"space: {key}: names are one level deep (table.key)")
    return merged


def value_of(model: Any, key: str) -> Any:
    """What a dotted name is set to in an unfitted model.

    >>> value_of(create("linear"), "ranker.C")
    1.0
    """
    value = model
    for name in key.split("."):
        value = getattr(value, name)
    return tuple(value) if isinstance(value, list) else value
