"""What scikit-learn's tools ask of an estimator, without importing scikit-learn.

Its import takes longer than loading a model and predicting, so commands would pay for a base class
of four short methods.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar, Self

from labelgrove.core.params import Arguments, Params, argument_names, unknown_key
from labelgrove.errors import ConfigError
from labelgrove.methods.settings import Group, Groups


class Parameters(Arguments):
    """A dataclass whose fields are parameters: ``get_params``, ``set_params``, ``clone``, repr."""

    groups: ClassVar[Groups] = Groups()

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(argument_names(cls))

    @classmethod
    def _inside(cls, written: Callable[[Group[Any], str], str]) -> dict[str, list[str]]:
        """The keys of all groups, and how each of them is written."""
        inside = defaultdict[str, list[str]](list)
        for group in cls.groups.values():
            for key in argument_names(group.kind):
                inside[key].append(written(group, key))
        return inside

    @classmethod
    def _arguments_inside(cls, value: Any) -> dict[str, list[str]]:
        text = repr(value) if len(repr(value)) <= 40 else "..."

        def written(group: Group[Any], key: str) -> str:
            if group.values:  # a new group would have other values than the method's
                return f"{group.name}={{{key!r}: {text}}}"
            return f"{group.name}={group.kind.__name__}({key}={text})"

        return cls._inside(written)

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
                inside = self._inside(lambda group, inner: f"{group.name}__{inner}")
                raise ConfigError(unknown_key(name, names, inside=inside))
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
