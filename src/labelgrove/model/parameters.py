"""What scikit-learn's tools ask of an estimator, without importing scikit-learn.

Its import takes longer than loading a model and predicting, so commands would pay for a base class
of four short methods.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import Any, Self

from labelgrove.core.params import Params, unknown_key
from labelgrove.errors import ConfigError


class Parameters:
    """A dataclass whose fields are parameters: ``get_params``, ``set_params``, ``clone``, repr."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(field.name for field in dataclasses.fields(cls) if field.init)  # type: ignore[arg-type]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments by name; with ``deep``, those of groups as ``GROUP__NAME``."""
        params: dict[str, Any] = {}
        for name in self._get_param_names():
            params[name] = value = getattr(self, name)
            if deep and isinstance(value, Params):
                params |= {f"{name}__{key}": inner for key, inner in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Sets arguments by the names of :meth:`get_params`."""
        names, nested = self._get_param_names(), defaultdict[str, dict[str, Any]](dict)
        for key, value in params.items():
            name, _, inner = key.partition("__")
            if name not in names:
                raise ConfigError(unknown_key(name, names))
            if inner:
                nested[name][inner] = value
            else:
                setattr(self, name, value)
        for name, values in nested.items():
            getattr(self, name).set_params(**values)
        return self

    def __repr__(self) -> str:
        """The constructor call, with the arguments that differ from their defaults."""
        default = type(self)()
        changed = [
            f"{name}={_changes(getattr(self, name), getattr(default, name))}"
            for name in self._get_param_names()
            if getattr(self, name) != getattr(default, name)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator().__sklearn_tags__()


def _changes(value: Any, default: Any) -> str:
    """A group's constructor call with what differs from the default group; others in full."""
    if not isinstance(value, Params) or type(value) is not type(default):
        return repr(value)
    plain, own = type(value)().get_params(), value.get_params()
    inside = [f"{name}={own[name]!r}" for name in own if own[name] != plain[name]]
    return f"{type(value).__name__}({', '.join(inside)})"
