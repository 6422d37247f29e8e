"""Values that a setting may have."""

from typing import Any, Literal, get_args, get_origin, get_type_hints

from labelgrove.core.params import Params
from labelgrove.errors import ConfigError

CANDIDATES = [True, False, 3, 7, 0.25, 0.75, [2], [0.5], ["a"], [1, 2], {"a": 2.0}, "some-name"]
CANDIDATES += ["space"]


def words(hint: Any) -> list[Any]:
    """The words that a type allows."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return list(arguments)
    return [word for argument in arguments for word in words(argument)]


def other_value(kind: type[Params], key: str, default: Any) -> tuple[Any, Any]:
    """A valid value that is not the default: as one writes it, and as the group has it."""
    for candidate in [*CANDIDATES, *words(get_type_hints(kind)[key])]:
        try:
            value = getattr(kind.from_dict({key: candidate}), key)
        except ConfigError:
            continue
        if value != default:
            return candidate, value
    raise AssertionError(f"add a value for {kind.__name__}.{key} to CANDIDATES")
