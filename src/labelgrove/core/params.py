"""Parameter groups: plain dataclasses with validation that work with TOML and scikit-learn.

A group is declared beside the code that reads it::

    @dataclass
    class RankerParams(Params):
        C: float = param(1.0, gt=0, help="inverse of the regularisation strength")

Constructing a group checks nothing, because scikit-learn's ``clone`` demands it; ``fit`` and all
that reads a file or a flag call :meth:`Params.validate`. Why not pydantic: its models copy lists,
which ``clone`` refuses, and every import would pay for it.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import math
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

from labelgrove.core.jsonio import unboxed
from labelgrove.errors import ArgumentError, ConfigError

Settings: TypeAlias = dict[str, Any]  # values of parameters by name, or tables of them
T = TypeVar("T")
# In a line of TOML: tomllib takes 4 s for a key of 16,000 parts, and time grows with the square.
MOST_DOTS = 1000

if TYPE_CHECKING:
    # What reads a setting gets a number: "auto" is replaced before (methods/defaults.py).
    AutoBool = bool
    AutoInt = int
    AutoFloat = float
    AutoFloats = list[float]
else:
    AutoBool = bool | Literal["auto"]
    AutoInt = int | Literal["auto"]
    AutoFloat = float | Literal["auto"]
    AutoFloats = list[float] | Literal["auto"]


def fixed(value: T, otherwise: T) -> T:
    """``value``, or ``otherwise`` where it is "auto" and nothing is known to derive it from."""
    return otherwise if isinstance(value, str) and value == "auto" else value


def param(
    default: object,
    *,
    help: str,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Any:
    """A dataclass field with bounds and a sentence of help."""
    bounds = {"ge": ge, "gt": gt, "le": le}
    metadata = {"help": help} | {name: value for name, value in bounds.items() if value is not None}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def argument_names(cls: type) -> list[str]:
    """What the constructor of a dataclass takes."""
    return [field.name for field in dataclasses.fields(cls) if field.init]


def refuse_unknown(
    cls: type,
    arguments: Mapping[str, object],
    inside: Callable[[object], Mapping[str, list[str]]] = lambda value: {},
) -> None:
    """Refuses arguments that the constructor of a dataclass lacks, and suggests names.

    ``inside`` says how to pass a value to an argument of an argument, by the former's name.
    """
    # What is no dataclass has a constructor of its own, such as that of exported models.
    names = argument_names(cls) if dataclasses.is_dataclass(cls) else list(arguments)
    for name, value in arguments.items():
        if name not in names:
            problem = f"{cls.__name__} has no such argument"
            raise ArgumentError(unknown_key(name, names, inside=inside(value), problem=problem))


@dataclasses.dataclass
class Params:
    """Base of parameter groups: one level of named values, no nesting."""

    if not TYPE_CHECKING:  # type checkers know the arguments from the fields

        def __new__(cls, *_: object, **arguments: object) -> Self:
            refuse_unknown(cls, arguments)
            return super().__new__(cls)

    def get_params(self, deep: bool = True) -> Settings:
        """Field values by name, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in argument_names(type(self))}

    def identity(self) -> Settings:
        """The values that decide what comes out; a group may leave out those that do not."""
        return self.get_params()

    def only(self, *names: str) -> Self:
        """A group with these values, and defaults for the rest."""
        values = self.get_params()
        return type(self)(**{name: values[name] for name in names})

    def set_params(self, **values: object) -> Self:
        """Sets fields by name; the error for an unknown name suggests the nearest valid one."""
        self._check_names(values)
        for name, value in values.items():
            setattr(self, name, value)
        return self

    @classmethod
    def _check_names(cls, values: Iterable[str], path: str = "") -> None:
        for name in values:
            if name not in argument_names(cls):
                raise ConfigError(unknown_key(name, argument_names(cls), path))

    def changed(self, names: Iterable[str], path: str = "") -> list[str]:
        """Dotted paths of those of the named fields that differ from their defaults."""
        default = type(self)()
        changed = (name for name in names if getattr(self, name) != getattr(default, name))
        return [f"{path}.{name}" if path else name for name in changed]

    def validate(self, path: str = "") -> Self:
        """Checks every value against its type and bounds; the error names the dotted path."""
        hints = _type_hints(type(self))  # type: ignore[arg-type]
        for field in dataclasses.fields(self):
            where = f"{path}.{field.name}" if path else field.name
            value = checked(getattr(self, field.name), hints[field.name], where)
            _check_bounds(value, field.metadata, where)
            # An int in a float field, or a list in a tuple field, becomes the declared type.
            setattr(self, field.name, value)
        return self

    @classmethod
    def from_dict(cls, values: Mapping[str, object], path: str = "") -> Self:
        """A validated group from a mapping, such as one table of a TOML file."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"{path or cls.__name__}: must be a table of keys, got {values!r}")
        cls._check_names(values, path)
        return cls(**values).validate(path)


@functools.cache  # a search validates its parameters; resolving hints took half of its time
def _type_hints(cls: type[Params]) -> dict[str, object]:
    return typing.get_type_hints(cls)


def unknown_key(
    name: str,
    valid: list[str],
    path: str = "",
    *,
    inside: Mapping[str, list[str]] | None = None,
    problem: str = "unknown key",
) -> str:
    """The message for an unknown key, with the nearest valid one.

    ``inside`` has keys of tables that are valid here, and how each is written.
    """

    def dotted(key: str) -> str:
        return f"{path}.{key}" if path else key

    spellings = {key.lower(): written for key, written in (inside or {}).items()}
    spellings |= {key.lower(): [dotted(key)] for key in valid}
    cutoff = 0.7 if inside else 0.5  # one of many keys resembles any word
    near = difflib.get_close_matches(name.lower(), spellings, n=1, cutoff=cutoff)
    advice = f"valid keys: {', '.join(valid) or 'none'}"
    if near:
        advice = f"did you mean {' or '.join(spellings[near[0]])}?"
    return f"{dotted(name)}: {problem}; {advice}"


def checked(value: object, hint: object, where: str) -> Any:
    """``value`` as the annotated type, or a ConfigError that says what was expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    value = unboxed(value)  # a search over np.arange or np.logspace gives NumPy numbers
    if origin in (types.UnionType, typing.Union):
        if type(None) in arguments and (
            value is None or (isinstance(value, str) and value == "none")
        ):
            return None  # TOML has no null: the word "none" means None
        options = [a for a in arguments if a is not type(None)]
        if len(options) == 1:
            only = options[0]
            if typing.get_origin(only) is typing.Literal:
                only = typing.Literal[(*typing.get_args(only), "none")]
            return checked(value, only, where)
        rules = []
        for option in options:
            try:
                return checked(value, option, where)
            except ConfigError as error:
                rules.append(str(error).removeprefix(f"{where}: ").rpartition(", got ")[0])
        raise ConfigError(f"{where}: {' or '.join(rules)}, got {value!r}")
    if origin is typing.Literal:
        if not any(value == a and type(value) is type(a) for a in arguments):
            options_text = ", ".join(repr(a) for a in arguments)
            raise ConfigError(f"{where}: must be one of {options_text}, got {value!r}")
        return value
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where}: must be a list, got {value!r}")
        if origin is tuple and arguments[-1:] != (Ellipsis,):
            if len(value) != len(arguments):
                raise ConfigError(f"{where}: must have {len(arguments)} entries, got {value!r}")
            items = zip(value, arguments, strict=True)
        else:
            items = zip(value, [arguments[0]] * len(value), strict=True)
        return origin(checked(item, kind, f"{where}[{i}]") for i, (item, kind) in enumerate(items))
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise ConfigError(f"{where}: must be a table of names, got {value!r}")
        return {key: checked(v, arguments[1], f"{where}.{key}") for key, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{where}: must be a number below 1e308, got more") from error
    wrong_bool = isinstance(value, bool) and hint is not bool
    if isinstance(hint, type) and (wrong_bool or not isinstance(value, hint)):
        raise ConfigError(f"{where}: must be {_type_word(hint)}, got {value!r}")
    if hint is float and isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{where}: must be a number, got nan")
    return value


def _type_word(hint: type) -> str:
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    return words.get(hint, hint.__name__)


def _check_bounds(value: Any, bounds: Mapping[str, float], where: str) -> None:
    if value is None or isinstance(value, str):
        return
    values = list(value.values()) if isinstance(value, dict) else value
    for item in values if isinstance(values, (list, tuple)) else [values]:
        if "ge" in bounds and not item >= bounds["ge"]:
            raise ConfigError(f"{where}: must be at least {bounds['ge']}, got {item!r}")
        if "gt" in bounds and not item > bounds["gt"]:
            raise ConfigError(f"{where}: must be greater than {bounds['gt']}, got {item!r}")
        if "le" in bounds and not item <= bounds["le"]:
            raise ConfigError(f"{where}: must be at most {bounds['le']}, got {item!r}")


def read_toml(path: str | Path) -> Settings:
    """A TOML file as nested dicts."""
    try:
        text = Path(path).read_bytes().decode()
        if all(line.count(".") <= MOST_DOTS for line in text.split("\n")):
            return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read config file ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # also bad UTF-8, huge numbers, deep nesting
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    raise ConfigError(f"{path}: a line has more than {MOST_DOTS:,} dots; split it")


def parse_setting(setting: str) -> tuple[str, object]:
    """One ``--set key.path=value`` flag; the value is read as TOML, else as a plain string."""
    key, equals, text = setting.partition("=")
    names = [name.strip() for name in key.split(".")]
    if not equals or not all(names):
        raise ConfigError(f"--set {setting}: must look like table.key=value")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        parsed = {}
    value = parsed.get("value")
    # No parameter is a date or a time, and text with more lines is not one value.
    if len(parsed) != 1 or not isinstance(value, (bool, int, float, str, list, dict)):
        value = text.strip()
    return ".".join(names), value


def merge_settings(config: Mapping[str, object], settings: list[str]) -> Settings:
    """Config tables with ``--set`` flags laid over them; the input is not changed."""
    merged = dict(config)
    for setting in settings:
        merged = with_setting(merged, *parse_setting(setting))
    return merged


def with_setting(config: Mapping[str, object], key: str, value: object) -> Settings:
    """Config tables with another value for ``key`` or ``table.key``."""
    table, dot, name = key.rpartition(".")
    if "." in table:
        raise ConfigError(f"{key}: parameters are one level deep (table.key)")
    if dot and not isinstance(as_table(table, config.get(table, {})), Mapping):
        raise ConfigError(f"{key}: {table} is a value, not a table")
    return overridden(config, {table: {name: value}} if dot else {key: value})


def overridden(config: Mapping[str, object], values: Mapping[str, object]) -> Settings:
    """Config tables with other values, key by key within a table; the inputs are not changed.

    >>> overridden({"encoder": {"max_tokens": 64}}, {"encoder": "gte-small"})
    {'encoder': {'max_tokens': 64, 'encoder': 'gte-small'}}
    """
    result = dict(config)
    for key, value in values.items():
        old, new = as_table(key, result.get(key)), as_table(key, value)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            new = {**old, **new}
        result[key] = new
    return result


def as_table(name: str, value: object) -> object:
    """A setting, as a table where a string stands for one: an encoder's name for its group."""
    return {name: value} if name == "encoder" and isinstance(value, str) else value


def to_toml(config: Mapping[str, object]) -> str:
    """TOML text: values first, then a table per mapping; None becomes "none"."""
    import tomli_w

    try:
        text = tomli_w.dumps({key: _plain(value) for key, value in config.items()})
        text.encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise ConfigError(f"cannot write these settings to TOML: {error}") from error
    return text


def _plain(value: object) -> object:
    """The value with only types that TOML knows."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return "none" if value is None else unboxed(value)
